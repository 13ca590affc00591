"""Measurement of the dashboard: page times, weight, age of live pages, cost of viewers, memory of streams.

    python -m tests.dashboard_bars --queues 1000 --tasks 1000000
    python -m tests.dashboard_bars --page servers --page 'queues*'

It fills a Redis of its own, serves it by `pyasynq web`, and asks over loopback.
With `--page` it only measures the times of these pages.
The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager, contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import psutil
import redis

from bench.bars import Bars
from pyasynq._wire.keys import queue_keys
from pyasynq.embedded import EmbeddedServer
from pyasynq.operations import Targets, User
from pyasynq.operations.sync import Operator
from pyasynq.task import TaskState
from pyasynq.web.locations import to_segment
from tests.caching_browser import CachingBrowser
from tests.factories import Tasks
from tests.operators_world import fill
from tests.ports import free_port
from tests.shop import announce_schedules
from tests.shop_service import (
    SHOP_COMMANDS,
    announce_commands,
    announce_deliveries,
    announce_doors,
    announce_lease_workers,
    configure_service,
)
from tests.steady_load import count_processed, count_waiting, measure_capacity, steady_load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

PAGES: Final = (
    "",
    "?range=24h",
    "attention",
    "queues",
    "queues?sort=-archived&page=3",
    "queues/{deep}?state=archived",
    "queues/{deep}?tab=types",
    "queues/{deep}?tab=errors",
    "queues/{deep}?tab=groups",
    "queues/{deep}?tab=history",
    "queues/{deep}?tab=limits",
    "queues/{deep}?tab=consumers",
    "queues/{deep}/tasks/{task}",
    "queues/{deep}/pause",
    "tasks",
    "tasks?q=queue:{deep}+state:archived",
    "bulk?act=delete&q=queue:{deep}+state:retry",
    "enqueue",
    "enqueue?type=email:bulk",
    "views",
    "views/new?q=state:archived",
    "errors",
    "types",
    "types/email:bulk",
    "servers",
    "servers/server-1",
    "schedules",
    "schedules/entry-cart.remind",
    "events",
    "events?kinds=failed",
    "task-types",
    "task-types/payments",
    "task-types/payments/edit",
    "deliveries",
    "deliveries/billing.example",
    "commands",
    "commands/run-of-dumps",
    "doors",
    "workers",
    "keys",
    "operations",
    "operations/{operation}",
    "doctor",
    "audit",
    "redis",
    "settings",
    "help",
)
_PAGE_BAR: Final = 0.080
_MANY_TASKS: Final = 10_000_000
_PAGE_BAR_OF_MANY: Final = 0.150
"""Seconds for a page from `_MANY_TASKS` on."""
_WEIGHT_BARS: Final = {"first visit": 45_000, "second visit": 20_000}
"""Bytes, compressed."""
_STREAM_BAR: Final = 120 * 2**20
_REDIS_BAR: Final = 0.02
_CPU_BAR: Final = 0.25
_LOSS_BAR: Final = 0.03
_BACKLOG_SECONDS: Final = 1.0
"""How much the backlog may differ at two moments, as a number of seconds of the load."""
_SLOW: Final = 50_000
"""Microseconds of Redis for one call."""
_LONGEST_LINE: Final = 2**24
"""Bytes of a line of a stream: an event of all rows is one."""
_VIEWERS: Final = 100
_STREAMS: Final = 500
_EVENT_SECONDS: Final = 30.0
"""Within this many seconds each stream has to bring its first event."""
_LIST_AGE_BAR: Final = 2.5
_TASK_AGE_BAR: Final = 1.0
_CHANGES: Final = 15


class Seen(NamedTuple):
    """Commands that Redis received; each second's CPU time of Redis and dashboard, and ended tasks."""

    commands: int
    redis: float
    process: float
    tasks: float


