"""Bulk actions: operations on many tasks, with counting, confirmation, progress, and Ctrl-C to pause."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from pyasynq._exit_codes import EXIT_ABORTED, EXIT_CLEAN, EXIT_FAILED, EXIT_PARTLY
from pyasynq._face_records.operations import OPERATIONS, PREVIEW, describe_operation, describe_preview
from pyasynq._human_text import counted, duration
from pyasynq._visible_text import visible
from pyasynq.cli.actions import ask_reason, command_line, confirm_change, is_asked
from pyasynq.cli.choice import find_by_query
from pyasynq.cli.output.printer import Printer
from pyasynq.cli.output.progress import ProgressBar
from pyasynq.errors import InvalidOptionError
from pyasynq.operations import Act, OperationState, needs_reason

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator, Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.choice import FoundTasks, TaskChoice
    from pyasynq.cli.operator_command import Session
    from pyasynq.operations import OperationInfo, OperationOptions

_POLL_SECONDS: Final = 0.5
"""Seconds between two reads of an operation that another process runs."""
_MOST_ROWS: Final = 10
"""Maximum number of rows of counts that are shown, since there may be thousands."""


class Words(NamedTuple):
    """Wording of an action for people.

    Attributes:
        order: first word of the confirmation question, such as `Delete`.
        doing: label of the progress bar, such as `Deleting`.
        one: words after "1 task" in the result, such as `is deleted`.
        many: words after the number of several tasks in the result, such as `are deleted`.
    """

    order: str
    doing: str
    one: str
    many: str


WORDS: Final[dict[Act, Words]] = {
    Act.RUN: Words("Run", "Running", "is pending now", "are pending now"),
    Act.ARCHIVE: Words("Archive", "Archiving", "is archived", "are archived"),
    Act.DELETE: Words("Delete", "Deleting", "is deleted", "are deleted"),
    Act.CANCEL: Words("Cancel", "Cancelling", "was told to end", "were told to end"),
    Act.RESCHEDULE: Words("Reschedule", "Rescheduling", "is rescheduled", "are rescheduled"),
    Act.EDIT: Words("Edit", "Editing", "is changed", "are changed"),
    Act.MOVE: Words("Move", "Moving", "is moved", "are moved"),
    Act.ENQUEUE_AGAIN: Words("Enqueue copies of", "Enqueueing", "is enqueued again", "are enqueued again"),
    Act.UNDO: Words("Put back", "Putting back", "is put back", "are put back"),
}


async def act_on_query(session: Session, act: Act, options: OperationOptions, choice: TaskChoice) -> int:
    """Act on the tasks that match the query of `choice`, at most its limit; return the exit code."""
    query = choice.query(act)
    found = await find_by_query(session, act, query, choice.limit)
    if not found.total:
        return tell_no_match(session, choice.where, found)
    return await act_on_found(session, act, options, choice, found, query)


async def act_on_found(
    session: Session,
    act: Act,
    options: OperationOptions,
    choice: TaskChoice,
    found: FoundTasks,
    query: str = "",
) -> int:
    """Show the number of tasks, ask to confirm, and act on them by an operation; return the exit code.

    A dry run only prints how many tasks there are.
    """
    if choice.dry_run:
        print_counts(session, found)
        return EXIT_CLEAN
    if is_asked(yes=choice.yes):
        show_preview(found)
    what = f"{WORDS[act].order} {counted(found.total, 'task')}"
    confirm_change(session, what, number=found.total, yes=choice.yes)
    reason = choice.reason
    if needs_reason(act, found.total) and not reason.strip():
        reason = ask_reason(what)
    info = await session.operator.start_operation(
        act, found.targets(query), options, reason=reason, confirm=found.total
    )
    code = await finish_operation(session, info)
    if not found.is_all and code == EXIT_CLEAN:
        click.echo("More tasks match: give the same command again.", err=True)
        return EXIT_PARTLY
    return code


def tell_no_match(session: Session, query: str, found: FoundTasks) -> int:
    """Print that no task matches; return the exit code."""
    tell_left_out(found)
    looked = f"; {counted(found.looked_at, 'task')} looked at" if found.looked_at else ""
    session.printer.records(replace(PREVIEW, empty=f"No task matches {visible(query)}{looked}."), [])
    return EXIT_CLEAN


def tell_found(found: FoundTasks) -> None:
    """Print the number of found tasks on stderr."""
    where = "" if len(found.ids) == 1 else f" in {counted(len(found.ids), 'queue')}"
    more = "" if found.is_all else ", and there are more"
    looked = f"; {found.looked_at:,} looked at" if found.looked_at else ""
    click.echo(f"{counted(found.total, 'task')}{where}{more}{looked}.", err=True)
    tell_left_out(found)


def tell_left_out(found: FoundTasks) -> None:
    """Print on stderr how many tasks of each state cannot be acted on."""
    if found.left_out:
        states = ", ".join(f"{number:,} {state}" for state, number in found.left_out.most_common())
        click.echo(f"Left out, because of their state: {states}.", err=True)


def show_preview(found: FoundTasks) -> None:
    """Print on stderr the tasks that a confirmation is about, counted by queue, type and state."""
    records = describe_preview(found.counts)
    click.echo(Printer().format_records(PREVIEW, records[:_MOST_ROWS]), err=True, nl=False)
    _tell_more_rows(records)
    tell_left_out(found)


def print_counts(session: Session, found: FoundTasks) -> None:
    """Print the number of found tasks by queue, type and state; a long table shows its first rows only."""
    records = describe_preview(found.counts)
    is_cut = session.printer.format == "table" and len(records) > _MOST_ROWS + 1
    session.printer.records(PREVIEW, records[:_MOST_ROWS] if is_cut else records)
    if is_cut:
        _tell_more_rows(records)
    tell_found(found)


def _tell_more_rows(records: Sequence[Record]) -> None:
    rest = records[_MOST_ROWS:]
    if rest:
        tasks = counted(sum(one["tasks"] for one in rest), "task")
        click.echo(f"… and {tasks} in {counted(len(rest), 'more row')}; -o wide has all", err=True)


async def finish_operation(session: Session, info: OperationInfo) -> int:
    """Run an operation to its end, print the result, and return the exit code."""
    interrupt = _Interrupt(session, info.operation)
    before = info.done + info.skipped
    try:
        with interrupt.watched(), ProgressBar(WORDS[info.act].doing, info.total, before) as progress:
            info = await _follow(session, info, progress)
    except BaseException:
        resume = command_line(session, f"op resume {info.operation}")
        click.echo(f"The operation is not finished. Go on with  {resume}", err=True)
        raise
    return tell_result(session, info, is_interrupted=interrupt.has_come)


async def _follow(session: Session, info: OperationInfo, progress: ProgressBar) -> OperationInfo:
    """Run an operation, or watch while another process runs it, until it has ended or is paused."""
    from asyncio import sleep  # noqa: PLC0415 - help needs no asyncio

    def show(now: OperationInfo) -> None:
        progress.update(now.done + now.skipped)

    while not info.has_ended and info.state is not OperationState.PAUSED:
        if info.is_orphaned:
            info = await session.operator.run_operation(info.operation, progress=show)
        else:
            await sleep(_POLL_SECONDS)
            info = await session.operator.operation(info.operation)
        show(info)
    return info


class _Interrupt:
    """Handler of Ctrl-C: the first one pauses an operation after its current step, the second one exits."""

    def __init__(self, session: Session, operation: str) -> None:
        self._session = session
        self._operation = operation
        self._pausing: asyncio.Task[None] | None = None

    @property
    def has_come(self) -> bool:
        """Whether the user pressed Ctrl-C."""
        return self._pausing is not None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Handle Ctrl-C during a `with` block."""
        from asyncio import get_running_loop  # noqa: PLC0415 - as above

        loop = get_running_loop()
        handler = signal.getsignal(signal.SIGINT)
        loop.add_signal_handler(signal.SIGINT, self._pause, loop, handler)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, handler)

    def _pause(self, loop: asyncio.AbstractEventLoop, handler: signal._HANDLER) -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, handler)
        self._pausing = loop.create_task(self._order_pause())

    async def _order_pause(self) -> None:
        # The operation may have ended meanwhile, which is fine. `_follow` reports if Redis is unreachable.
        with contextlib.suppress(InvalidOptionError):
            await self._session.operator.pause_operation(self._operation, reason="Ctrl-C")


