"""Workers by all transports on one task type, under kills and live changes: its limit holds.

    PYTHONPATH=src:. python -m tests.chaos.service_limits [--ordered] [--tasks 20000] [--seed 1]

Two instances of the task service and eight workers: two servers, two of the SDK over Redis, two over HTTP,
and two that lease over HTTP by hand. Every second one of the ten is killed, and `max_run` changes. A journal
in Redis has the begin and the end of each task by the clock of Redis. With `--ordered` the type is ordered:
one task after another, in the order of their enqueues. Exit code 1 on any violation.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import redis

from pyasynq.client import Client
from pyasynq.embedded import EmbeddedServer
from pyasynq.task import Task
from tests.chaos.fleet import Fleet
from tests.chaos.instances import count_unfinished, make_instance, wait_until_ready
from tests.chaos.limited_app import JOURNAL, NOTE, QUEUE
from tests.chaos.limits import Note, read_journal
from tests.invariants import violations
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.invariants import RedisClient

TRANSPORTS: Final = ("app", "redis", "http", "leases")
LIMITS: Final = (3, 6, 2, 4)
ORDERED: Final = {"ordered": True}
PATIENCE_SECONDS: Final = 1_800.0
_SETTLED_MICROSECONDS: Final = 2_000_000
"""Time after a change in which a task may begin that was taken by the limit before it."""
_MILLISECONDS: Final = 20


def find_excess(journal: list[Note]) -> list[str]:
    """Return a sentence for each begin with more tasks at once than the limit allows."""
    faults = []
    limits: list[tuple[int, int]] = []
    running: set[tuple[int, str]] = set()
    for note in journal:
        if note.what == "limit":
            limits.append((note.at, note.pid))
        elif note.what == "kill":
            running = {one for one in running if one[0] != note.pid}
        elif note.what == "end":
            running.discard((note.pid, note.task))
        else:
            running.add((note.pid, note.task))
            now = limits[-1][1]
            recent = [limit for at, limit in limits[-2:] if note.at - limits[-1][0] < _SETTLED_MICROSECONDS]
            if len(running) > max([now, *recent]):
                faults.append(f"{len(running)} at once at {note.at}, allowed {now}")
    return faults


def find_disorder(journal: list[Note]) -> list[str]:
    """Return a sentence for each task that began after a later one."""
    begins = [int(note.task) for note in journal if note.what == "begin"]
    return [f"{two} began after {one}" for one, two in pairwise(begins) if two < one]


def find_unexplained(journal: list[Note]) -> list[str]:
    """Return the tasks that ended more often than kills explain."""
    ends: dict[str, int] = {}
    for note in journal:
        if note.what == "end":
            ends[note.task] = ends.get(note.task, 0) + 1
    again = [task for task, number in ends.items() if number > 1]
    kills = sum(note.what == "kill" for note in journal)
    # Each kill meets at most the tasks that ran then: a worker's, or all that an instance had leased out.
    return [f"{len(again)} tasks ran again, {kills} kills"] if len(again) > kills * max(LIMITS) else []


async def enqueue(url: str, tasks: int) -> None:
    """Put tasks into the queue that take a few milliseconds."""
    numbers = random.Random(tasks)
    async with Client(url) as client:
        made = await client.enqueue_many(
            Task(
                QUEUE,
                b'{"milliseconds": %d}' % numbers.randint(0, _MILLISECONDS),
                queue=QUEUE,
                task_id=str(number),
                max_retry=1_000,
                timeout=60,
            )
            for number in range(tasks)
        )
    assert all(made)


def run(url: str, folder: Path, tasks: int, numbers: random.Random, limit: Mapping[str, int]) -> list[Note]:
    """Run all tasks under kills and changes, and return the journal."""
    client: RedisClient
    with ExitStack() as stack:
        client = stack.enter_context(redis.Redis.from_url(url))
        ports = [free_port(), free_port()]
        services = [stack.enter_context(_start_service(url, folder, port, limit)) for port in ports]
        for port in ports:
            wait_until_ready(port)
        client.eval(NOTE, 1, JOURNAL, "limit", "-", "1" if limit == ORDERED else str(LIMITS[0]))
        asyncio.run(enqueue(url, tasks))
        workers = [
            stack.enter_context(_start_worker(transport, url, port, folder))
            for transport in TRANSPORTS
            for port in ports
        ]
        deadline = time.monotonic() + PATIENCE_SECONDS
        turn = 0
        while left := count_unfinished(client, [QUEUE]):
            if time.monotonic() > deadline:
                raise SystemExit(f"{left} tasks are left after {PATIENCE_SECONDS:.0f} s")
            print(f"\r{left:,} of {tasks:,} tasks are left ", end="", file=sys.stderr, flush=True)
            time.sleep(1.0)
            turn += 1
            _kill_one(client, numbers.choice([*services, *workers]))
            if turn % 3 == 0 and limit != ORDERED:
                _change_limit(client, ports, LIMITS[turn // 3 % len(LIMITS)])
        journal = read_journal(client)
    print(file=sys.stderr)
    return journal


def _start_service(url: str, folder: Path, port: int, limit: Mapping[str, int]) -> Fleet:
    service = {"redis": url, "listen": f"127.0.0.1:{port}", "dashboard": False}
    task_type = {**limit, "max_retry": 1_000, "managed": "api"}
    return make_instance({"service": service, "tasks": {QUEUE: task_type}}, folder)


def _start_worker(transport: str, url: str, port: int, folder: Path) -> Fleet:
    arguments = [transport, url, f"http://127.0.0.1:{port}"]
    return Fleet(1, arguments, {}, folder / "log", program="tests.chaos.service_worker")


def _kill_one(client: RedisClient, fleet: Fleet) -> None:
    pids = fleet.pids()
    if not pids:
        return
    fleet.kill(pids[0])
    client.eval(NOTE, 1, JOURNAL, "kill", "-", str(pids[0]))


def _change_limit(client: RedisClient, ports: list[int], limit: int) -> None:
    """Change the limit by an instance that lives; a raise is noted before, so that no begin is earlier."""
    for port in ports:
        try:
            address = f"http://127.0.0.1:{port}/v1/task-types/{QUEUE}"
            before: dict[str, Any] = httpx.get(address).json()
            if limit > before["max_run"]:
                client.eval(NOTE, 1, JOURNAL, "limit", "-", str(limit))
            httpx.patch(address, json={"max_run": limit}).raise_for_status()
        except (httpx.HTTPError, KeyError):
            continue
        client.eval(NOTE, 1, JOURNAL, "limit", "-", str(limit))
        return


def main() -> int:
    """Run it, print the figures, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ordered", action="store_true")
    arguments = parser.parse_args()
    begun = time.monotonic()
    with EmbeddedServer() as server, tempfile.TemporaryDirectory(prefix="pyasynq-chaos-") as name:
        limit: Mapping[str, int] = ORDERED if arguments.ordered else {"max_run": LIMITS[0]}
        journal = run(server.url, Path(name), arguments.tasks, random.Random(arguments.seed), limit)
        with redis.Redis.from_url(server.url) as client:
            faults = violations(client)
    faults += find_excess(journal) + find_unexplained(journal)
    faults += find_disorder(journal) if arguments.ordered else []
    ran = len({note.task for note in journal if note.what == "end"})
    if ran != arguments.tasks:
        faults.append(f"{arguments.tasks - ran} tasks never ran")
    ends = sum(note.what == "end" for note in journal)
    kills = sum(note.what == "kill" for note in journal)
    changes = sum(note.what == "limit" for note in journal)
    print(
        f"{ran:,} tasks ran by {len(TRANSPORTS)} transports in {time.monotonic() - begun:.0f} s, "
        f"{ends - ran} of them again; {kills} kills, {changes} changes of max_run"
    )
    for fault in faults[:20]:
        print(f"  VIOLATION: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