def main(arguments: Sequence[str]) -> int:
    """Run the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=30, help="how long viewers look")
    parser.add_argument(
        "--page",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="measure only the times of this page, or of pages that match a pattern with *; may be repeated",
    )
    given = parser.parse_args(arguments)
    pages = _choose_pages(given.page)
    if not pages:
        parser.error(f"no page is called {given.page[0]}; the pages are {', '.join(map(repr, PAGES))}")
    bars = Bars()
    with EmbeddedServer() as server:
        client = redis.Redis(unix_socket_path=server.url.removeprefix("unix://").partition("?")[0])
        world = fill(client, queues=given.queues, tasks=given.tasks, deep=0.5)
        print(
            f"{world.tasks:,} tasks in {len(world.queues):,} queues after {world.seconds:.0f} s", flush=True
        )
        places = _add_records(server.url, client, world.queues[-1])
        addresses = {page: page.format(**places) for page in pages}
        with _serving(server.url) as (address, process):
            bar = _PAGE_BAR_OF_MANY if given.tasks >= _MANY_TASKS else _PAGE_BAR
            asyncio.run(_time_pages(bars, address, process, addresses, given.rounds, bar))
            if not given.page:
                asyncio.run(_measure(bars, given, client, address, process))
                asyncio.run(_watch_loaded(bars, given.seconds, server.url, client, address, process))
    return bars.exit_code


def _choose_pages(wanted: Sequence[str]) -> tuple[str, ...]:
    """Return the pages that match one of the patterns, or all if there are no patterns."""
    return tuple(
        page
        for page in PAGES
        if not wanted or any(page == one or ("*" in one and fnmatchcase(page, one)) for one in wanted)
    )


def _add_records(url: str, client: redis.Redis, deep: str) -> dict[str, str]:
    """Add what the world has none of: records of a task service, schedules, a view and an operation.

    Return the names in the addresses of pages: the deep queue, a task in its archive, and the operation.
    """
    configure_service(url)
    announce_lease_workers(url)
    announce_deliveries(url)
    announce_commands(url, SHOP_COMMANDS)
    announce_doors(url)
    announce_schedules(client)
    oldest: Any = client.zrange(queue_keys(deep).archived, 0, 0)
    task_id = oldest[0].decode()
    with Operator(url, User.with_role("mira", "admin")) as operator:
        operator.save_view("failures", "search", "state:archived")
        started = operator.start_operation("run", Targets(ids={deep: [task_id]}), reason="a measurement")
    return {
        "deep": to_segment(deep),
        "task": to_segment(task_id),
        "operation": to_segment(started.operation),
    }


@contextmanager
def _serving(url: str) -> Iterator[tuple[str, psutil.Process]]:
    port = free_port()
    serve = ("web", "--redis", url, "--port", str(port), "--no-auth", "admin")
    child = subprocess.Popen([sys.executable, "-m", "pyasynq", *serve], stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}/"
    try:
        while True:
            try:
                httpx.get(f"{address}help")
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield address, psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait()


async def _measure(
    bars: Bars,
    given: argparse.Namespace,
    client: redis.Redis,
    address: str,
    process: psutil.Process,
) -> None:
    async with httpx.AsyncClient(base_url=address, timeout=60) as visitor:
        await _weigh(bars, visitor)
        await _time_changes(bars, visitor, client)
    await _watch(bars, given.seconds, client, address, process, viewers=0)
    await _watch(bars, given.seconds, client, address, process, viewers=_VIEWERS)
    before = process.memory_info().rss
    async with _viewers(address, _STREAMS) as streams:
        await asyncio.sleep(5)
        memory = process.memory_info().rss
        bars.tell(f"memory with {_STREAMS} streams", memory / 2**20, "MiB", most=_STREAM_BAR / 2**20)
        print(f"  before them it was {before / 2**20:.0f} MiB")
        bars.tell(f"of {_STREAMS} streams, without an event", await _count_silent(streams), most=0)


async def _weigh(bars: Bars, visitor: httpx.AsyncClient) -> None:
    """Add up everything that a browser loads for the overview, compressed: at first, and with its cache."""
    browser = CachingBrowser(visitor)
    for name, bar in _WEIGHT_BARS.items():
        bars.tell(name, await browser.visit("") / 1_000, "kB", most=bar / 1_000)
        print(f"  {len(browser.loaded)} bodies")


async def _time_changes(bars: Bars, visitor: httpx.AsyncClient, client: redis.Redis) -> None:
    """Measure the longest time from a change in Redis until a viewer of a list, or of the task, has it."""
    tasks = Tasks(client, "changes")
    tasks.pending("task")

    def add(number: int) -> str:
        tasks.pending(f"added-{number}")
        return str(number + 2)

    def move(number: int) -> str:
        if number % 2:
            client.zrem(tasks.keys.archived, "task")
            tasks.pending("task")
            return "Pending"
        client.lrem(tasks.keys.pending, 1, "task")
        client.hdel(tasks.keys.task("task"), "pending_since")
        tasks.put(TaskState.ARCHIVED, "task")
        return "Archived"

    for name, page, cell, change, bar in (
        ("change on a list", "/queues/changes", "state.pending", add, _LIST_AGE_BAR),
        ("change on the page of a task", "/queues/changes/tasks/task", "task.state", move, _TASK_AGE_BAR),
    ):
        ages = []
        async with visitor.stream("GET", "live", params={"page": page}) as response:
            lines = response.aiter_lines()
            await _await_cell(lines, cell, None)
            for number in range(_CHANGES):
                # Changes come at any moment between two renderings.
                await asyncio.sleep(random.uniform(0, bar))
                began = time.perf_counter()
                await _await_cell(lines, cell, change(number))
                ages.append(time.perf_counter() - began)
        bars.tell(name, max(ages) * 1_000, "ms", most=bar * 1_000)


async def _await_cell(lines: AsyncIterator[str], cell: str, text: str | None) -> None:
    """Read a live stream until a cell has this text; None is any text."""
    async for line in lines:
        found = json.loads(line.removeprefix("data: ")).get(cell) if line.startswith("data: ") else None
        if found is not None and text in {None, found}:
            return


async def _time_pages(
    bars: Bars,
    address: str,
    process: psutil.Process,
    pages: Mapping[str, str],
    rounds: int,
    bar: float,
) -> None:
    """Request each page several times, in turn, so that answers cached for all pages expire in between.

    The CPU time of the dashboard tells a slow page from a busy machine.
    """
    times: dict[str, list[float]] = {page: [] for page in pages}
    work = dict.fromkeys(pages, 0.0)
    async with httpx.AsyncClient(base_url=address, timeout=60) as visitor:
        for _ in range(rounds):
            for page, measured in times.items():
                before, began = _cpu_seconds(process), time.perf_counter()
                response = await visitor.get(pages[page])
                measured.append(time.perf_counter() - began)
                work[page] += _cpu_seconds(process) - before
                assert response.status_code == 200, page
    for page, measured in times.items():
        ordered = sorted(measured)
        p95 = ordered[math.ceil(len(ordered) * 0.95) - 1]
        bars.tell(f"/{page}", p95 * 1_000, "ms", most=bar * 1_000)
        first, median, cpu = measured[0], ordered[len(ordered) // 2], work[page] / rounds
        print(
            f"  first {first * 1e3:.0f} ms, median {median * 1e3:.0f} ms, CPU {cpu * 1e3:.0f} ms on average"
        )


def _cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process so far, in seconds with a resolution of about 10 ms."""
    times = process.cpu_times()
    return float(times.user + times.system)


