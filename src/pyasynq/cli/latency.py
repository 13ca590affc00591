"""The command `pyasynq latency`: waits and durations of tasks, from the statistics of workers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from pyasynq._face_records.statistics import LATENCY, NOTHING_COUNTED, SERIES, describe_point, describe_series
from pyasynq._human_text import counted, duration
from pyasynq._visible_text import visible
from pyasynq.cli.actions import DURATION
from pyasynq.cli.completion import complete_queues, complete_types
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.progress import bar
from pyasynq.telemetry import ATTEMPT_SECONDS, AttemptCounts, sum_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.telemetry import AttemptSeries, Histogram

_TEN_MINUTES: Final = 600
_DAY: Final = 86_400
_TEN_MINUTES_KEPT: Final = 72 * 3_600
"""Seconds for which statistics are kept in steps of ten minutes; daily statistics are kept longer."""
_BAR_CELLS: Final = 30


@click.command(
    cls=OperatorCommand,
    examples=(
        "pyasynq latency",
        "pyasynq latency mail --since 24h -o wide",
        "pyasynq latency mail --type email:deliver --histogram",
        "pyasynq latency mail --series -o csv",
    ),
)
@click.argument("queues", metavar="[QUEUE]...", nargs=-1, shell_complete=complete_queues)
@click.option(
    "--type",
    "types",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_types,
    help="Only this type; may be repeated.",
)
@click.option(
    "--since", type=DURATION, default="1h", show_default=True, help="How far to look back, to 90 days."
)
@click.option("--series", "as_series", is_flag=True, help="Print each ten minutes, or each day, by itself.")
@click.option("--histogram", is_flag=True, help="Draw how run times and waits are spread, for people.")
@operator_command
async def latency(
    session: Session,
    queues: Sequence[str],
    types: Sequence[str],
    since: float,
    *,
    as_series: bool,
    histogram: bool,
) -> None:
    """Show how long tasks waited and ran, by queue and type, from statistics of pyasynq workers."""

    async def read() -> list[AttemptSeries]:
        return await session.operator.attempt_series(
            queues or None,
            since=datetime.now(UTC) - timedelta(seconds=since),
            step=_TEN_MINUTES if since <= _TEN_MINUTES_KEPT else _DAY,
            types=types or None,
        )

    async def gather() -> list[Record]:
        found = await read()
        if as_series:
            return [
                describe_point(series, point)
                for series in found
                for point in sorted(series.points, key=lambda one: one.at)
            ]
        return describe_series(found)

    if histogram and session.printer.is_for_people:
        counts = sum_counts(one.total for one in await read())
        where = ", ".join(map(visible, (*queues, *types))) or "all queues"
        click.echo(draw_histograms(counts, where), nl=False)
        return
    await session.show(SERIES if as_series else LATENCY, gather)


def draw_histograms(counts: AttemptCounts, where: str) -> str:
    """Return histograms of wait times and run times as text; `where` names their queues and types."""
    if not counts.ended:
        return f"{NOTHING_COUNTED}\n"
    head = f"{counted(counts.ended, 'attempt')} in {where}"
    return f"{head}\n\nWaited\n{_draw(counts.wait)}\nRan\n{_draw(counts.run)}"


def _draw(histogram: Histogram) -> str:
    """Draw a histogram with one line per bucket, from the first to the last non-empty bucket."""
    filled = [at for at, count in enumerate(histogram.counts) if count]
    if not filled:
        return "  not known\n"
    most, total = max(histogram.counts), histogram.total
    lines = []
    for at in range(filled[0], filled[-1] + 1):
        is_last = at == len(ATTEMPT_SECONDS)
        bound = f"> {duration(ATTEMPT_SECONDS[-1])}" if is_last else f"≤ {duration(ATTEMPT_SECONDS[at])}"
        count = histogram.counts[at]
        lines.append(f"{bound:>10}  {bar(count / most, _BAR_CELLS)}  {count:>9,}  {count / total:>6.1%}\n")
    return "".join(lines)
