"""The command `pyasynq top`: the busiest queues or task types, live in a terminal."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._face_records.fields import Field, Kind, View
from pyasynq._face_records.queues import LIMIT_ABOUT, describe_load
from pyasynq._human_text import counted, duration
from pyasynq._visible_text import visible
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.cells import choose_fields
from pyasynq.cli.output.printer import has_color
from pyasynq.cli.output.table import Look, cut, table_lines
from pyasynq.errors import RedisError
from pyasynq.operations import find_declared_max_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.info import QueueInfo, ServerInfo
    from pyasynq.operations import Operator
    from pyasynq.telemetry import AttemptSeries

_INTERVAL: Final = 2.0
_HELP: Final = "q quit   p pause   s sort by the next column   r reverse   t queues or types"
_SERIES_SECONDS: Final = 120
_MINUTE: Final = 60

TOP_QUEUES: Final = View(
    "top-queues",
    "queue",
    (
        Field("queue", Kind.TEXT, "Name of the queue.", "QUEUE", shrinks=True),
        Field(
            "state",
            Kind.TEXT,
            "`running` or `paused`.",
            "STATE",
            color=lambda state: "yellow" if state == "paused" else None,
        ),
        Field("pending", Kind.COUNT, "Tasks that wait for a worker.", "PENDING"),
        Field("latency", Kind.DURATION, "Seconds that the oldest has waited.", "OLDEST", is_optional=True),
        Field("active", Kind.COUNT, "Tasks that run.", "ACTIVE"),
        Field("limit", Kind.COUNT, LIMIT_ABOUT, "LIMIT", is_optional=True),
        Field("rate", Kind.COUNT, "Attempts that ended a minute, lately.", "ENDED/MIN", is_optional=True),
        Field(
            "failed",
            Kind.COUNT,
            "Attempts that failed a minute, lately.",
            "FAILED/MIN",
            is_optional=True,
            color=lambda failed: "red" if failed else None,
        ),
        Field("retry", Kind.COUNT, "Failed tasks that wait for another try.", "RETRY", gives_way=True),
        Field("archived", Kind.COUNT, "Tasks that have failed for good.", "ARCH", gives_way=True),
    ),
    "No queues.",
)

TOP_TYPES: Final = View(
    "top-types",
    "type",
    (
        Field("type", Kind.TEXT, "Name of the type.", "TYPE", shrinks=True),
        Field("active", Kind.COUNT, "Attempts that run.", "ACTIVE"),
        Field("longest", Kind.DURATION, "Seconds that the oldest has run.", "LONGEST", is_optional=True),
        Field("rate", Kind.COUNT, "Attempts that ended a minute, where workers count.", "ENDED/MIN"),
        Field(
            "failed",
            Kind.COUNT,
            "Attempts that failed a minute, where workers count.",
            "FAILED/MIN",
            color=lambda failed: "red" if failed else None,
        ),
        Field("mean_run", Kind.DURATION, "Mean seconds of an attempt.", "MEAN RUN", is_optional=True),
        Field("mean_wait", Kind.DURATION, "Mean seconds of waiting.", "MEAN WAIT", is_optional=True),
    ),
    "Nothing runs, and no worker counts its attempts.",
)


@dataclass(frozen=True, slots=True)
class Sample:
    """Processed and failed totals of each queue at one moment; rates are computed from two samples."""

    at: float
    totals: Mapping[str, tuple[int, int]]


@dataclass(slots=True)
class Picture:
    """Selection and order of the rows that `top` shows; changed by keys.

    Attributes:
        is_of_types: whether task types are shown instead of queues.
        column: index of the field by which rows are sorted.
        is_reversed: whether the usual order of the column is reversed.
        is_paused: whether the rows are no longer updated.
    """

    is_of_types: bool = False
    column: int = 2
    is_reversed: bool = False
    is_paused: bool = False

    @property
    def view(self) -> View:
        """Fields of the rows: the fields of queues, or those of task types."""
        return TOP_TYPES if self.is_of_types else TOP_QUEUES

    def press(self, key: str) -> bool:
        """Handle a key press; return False if the user quits."""
        match key.lower():
            case "q":
                return False
            case "p" | " ":
                self.is_paused = not self.is_paused
            case "s":
                self.column = (self.column + 1) % len(self.view.fields)
            case "r":
                self.is_reversed = not self.is_reversed
            case "t" | "\t":
                self.is_of_types = not self.is_of_types
                self.column = 1 if self.is_of_types else 2
        return True

    def sort(self, records: Sequence[Record]) -> list[Record]:
        """Return the records sorted by the column: numbers descending, strings ascending, unless reversed."""
        name = self.view.fields[self.column].name
        is_text = self.view.fields[self.column].kind is Kind.TEXT

        def order(record: Record) -> Any:
            value = record[name]
            return value if is_text else (value is not None, value or 0)

        by_name = sorted(records, key=lambda record: record[self.view.key])
        return sorted(by_name, key=order, reverse=is_text == self.is_reversed)


@click.command(cls=OperatorCommand, examples=("pyasynq top", "pyasynq top --types", "pyasynq top -o json"))
@click.option("--types", is_flag=True, help="Show task types instead of queues.")
@click.option(
    "--sort",
    metavar="FIELD",
    help="Sort by this field, the largest first; pending tasks or running ones unless given.",
)
@operator_command
async def top(session: Session, sort: str | None, *, types: bool) -> None:
    """Show the busiest queues or task types, live. Without a terminal it prints once.

    Keys: q quits, p pauses, s sorts by the next column, r reverses the order, t changes to types and back.
    """
    from pyasynq.cli.output.screen import is_possible  # noqa: PLC0415 - help needs no screen

    picture = Picture(is_of_types=types, column=1 if types else 2)
    if sort is not None:
        [field] = choose_fields(picture.view, [sort], is_wide=True)
        picture.column = picture.view.fields.index(field)
    if session.printer.is_for_people and session.watch is None and is_possible():
        await _show_live(session, picture)
        return
    sample: Sample | None = None

    async def gather() -> list[Record]:
        nonlocal sample
        records, sample, _ = await _look(session.operator, picture, sample)
        return picture.sort(records)

    await session.show(picture.view, gather)


async def _show_live(session: Session, picture: Picture) -> None:
    from pyasynq.cli.output.screen import Screen  # noqa: PLC0415 - help needs no screen

    screen = Screen()
    # Read Redis before switching to the full screen, so that errors are printed as by any other
    # command.
    records, sample, head = await _look(session.operator, picture, None)
    due, shown_view = time.monotonic() + _INTERVAL, picture.view
    with screen.opened():
        while True:
            is_due = time.monotonic() >= due and not picture.is_paused
            if is_due or shown_view is not picture.view:
                try:
                    records, sample, head = await _look(session.operator, picture, sample)
                except RedisError as error:
                    head = f"{visible(error)}; trying again"
                due, shown_view = time.monotonic() + _INTERVAL, picture.view
            columns, lines = screen.size
            screen.draw(compose_screen(picture, records, head, columns=columns, lines=lines, session=session))
            key = await screen.wait_for_key(max(0.05, due - time.monotonic()))
            if not picture.press(key):
                return


def compose_screen(
    picture: Picture, records: Sequence[Record], head: str, *, columns: int, lines: int, session: Session
) -> list[str]:
    """Return the lines of the screen of `pyasynq top`, cut to the terminal's size."""
    field = picture.view.fields[picture.column]
    paused = "  paused" if picture.is_paused else ""
    order = f"by {field.name}{', reversed' if picture.is_reversed else ''}{paused}"
    clock = datetime.now().astimezone().strftime("%H:%M:%S")
    rows = picture.sort(records)[: max(0, lines - 5)]
    look = Look(width=columns, has_color=has_color(), drops=True)
    table = list(table_lines(list(picture.view.fields), rows, session.printer.moment(), look))
    if not rows:
        table = [picture.view.empty]
    return [
        cut(f"pyasynq top  {clock}  {order}  {visible(session.operator.address)}", columns),
        cut(head, columns),
        "",
        *table,
        *[""] * (lines - 4 - len(table)),
        click.style(cut(_HELP, columns), dim=True) if has_color() else cut(_HELP, columns),
    ]


