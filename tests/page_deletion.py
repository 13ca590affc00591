"""Delete many tasks from the dashboard, kill it halfway, go on in another process, and undo.

    python -m tests.page_deletion --tasks 100000

It starts a Redis of its own and two processes of `pyasynq web`, and asks them as a browser does.
Exit code 1: a count is wrong, or the undo does not restore every byte.
"""

from __future__ import annotations

import argparse
import html
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import httpx
import redis

from pyasynq._wire.keys import operation_key, queue_keys
from pyasynq.embedded import EmbeddedServer
from pyasynq.task import TaskState
from tests.factories import Tasks
from tests.invariants import check_invariants
from tests.operators_world import fill_one
from tests.ports import free_port
from tests.visiting import form_token
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.invariants import RedisClient

QUEUES: Final = {"mails": TaskState.PENDING, "labels": TaskState.ARCHIVED}
QUERY: Final = f"queue:{','.join(QUEUES)} state:pending,archived,scheduled"
LOCKED: Final = "locked"
"""Id of the task of each queue that holds a lock."""
SLOW_CALL: Final = 50_000
"""Microseconds that no call may take."""
_PATIENCE: Final = 300.0
_KEYS_AT_ONCE: Final = 2_000
_PROGRESS: Final = re.compile(r"([\d,]+) of ([\d,]+) done")
_OPERATION: Final = re.compile(r'href="[^"]*(operations/[0-9a-f]+)"')
_HEADING: Final = re.compile(r"<h1>Delete (at least )?[\d,]+ tasks\?</h1>")
"""A busy machine may not read all tasks in the time of a preview."""
_UNDO: Final = re.compile(r"Put back ([\d,]+) tasks")


@dataclass(frozen=True, slots=True)
class Journey:
    """The figures of one run."""

    tasks: int
    seen_before_kill: tuple[int, ...]
    """Numbers of deleted tasks that the page showed while the first process lived."""
    seen_after_kill: tuple[int, ...]
    """The same, in the second process."""
    deleted_at_kill: int
    """Number of deleted tasks in the record when the first process was dead."""
    interrupted_after: float
    """Seconds from the kill until the page offered to go on."""
    deleting: float
    """Seconds in which the two processes deleted."""
    undoing: float
    """Seconds of the undo."""
    slow_calls: int
    """Number of calls of Redis above 50 ms, as far as SLOWLOG keeps them (128)."""


class Site:
    """A process of `pyasynq web`, with a visitor."""

    def __init__(self, process: subprocess.Popen[bytes], address: str) -> None:
        self.process = process
        self.visitor = httpx.Client(base_url=address, timeout=_PATIENCE)

    def is_up(self) -> bool:
        """Return whether it answers."""
        try:
            return self.visitor.get("help").status_code == 200
        except httpx.TransportError:
            return False

    def send(self, page: str, path: str, **values: str) -> httpx.Response:
        """Send a form with the token of a page, and follow to the page that answers."""
        token = form_token(self.visitor.get(page).text)
        return self.visitor.post(
            path,
            data={"csrf": token, **values},
            headers={"sec-fetch-site": "same-origin"},
            follow_redirects=True,
        )

    def watch(self, operation: str) -> Iterator[int]:
        """Yield the numbers of finished tasks that the live page of an operation shows."""
        with self.visitor.stream("GET", "live", params={"page": f"/{operation}"}) as stream:
            for line in stream.iter_lines():
                if found := _PROGRESS.search(line):
                    yield number_of(found[1])


