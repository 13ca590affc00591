"""Measure what operators do on a large Redis, and compare each figure with its limit.

    python -m tests.operators_scale [--share 0.1] [--only search]

It starts a server of its own and fills it: 1,000 queues with a million tasks, hostile ones among them.
One queue more has a million archived tasks, one a million pending tasks, and one 200,000 groups.
That takes about a minute and 2.5 GB. Each measurement is made three times, and the best one counts,
because other programs take the processor away from Redis now and then.
The limit of a call is longer on a machine whose memory is slow: some calls walk past half a million ids.
Exit code 1: a figure is over its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import redis
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pyasynq import sync
from pyasynq.embedded import find_server_binary
from pyasynq.metrics import QueueMetrics
from pyasynq.operations import OperationInfo, Targets, User
from pyasynq.operations import sync as operations
from pyasynq.operations.query import parse_query
from pyasynq.operations.sync.select import Selector
from pyasynq.task import TaskState
from tests.operators_world import fill, fill_groups, fill_one
from tests.slow_calls import LIMIT, WALK_SECONDS, measure_walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyasynq.operations.selection import Selection

ROUNDS: Final = 3
_SLOWLOG: Final = 2_000
"""Microseconds from which SLOWLOG records a call."""
_START_SECONDS: Final = 20.0
ARCHIVE: Final = "many-archived"
WAITING: Final = "many-pending"
GROUPS: Final = "many-groups"

FIRST: Final = 0.3
"""Seconds until the first hits of a search are shown."""
SEARCH: Final = 1.0
"""Seconds of a search that times bound."""
WHOLE: Final = 2.2
"""Seconds of a search whose budget of two seconds is spent."""
_OVER: Final = "over"


@dataclass(frozen=True, slots=True)
class Work:
    """A measured action of an operator, and its limits.

    Attributes:
        name: what it is, in words.
        run: does it; what it returns is the seconds that count, None for those from start to end.
        seconds: limit of these; None for none.
        busy: limit of the seconds that Redis works.
        rounds: how often it is done; the best one counts.
    """

    name: str
    run: Callable[[], float | None]
    seconds: float | None = None
    busy: float | None = None
    rounds: int = ROUNDS


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds that a work took and scripts ran, its commands, and milliseconds of the longest call."""

    seconds: float
    busy: float
    calls: int
    longest: float