def tell_result(session: Session, info: OperationInfo, *, is_interrupted: bool = False) -> int:
    """Print on stderr how an operation has ended, and return the exit code.

    In an output format for programs, also print its record on stdout.
    """
    if not session.printer.is_for_people:
        session.printer.records(OPERATIONS, [describe_operation(info)])
    words = WORDS[info.act]
    is_are = words.one if info.done == 1 else words.many
    click.echo(f"{counted(info.done, 'task')} {is_are}.", err=True)
    _tell_skipped(session, info)
    if info.trimmed:
        click.echo(f"{counted(info.trimmed, 'older archived task')} went to make room.", err=True)
    if info.undoable and not info.undoes:
        undo = command_line(session, f"undo {info.operation}")
        left = (
            ""
            if info.undo_until is None
            else f", for {duration((info.undo_until - info.created).total_seconds())}"
        )
        click.echo(f"Undo with  {undo}{left}", err=True)
    return _exit_code(session, info, is_interrupted=is_interrupted)


def _tell_skipped(session: Session, info: OperationInfo) -> None:
    if not info.skipped:
        return
    reasons = Counter(reason for *_, reason in info.refused)
    told = ", ".join(f"{number:,} {visible(reason)}" for reason, number in reasons.most_common())
    left = "task was left as it was" if info.skipped == 1 else "tasks were left as they were"
    view = command_line(session, f"op view {info.operation}")
    click.echo(f"{info.skipped:,} {left}: {told}. See  {view}", err=True)


def _exit_code(session: Session, info: OperationInfo, *, is_interrupted: bool) -> int:
    left = info.total - info.done - info.skipped
    match info.state:
        case OperationState.PAUSED:
            resume, stop = (
                command_line(session, f"op {verb} {info.operation}") for verb in ("resume", "stop")
            )
            click.echo(f"Paused, {left:,} left. Go on with  {resume}\nGive it up with  {stop}", err=True)
            return EXIT_ABORTED if is_interrupted else EXIT_PARTLY
        case OperationState.STOPPED:
            click.echo(f"Stopped, {left:,} left as they were.", err=True)
            return EXIT_PARTLY
        case OperationState.FAILED:
            click.echo(f"Error: the operation failed: {visible(info.error)}", err=True)
            return EXIT_PARTLY if info.done else EXIT_FAILED
        case _:
            if not info.skipped:
                return EXIT_CLEAN
            return EXIT_PARTLY if info.done else EXIT_FAILED