@contextmanager
def serve(redis_url: str) -> Iterator[Site]:
    """Start a dashboard; kill it in the end if it still runs."""
    port = free_port()
    command = [sys.executable, "-m", "pyasynq", "web", "--redis", redis_url, "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        site = Site(process, f"http://127.0.0.1:{port}/")
        try:
            wait_until(site.is_up, "the dashboard answers", seconds=_PATIENCE)
            yield site
        finally:
            site.visitor.close()
            process.kill()


def number_of(text: str) -> int:
    """Return the number in a text such as `1,000`."""
    return int(text.replace(",", ""))


def fill(client: RedisClient, number: int) -> int:
    """Put tasks into two queues, one with a lock in each; return how many there are."""
    for queue, state in QUEUES.items():
        fill_one(client, queue, state, number // len(QUEUES) - 1)
        lock = queue_keys(queue).unique("mail", b"{}")
        Tasks(client, queue).put(TaskState.SCHEDULED, LOCKED, unique_key=lock)
    return number // len(QUEUES) * len(QUEUES)


def read_tasks(client: RedisClient) -> dict[bytes, Any]:
    """Return all keys of the queues with type, value and whether they expire; undo records are left out."""
    single: Any = client
    kept: dict[bytes, Any] = {}
    keys = (key for key in single.scan_iter("asynq:{*", count=_KEYS_AT_ONCE) if b"}:x:" not in key)
    while part := list(islice(keys, _KEYS_AT_ONCE)):
        pipeline = single.pipeline(transaction=False)
        for key in part:
            pipeline.type(key).ttl(key)
        answers = pipeline.execute()
        read = {
            b"hash": pipeline.hgetall,
            b"set": pipeline.smembers,
            b"string": pipeline.get,
            b"list": partial(pipeline.lrange, start=0, end=-1),
            b"zset": partial(pipeline.zrange, start=0, end=-1, withscores=True),
        }
        for key, kind in zip(part, answers[::2], strict=True):
            read[kind](key)
        for key, ttl, value in zip(part, answers[1::2], pipeline.execute(), strict=True):
            kept[key] = (ttl >= 0, value)
    return kept


def run(
    client: RedisClient, url: str, number: int, *, rate: str = "", shorten_lease: bool = False
) -> Journey:
    """Make the whole journey; fail if a count is wrong or a byte is missing in the end.

    Args:
        client: of the Redis.
        url: of the same Redis.
        number: of tasks; even.
        rate: largest number of deletions a second, as a person types it; empty for no limit.
        shorten_lease: let the lease of the killed process lapse at once, not after 15 seconds.
    """
    total = fill(client, number)
    before = read_tasks(client)
    single: Any = client
    single.config_set("slowlog-log-slower-than", SLOW_CALL)
    single.slowlog_reset()
    with ExitStack() as stack:
        first, second = (stack.enter_context(serve(url)) for _ in range(2))
        operation = _start(first, total, rate)
        seen, at_kill, killed, began = _kill_halfway(first, client, operation, total)
        first_seconds = killed - began
        if shorten_lease:
            single.hset(operation_key(operation.rpartition("/")[2]), "lease", 0)
        wait_until(
            lambda: "Interrupted" in second.visitor.get(operation).text, "Interrupted", seconds=_PATIENCE
        )
        resumed = time.monotonic()
        second.send("settings", f"{operation}/continue")
        seen_after, ended = _watch_to_end(second, client, operation, total)
        deleting = first_seconds + ended - resumed
        slow_calls = single.slowlog_len()
        page = wait_for_page(second, operation, _UNDO)
        found = _UNDO.search(page)
        assert found, page
        assert f"{total:,} of {total:,} done" in page
        assert "left as they were" not in page
        assert (total, {}) == (number_of(found[1]), read_tasks(client))
        check_invariants(client, max_archived=number)
        # What was read and checked meanwhile does not count.
        single.slowlog_reset()
        undo_began = time.monotonic()
        answer = second.send(operation, f"{operation}/undo")
        undoing = "operations/" + str(answer.url).rpartition("/")[2]
        assert operation != undoing
        _, ended = _watch_to_end(second, client, undoing, total)
        undo_seconds = ended - undo_began
        slow_calls += single.slowlog_len()
        assert "left as they were" not in wait_for_page(second, undoing, re.compile("Done"))
    assert before == read_tasks(client)
    check_invariants(client, max_archived=number)
    return Journey(
        tasks=total,
        seen_before_kill=tuple(seen),
        seen_after_kill=tuple(seen_after),
        deleted_at_kill=at_kill,
        interrupted_after=resumed - killed,
        deleting=deleting,
        undoing=undo_seconds,
        slow_calls=slow_calls,
    )


def _start(site: Site, total: int, rate: str) -> str:
    """Preview and confirm the deletion; return the path of the operation's page."""
    preview = site.visitor.get("bulk", params={"act": "delete", "q": QUERY})
    assert _HEADING.search(preview.text), "the page does not preview a deletion"
    site.send(
        "settings", "bulk", act="delete", q=QUERY, reason="page deletion", confirm=str(total), rate=rate
    )
    found = _OPERATION.search(site.visitor.get("operations").text)
    assert found, "the page lists no operation"
    return html.unescape(found[1])


def _kill_halfway(
    site: Site, client: RedisClient, operation: str, total: int
) -> tuple[list[int], int, float, float]:
    """Kill the process when its page shows a quarter; return that progress, the record's, and two moments."""
    began = time.monotonic()
    seen = []
    for done in site.watch(operation):
        seen.append(done)
        if done >= total // 4:
            break
    site.process.kill()
    site.process.wait()
    killed = time.monotonic()
    done = _number_done(client, operation)
    assert 0 < done < total, f"it was too late to kill the process: {done:,} of {total:,} tasks were deleted"
    return seen, done, killed, began


def _watch_to_end(site: Site, client: RedisClient, operation: str, total: int) -> tuple[list[int], float]:
    """Watch an operation until its live page shows all tasks.

    Returns:
        the numbers that the page showed, and the moment at which the record had all tasks.
        The page shows them later, with its next refresh.
    """
    with ThreadPoolExecutor(1) as executor:
        watching = executor.submit(_watch_page, site, operation, total)
        wait_until(lambda: _number_done(client, operation) == total, f"all of {operation}", seconds=_PATIENCE)
        ended = time.monotonic()
        return watching.result(), ended


def _watch_page(site: Site, operation: str, total: int) -> list[int]:
    """Watch the live page of an operation until it shows all tasks; return the numbers that it showed."""
    seen = []
    for done in site.watch(operation):
        seen.append(done)
        if done == total:
            break
    assert sorted(seen) == seen
    return seen


def _number_done(client: RedisClient, operation: str) -> int:
    """Return the number of finished tasks in the record of an operation."""
    single: Any = client
    return int(single.hget(operation_key(operation.rpartition("/")[2]), "done") or 0)


def wait_for_page(site: Site, path: str, expected: re.Pattern[str]) -> str:
    """Read a page until it has a text; return it."""
    wait_until(lambda: expected.search(site.visitor.get(path).text), expected.pattern, seconds=_PATIENCE)
    return site.visitor.get(path).text


def main() -> None:
    """Run one journey, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    number = parser.parse_args().tasks
    with EmbeddedServer() as server:
        client = redis.Redis(unix_socket_path=server.url.removeprefix("unix://").partition("?")[0])
        journey = run(client, server.url, number)
    for field in fields(journey):
        print(f"{field.name.replace('_', ' '):20} {getattr(journey, field.name)}")
    print(f"{'deleted a second':20} {journey.tasks / journey.deleting:,.0f}")


if __name__ == "__main__":
    main()