async def _look(
    operator: Operator, picture: Picture, before: Sample | None
) -> tuple[list[Record], Sample | None, str]:
    """Read Redis; return the records, a sample from which the next rates are computed, and a summary line."""
    servers = await operator.servers(payloads=False)
    if picture.is_of_types:
        since = datetime.now(UTC) - timedelta(seconds=_SERIES_SECONDS)
        series = await operator.attempt_series(since=since, step=_MINUTE)
        return describe_busy_types(servers, series, datetime.now(UTC)), before, _describe_servers(servers)
    infos = await operator.queue_infos()
    sample = Sample(
        time.monotonic(), {info.queue: (info.processed_total, info.failed_total) for info in infos}
    )
    oldest = max((info.latency.total_seconds() for info in infos if info.pending), default=None)
    waits = "" if oldest is None else f", oldest {duration(oldest)}"
    head = (
        f"{counted(len(infos), 'queue')}: {sum(info.pending for info in infos):,} pending{waits}, "
        f"{sum(info.active for info in infos):,} active; {_describe_servers(servers)}"
    )
    declared = find_declared_max_run(servers)
    return [describe_busy_queue(info, declared, before, sample) for info in infos], sample, head


def _describe_servers(servers: Sequence[ServerInfo]) -> str:
    busy = sum(len(one.active_workers) for one in servers)
    slots = sum(one.concurrency for one in servers)
    return f"{counted(len(servers), 'server')}, {busy:,} of {counted(slots, 'slot')} busy"


