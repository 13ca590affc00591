"""The command `pyasynq search`."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Final

import click

from pyasynq._face_records.operations import EXPLANATION, describe_explanation
from pyasynq._face_records.tasks import describe_task, tasks_view
from pyasynq._visible_text import visible
from pyasynq.cli.bulk import print_counts
from pyasynq.cli.choice import find_by_query, whole_budget, within_queues
from pyasynq.cli.completion import complete_queues, complete_where
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.progress import StatusLine
from pyasynq.cli.output.record_stream import RecordStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.operations.selection import AsyncSelections, Selection

_MOST: Final = 1_000_000
_FIRST_SECONDS: Final = 0.45
"""Seconds from the start of the process until a search prints its first matches.

The time that has passed before the search is estimated by the CPU time of the process.
"""
_LEAST_SECONDS: Final = 0.15
"""Minimum seconds of a search before it prints: most searches end sooner, and are printed as one list."""

limit_option: Final = click.option(
    "--limit", type=click.IntRange(1, _MOST), default=50, show_default=True, help="Tasks to find at most."
)


@click.command(
    cls=OperatorCommand,
    examples=(
        "pyasynq search state:archived error:timeout",
        "pyasynq search 'type:email:* failed:<1h -payload.user.test:true' -o json",
        "pyasynq search state:retry --count",
        "pyasynq search 'payload.order.id:4711' --explain",
    ),
)
@click.argument("query", nargs=-1, required=True, shell_complete=complete_where)
@click.option(
    "-q",
    "--queue",
    "queues",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_queues,
    help="Only this queue; may be repeated.",
)
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=50, show_default=True, help="Tasks to find at most."
)
@click.option(
    "--all", "everywhere", is_flag=True, help="Look on until enough is found, however long it takes."
)
@click.option("--cursor", default="", metavar="TEXT", help="Go on where a search by this query ended.")
@click.option("--count", is_flag=True, help="Count all matches by queue, type and state.")
@click.option("--explain", is_flag=True, help="Say what the search would look at, and do not search.")
@operator_command
async def search_command(
    session: Session,
    query: Sequence[str],
    queues: Sequence[str],
    limit: int,
    cursor: str,
    *,
    everywhere: bool,
    count: bool,
    explain: bool,
) -> None:
    """Find tasks in all states by a query, the newest first. The page docs/query.md lists the fields.

    Tasks are printed as they are found, on a terminal through a pager. A search ends when enough is found, or
    after 100,000 tasks or two seconds, and says how to go on. So does Ctrl-C, and leaving the pager.
    """
    text = within_queues(" ".join(query), queues)
    if explain:
        explanation = await session.operator.explain_search(text)
        if session.printer.is_for_people and session.printer.fields is None:
            click.echo(str(explanation))
        else:
            session.printer.records(EXPLANATION, [describe_explanation(explanation)])
        return
    if count:
        found = await find_by_query(session, None, text, _MOST)
        print_counts(session, found)
        return

    await show_search(session, text, cursor, limit, everywhere=everywhere)


async def show_search(
    session: Session, query: str, cursor: str, limit: int, *, everywhere: bool = False
) -> None:
    """Print matching tasks as they are found; at the end print on stderr how many tasks were examined.

    Leaving the pager ends the search. So does Ctrl-C: the tasks found so far are printed (except as a JSON
    array), and how to continue.
    With `everywhere`, the search has no limit of tasks or time.
    """
    if session.watch is not None:
        await _watch_search(session, query, cursor, limit, everywhere=everywhere)
        return
    last: Selection | None = None

    def begin() -> None:
        stream.begin()
        if stream.is_empty:
            status.show_now("No match yet: still searching. Ctrl-C ends the search.")

    async def collect() -> None:
        nonlocal last
        async for last in _search(session, query, cursor, limit, everywhere=everywhere):
            stream.add([describe_task(info) for info in last.tasks])
            if not (stream.is_paged and sys.stderr.isatty()):
                status.show(f"Searching: {last}")

    with StatusLine() as status:
        searching = asyncio.ensure_future(collect())
        stream = RecordStream(session.printer, tasks_view(), status.clear, searching.cancel)
        # The CPU time of this process is close to its age, because it has only imported and computed so far.
        seconds = max(_LEAST_SECONDS, _FIRST_SECONDS - time.process_time())
        timer = asyncio.get_running_loop().call_later(seconds, begin)
        try:
            await searching
            stream.end()
        except asyncio.CancelledError:
            if not stream.is_left:
                # An incomplete JSON array would be mistaken for all matches, so it is not printed.
                stream.begin()
                stream.close()
                status.clear()
                _tell_search(last, everywhere=everywhere)
                raise
        finally:
            timer.cancel()
            stream.close()
    _tell_search(last, everywhere=everywhere)


async def _watch_search(session: Session, query: str, cursor: str, limit: int, *, everywhere: bool) -> None:
    async def gather() -> list[Record]:
        pages = _search(session, query, cursor, limit, everywhere=everywhere)
        return [describe_task(info) async for page in pages for info in page.tasks]

    await session.show(tasks_view(), gather)


def _search(session: Session, query: str, cursor: str, limit: int, *, everywhere: bool) -> AsyncSelections:
    budget = whole_budget() if everywhere else None
    return session.operator.search(query, cursor=cursor, limit=limit, budget=budget)


def _tell_search(last: Selection | None, *, everywhere: bool) -> None:
    """Print on stderr how many tasks a search examined, and the options that continue it."""
    if last is None:
        return
    click.echo(f"{last}".removesuffix(": go on") + ".", err=True)
    if last.cursor:
        rest = "" if everywhere else "--all, or  "
        click.echo(f"Go on with  {rest}--cursor {visible(last.cursor)}", err=True)