async def _watch(
    bars: Bars, seconds: int, client: redis.Redis, address: str, process: psutil.Process, viewers: int
) -> None:
    """Compare the work of Redis and of the process on an idle Redis, without and with viewers."""
    seen = await _look(seconds, client, address, process, viewers)
    if viewers:
        bars.tell(f"Redis with {viewers} viewers", 100 * seen.redis, "%", most=_REDIS_BAR * 100)
        bars.tell(f"one core with {viewers} viewers", 100 * seen.process, "%", most=_CPU_BAR * 100)
    else:
        # The INFO of the measurement is a command too.
        bars.tell("commands without viewers", seen.commands - 1, most=0)


async def _watch_loaded(
    bars: Bars, seconds: int, url: str, client: redis.Redis, address: str, process: psutil.Process
) -> None:
    """Compare without and with viewers while workers have half as many tasks as they can do."""
    rate = measure_capacity(url, client) / 2
    with steady_load(url, rate):
        alone = await _look(seconds, client, address, process, 0)
        client.config_set("slowlog-log-slower-than", _SLOW)
        client.slowlog_reset()
        waiting = count_waiting(client)
        watched = await _look(seconds, client, address, process, _VIEWERS)
        grown, slow = count_waiting(client) - waiting, client.slowlog_len()
    bars.tell(
        f"Redis with {_VIEWERS} viewers, loaded",
        100 * (watched.redis - alone.redis),
        "%",
        most=100 * _REDIS_BAR,
    )
    print(f"  {rate:,.0f} tasks a second; Redis {100 * alone.redis:.1f} % without viewers")
    bars.tell(f"one core with {_VIEWERS} viewers, loaded", 100 * watched.process, "%", most=100 * _CPU_BAR)
    bars.tell(
        "fewer tasks done with viewers", 100 * (1 - watched.tasks / alone.tasks), "%", most=100 * _LOSS_BAR
    )
    bars.tell("growth of the backlog", grown, most=rate * _BACKLOG_SECONDS)
    bars.tell("calls over 50 ms", slow, most=0)