class Scale:
    """Measurements on one large Redis."""

    def __init__(self, client: redis.Redis, url: str, share: float) -> None:
        self._client: Any = client
        self._inspector = sync.Inspector(url, timeout=30)
        self._url = url
        self._operator = operations.Operator(url, User.with_role("root", "admin"))
        self._drawn = random.Random(5)
        self._share = share

    def close(self) -> None:
        """Close the connections."""
        self._inspector.close()
        self._operator.close()

    def fill(self) -> str:
        """Fill Redis; return what is in it."""
        million = int(1_000_000 * self._share)
        world = fill(self._client, queues=int(1_000 * self._share), tasks=million, deep=0.5)
        fill_one(self._client, ARCHIVE, TaskState.ARCHIVED, million)
        fill_one(self._client, WAITING, TaskState.PENDING, million)
        groups = int(200_000 * self._share)
        fill_groups(self._client, GROUPS, groups)
        self._deep = world.queues[-1]
        return (
            f"{len(world.queues):,} queues with {world.tasks:,} tasks, queues with {million:,} archived and "
            f"{million:,} pending tasks, and one with {groups:,} groups"
        )

    def works(self) -> Iterator[Work]:
        """Yield everything that is measured."""
        yield from self._views()
        yield from self._reports()
        yield from self._searches()
        yield from self._changes()

    def _views(self) -> Iterator[Work]:
        inspector = self._inspector
        yield Work("queue_infos of all queues", lambda: _void(inspector.queue_infos()), 0.25, 0.03)
        yield Work("scrape of all queues", self._scrape, 0.15, 0.03)
        yield Work("list queues and servers", lambda: _void((inspector.queues(), inspector.servers())))
        yield Work("task types", lambda: _void(inspector.task_types()))
        for queue, state in ((ARCHIVE, "archived"), (WAITING, "pending"), (self._deep, "archived")):
            yield Work(f"10 pages of {queue} {state}", partial(self._pages, queue, state), FIRST)
            yield Work(
                f"an old page of {queue} {state}",
                partial(self._old_page, queue, state),
                FIRST,
            )
        yield Work("memory of a queue", lambda: _void(inspector.queue_memory(ARCHIVE)))
        yield Work("a page of 200,000 groups", lambda: _void(inspector.group_page(GROUPS)), FIRST)
        yield Work("all 200,000 groups", lambda: _void(inspector.groups(GROUPS)))

    def _scrape(self) -> None:
        async def scrape() -> None:
            async with QueueMetrics(self._url, share=0) as metrics:
                await metrics.render()

        asyncio.run(scrape())

    def _pages(self, queue: str, state: str) -> None:
        cursor = ""
        for _ in range(10):
            cursor = self._inspector.walk_tasks(queue, state, cursor=cursor).cursor

    def _old_page(self, queue: str, state: str) -> None:
        self._inspector.list_tasks(queue, state, page=5_000, page_size=30)

    def _type_report(self, queue: str) -> None:
        self._inspector.type_report(queue, scan=5_000)

    def _explain(self, text: str) -> None:
        self._operator.explain_search(text)

    def _delete_by_ids(self, number: int) -> float:
        ids = self._draw(number)
        began = time.monotonic()
        self._inspector.delete_tasks(WAITING, ids)
        return time.monotonic() - began

    def _delete_drawn(self, number: int) -> None:
        self._delete(self._draw(number))

    def _reports(self) -> Iterator[Work]:
        inspector = self._inspector
        hour = datetime.now(UTC) - timedelta(hours=1)
        yield Work("error report", lambda: _void(inspector.error_report(ARCHIVE)))
        yield Work("error report of an hour", lambda: _void(inspector.error_report(ARCHIVE, since=hour)))
        yield Work("error report of a damaged queue", lambda: _void(inspector.error_report(self._deep)))
        for queue in (ARCHIVE, WAITING, GROUPS):
            yield Work(f"type report of {queue}", partial(self._type_report, queue))

    def _searches(self) -> Iterator[Work]:
        for text in (
            "",
            "type:report:*",
            "error:timeout",
            "retried:>3",
            "-type:image:resize",
            "size:>20",
            "payload.customer.tier:gold",
            "state:pending waiting:>1m",
            "state:aggregating group:group-19*",
        ):
            yield Work(f"first hits of `{text}`", partial(self._first, text), FIRST)
        of_archive = f"queue:{ARCHIVE} archived:<1h"
        for text in (
            f"{of_archive} error:nothing",
            f"{of_archive} payload.user_id:1",
            f"{of_archive} payload.customer.tier:silver",
            f"{of_archive} retried:>24",
            f"{of_archive} size:>100kB",
            f"{of_archive} type:nothing*",
        ):
            yield Work(f"all of `{text}`", partial(self._all, text), SEARCH)
        for text in ("payload.user_id:1", "waiting:>1m payload.user_id:1", f"queue:{GROUPS} nope", "nope"):
            yield Work(f"two seconds of `{text}`", partial(self._all, text), WHOLE)
            yield Work(f"explain `{text}`", partial(self._explain, text), FIRST)
        query = f"queue:{ARCHIVE} archived:<1h payload.user_id:1"
        yield Work(f"the inspector's `{query}`", lambda: self._all_unredacted(query), SEARCH)

    def _first(self, text: str) -> float:
        """Return the seconds until the first selection with tasks."""
        began = time.monotonic()
        for selection in self._operator.search(text):
            if selection.tasks:
                return time.monotonic() - began
        raise AssertionError(f"{text} has found nothing")

    def _all(self, text: str) -> None:
        for _ in self._operator.search(text):
            pass

    def _all_unredacted(self, text: str) -> None:
        selections: Iterator[Selection] = Selector(self._inspector).pages(parse_query(text))
        for _ in selections:
            pass

    def _changes(self) -> Iterator[Work]:
        inspector = self._inspector
        for number in (1, 200, 10_000):
            yield Work(
                f"delete {number:,} of {WAITING} by ids",
                partial(self._delete_by_ids, number),
            )
        yield Work(
            f"archive 200 of {WAITING} by ids",
            lambda: _void(inspector.archive_tasks(WAITING, self._draw(200), trim=True)),
        )
        for number in (200, 10_000):
            yield Work(f"operation deletes {number:,} anywhere", partial(self._delete_drawn, number))
        yield Work("undo of 200 anywhere", lambda: self._undo(self._draw(200)))
        yield Work("undo of 200 of the newest", lambda: self._undo(self._ids(0, 199)))
        yield Work("undo of 200 of the oldest", lambda: self._undo(self._ids(-200, -1)))
        # Times instead of ages: a task must not leave the range before the number is confirmed.
        first, last = (f"{datetime.now(UTC) - timedelta(minutes=ago):%Y-%m-%dT%H:%MZ}" for ago in (100, 60))
        text = f"queue:{ARCHIVE} archived:{first}..{last} type:email:*"
        yield Work(f"operation deletes all of `{text}`, and undo", lambda: self._by_query(text), rounds=1)
        yield Work("delete all pending", lambda: _void(inspector.delete_all(WAITING, "pending")), rounds=1)
        yield Work(
            "delete a queue with 200,000 groups",
            lambda: _void(inspector.remove_queue(GROUPS, force=True)),
            rounds=1,
        )

    def _ids(self, first: int, last: int) -> list[str]:
        key = f"asynq:{{{WAITING}}}:pending"
        return [task_id.decode() for task_id in self._client.lrange(key, first, last)]

    def _draw(self, number: int) -> list[str]:
        length = self._client.llen(f"asynq:{{{WAITING}}}:pending")
        places = self._drawn.sample(range(length), min(number, length // 20))
        pipeline = self._client.pipeline(transaction=False)
        for place in places:
            pipeline.lindex(f"asynq:{{{WAITING}}}:pending", place)
        return [task_id.decode() for task_id in pipeline.execute()]

    def _delete(self, ids: Sequence[str]) -> OperationInfo:
        targets = Targets({WAITING: ids})
        started = self._operator.start_operation("delete", targets, reason="scale", confirm=len(ids))
        return self._operator.run_operation(started.operation)

    def _undo(self, ids: Sequence[str]) -> float:
        self._client.config_resetstat()
        deleted = self._delete(ids)
        began = time.monotonic()
        undone = self._operator.run_operation(self._operator.undo_operation(deleted.operation).operation)
        assert (len(ids), len(ids)) == (deleted.done, undone.done)
        return time.monotonic() - began

    def _by_query(self, text: str) -> None:
        number = self._operator.preview_operation("delete", Targets(query=text)).total
        started = self._operator.start_operation(
            "delete", Targets(query=text), reason="scale", confirm=number
        )
        deleted = self._operator.run_operation(started.operation)
        undone = self._operator.run_operation(self._operator.undo_operation(deleted.operation).operation)
        assert undone.done == deleted.undoable

    def measure(self, work: Work) -> Figures:
        """Return the best figures of some rounds, each by itself."""
        rounds = [self._measure_once(work) for _ in range(work.rounds)]
        return Figures(
            min(one.seconds for one in rounds),
            min(one.busy for one in rounds),
            min(one.calls for one in rounds),
            min(one.longest for one in rounds),
        )

    def _measure_once(self, work: Work) -> Figures:
        client = self._client
        client.config_resetstat()
        client.slowlog_reset()
        began = time.monotonic()
        seconds = work.run()
        seconds = time.monotonic() - began if seconds is None else seconds
        stats = client.info("commandstats")
        # Commands of scripts are counted in the scripts as well.
        outer = {
            name: one
            for name, one in stats.items()
            if not name.startswith(("cmdstat_config", "cmdstat_slowlog"))
        }
        scripts = sum(one["usec"] for name, one in outer.items() if "eval" in name)
        longest = max((entry["duration"] for entry in client.slowlog_get(1_000)), default=_SLOWLOG)
        return Figures(seconds, scripts / 1e6, sum(one["calls"] for one in outer.values()), longest / 1e3)


def _void(_: object) -> None:
    """Discard the argument, and return None."""


@contextmanager
def _server() -> Iterator[tuple[redis.Redis, str]]:
    """Start a server in memory; yield a client and the URL."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "redis.sock"
        settings = {
            "port": "0",
            "unixsocket": str(path),
            "save": "",
            "dir": folder,
            "slowlog-log-slower-than": str(_SLOWLOG),
            "slowlog-max-len": "10000",
        }
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        process = subprocess.Popen([str(find_server_binary().path), *words], stdout=subprocess.DEVNULL)
        try:
            client = redis.Redis(unix_socket_path=str(path), socket_timeout=120)
            ends = time.monotonic() + _START_SECONDS
            while not path.exists() and time.monotonic() < ends:
                time.sleep(0.05)
            client.ping()
            yield client, f"unix://{path}"
        finally:
            process.kill()
            process.wait()


def _is_over(work: Work, figures: Figures, longest: float) -> bool:
    return (
        figures.longest > longest
        or (work.seconds is not None and figures.seconds > work.seconds)
        or (work.busy is not None and figures.busy > work.busy)
    )


def format_row(work: Work, figures: Figures, longest: float) -> tuple[str, ...]:
    """Return the cells of a work: each figure with its limit, and whether one is over it."""

    def limited(value: str, limit: float | None, unit: str) -> str:
        return value if limit is None else f"{value} of {limit:g}{unit}"

    return (
        work.name,
        limited(f"{figures.seconds:.2f} s", work.seconds, " s"),
        limited(f"{figures.busy * 1_000:.0f} ms", work.busy and work.busy * 1_000, " ms"),
        f"{figures.calls:,}",
        f"{figures.longest:.1f} ms of {longest:.0f}",
        _OVER if _is_over(work, figures, longest) else "",
    )


def main(arguments: Sequence[str]) -> int:
    """Measure, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(description="Measure what operators do on a large Redis.")
    parser.add_argument("--share", type=float, default=1.0, help="how much of it all to fill in")
    parser.add_argument("--only", default="", help="only what has this text in its name")
    asked = parser.parse_args(arguments)
    console = Console(width=150, emoji=False)
    table = Table("work", "time", "scripts in Redis", "commands", "longest call", "")
    over = 0
    with _server() as (client, url):
        scale = Scale(client, url, asked.share)
        console.print(f"{find_server_binary()}: {scale.fill()}")
        walk = measure_walk(client)
        longest = LIMIT / 1_000 * max(1.0, walk / WALK_SECONDS)
        console.print(
            f"Redis walks past 100,000 ids in {walk * 1_000:.1f} ms, so a call may take {longest:.0f} ms"
        )
        for work in scale.works():
            if asked.only not in work.name:
                continue
            figures = scale.measure(work)
            over += _is_over(work, figures, longest)
            row = format_row(work, figures, longest)
            # Texts, because rich reads brackets in strings, such as those of a query, as markup.
            table.add_row(*(Text(cell, "red" if cell == _OVER else "") for cell in row))
            sys.stderr.write("  ".join(row) + "\n")
            sys.stderr.flush()
        scale.close()
    console.print(table)
    console.print(f"{over} over their limits" if over else "all within their limits")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