def describe_busy_queue(
    info: QueueInfo, declared: Mapping[str, int], before: Sample | None, now: Sample
) -> Record:
    """Return the record of a queue; without an earlier sample its rates are None."""
    rate: int | None = None
    failed: int | None = None
    if before is not None and info.queue in before.totals and now.at > before.at:
        minutes = (now.at - before.at) / _MINUTE
        ended_before, failed_before = before.totals[info.queue]
        rate = round(max(0, info.processed_total - ended_before) / minutes)
        failed = round(max(0, info.failed_total - failed_before) / minutes)
    return {
        **describe_load(info),
        "limit": info.limits.max_run or declared.get(info.queue),
        "rate": rate,
        "failed": failed,
    }


def describe_busy_types(
    servers: Sequence[ServerInfo], series: Sequence[AttemptSeries], now: datetime
) -> list[Record]:
    """Return a record for each task type with running tasks, or with attempts in the last two minutes."""
    from pyasynq.telemetry import sum_counts  # noqa: PLC0415 - help needs no series

    active: Counter[str] = Counter()
    longest: dict[str, float] = {}
    for worker in (worker for server in servers for worker in server.active_workers):
        active[worker.task_type] += 1
        if worker.started is not None:
            ran = (now - worker.started).total_seconds()
            longest[worker.task_type] = max(longest.get(worker.task_type, 0.0), ran)
    minutes = _SERIES_SECONDS / _MINUTE
    records = []
    for name in {*active, *(one.type for one in series)}:
        counts = sum_counts(one.total for one in series if one.type == name)
        records.append(
            {
                "type": name,
                "active": active[name],
                "longest": longest.get(name),
                "rate": round(counts.ended / minutes),
                "failed": round(counts.failed / minutes),
                "mean_run": counts.mean_run,
                "mean_wait": counts.mean_wait,
            }
        )
    return records