async def _look(
    seconds: int, client: redis.Redis, address: str, process: psutil.Process, viewers: int
) -> Seen:
    """Return the work of Redis and of the dashboard's process for each second, while viewers watch."""
    async with _viewers(address, viewers) as streams:
        await asyncio.sleep(5)
        # The last command before the measured time, and the first one after it, is the INFO.
        tasks = count_processed(client)
        before, cpu, began = _redis_work(client), _cpu_seconds(process), time.monotonic()
        await asyncio.sleep(seconds)
        after, later, took = _redis_work(client), _cpu_seconds(process), time.monotonic() - began
        tasks = count_processed(client) - tasks
        assert not await _count_silent(streams), "viewers saw nothing"
    return Seen(
        after[0] - before[0],
        (after[1] - before[1]) / took,
        (later - cpu) / took,
        tasks / took,
    )


def _redis_work(client: redis.Redis) -> tuple[int, float]:
    info: dict[str, Any] = client.info("all")
    return int(info["total_commands_processed"]), info["used_cpu_user"] + info["used_cpu_sys"]


class _Stream:
    """The stream of a viewer: the status of its answer, and the number of its events so far."""

    def __init__(self) -> None:
        self.status = ""
        self.events = 0

    async def read(self, reader: asyncio.StreamReader) -> None:
        """Read until the server ends the stream."""
        self.status = (await reader.readline()).decode().strip()
        while line := await reader.readline():
            self.events += line.startswith(b"event: ")


@asynccontextmanager
async def _viewers(address: str, count: int) -> AsyncIterator[list[_Stream]]:
    """Hold streams of live pages open: the overview, the queues, the servers, and single queues."""
    pages = ("/", "/queues", "/servers", "/queues/queue-00001", "/queues/queue-00002")
    host, _, port = address.removeprefix("http://").rstrip("/").partition(":")
    streams = [_Stream() for _ in range(count)]
    readers = []
    for number, stream in enumerate(streams):
        reader, writer = await asyncio.open_connection(host, int(port), limit=_LONGEST_LINE)
        page = quote(pages[number % len(pages)], safe="")
        writer.write(f"GET /live?page={page} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        readers.append((asyncio.create_task(stream.read(reader)), writer))
    try:
        yield streams
    finally:
        for task, writer in readers:
            task.cancel()
            writer.close()
        await asyncio.gather(*(task for task, _ in readers), return_exceptions=True)


async def _count_silent(streams: Sequence[_Stream]) -> int:
    """Return how many streams are not answered by 200, or bring no event in time."""
    deadline = time.monotonic() + _EVENT_SECONDS
    while True:
        silent = [one for one in streams if not one.events or one.status != "HTTP/1.1 200 OK"]
        if not silent or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.1)
    for status, number in Counter(one.status or "no answer" for one in silent).items():
        print(f"  {number} without an event: {status}")
    return len(silent)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
