"""The commands `pyasynq op` and `pyasynq undo`: operations on many tasks that were started before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from pyasynq._face_records.operations import OPERATIONS, describe_operation
from pyasynq._human_text import counted, some
from pyasynq._visible_text import visible
from pyasynq.cli.actions import confirm_change, reason_option, yes_option
from pyasynq.cli.bulk import WORDS, finish_operation, tell_result
from pyasynq.cli.nouns import NounGroup, OperatorCommand
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.printer import format_pairs
from pyasynq.operations import Act, OperationState

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.cli.output.cells import Moment
    from pyasynq.operations import OperationInfo

_EXAMPLE: Final = "5f1d2c3b4a596877"
_MOST: Final = 1_000
_MOST_LEFT: Final = 20
_MOST_QUEUES: Final = 10

_operation = click.argument("operation", metavar="OPERATION")


@click.group(
    "op", cls=NounGroup, aliases={"ls": "list", "show": "view", "inspect": "view", "unpause": "resume"}
)
def operation_group() -> None:
    """List bulk operations on many tasks; pause, resume, and stop them."""


@operation_group.command("list", examples=("pyasynq op ls", "pyasynq op ls -o wide", "pyasynq op ls --watch"))
@click.option(
    "--limit", type=click.IntRange(1, _MOST), default=20, show_default=True, help="Operations to list."
)
@operator_command
async def list_operations_command(session: Session, limit: int) -> None:
    """List operations, the newest first."""

    async def gather() -> list[Record]:
        return [describe_operation(info) for info in await session.operator.operations(limit)]

    await session.show(OPERATIONS, gather)


@operation_group.command(
    "view", examples=(f"pyasynq op view {_EXAMPLE}", f"pyasynq op view {_EXAMPLE} -o json")
)
@_operation
@operator_command
async def view_operation(session: Session, operation: str) -> None:
    """Show an operation, and the tasks that it skipped."""
    info = await session.operator.operation(operation)
    if session.printer.is_for_people and session.printer.fields is None and session.watch is None:
        click.echo(describe_operation_in_words(info, session.printer.moment()), nl=False)
        return

    async def gather() -> list[Record]:
        return [describe_operation(await session.operator.operation(operation))]

    await session.show(OPERATIONS, gather)


@operation_group.command("resume", examples=(f"pyasynq op resume {_EXAMPLE}",))
@_operation
@reason_option
@operator_command
async def resume_operation(session: Session, operation: str, reason: str) -> int:
    """Resume an operation that is paused, or whose process has died."""
    info = await session.operator.operation(operation)
    if info.state is OperationState.PAUSED:
        info = await session.operator.resume_operation(operation, reason=reason)
    if info.has_ended:
        return tell_result(session, info)
    return await finish_operation(session, info)


@operation_group.command("pause", examples=(f"pyasynq op pause {_EXAMPLE}",))
@_operation
@reason_option
@operator_command
async def pause_operation(session: Session, operation: str, reason: str) -> None:
    """Pause an operation after its current step, also if another process runs it."""
    info = await session.operator.pause_operation(operation, reason=reason)
    _tell_state(session, info, "Paused")


@operation_group.command("stop", examples=(f'pyasynq op stop {_EXAMPLE} --reason "wrong query"',))
@_operation
@reason_option
@operator_command
async def stop_operation(session: Session, operation: str, reason: str) -> None:
    """Stop an operation after its current step, for good. Tasks already changed stay changed."""
    info = await session.operator.stop_operation(operation, reason=reason)
    _tell_state(session, info, "Stopped")


def _tell_state(session: Session, info: OperationInfo, done: str) -> None:
    if session.printer.is_for_people:
        click.echo(
            f"{done} operation {visible(info.operation)}: {info.done:,} of {info.total:,} done.", err=True
        )
    else:
        session.printer.records(OPERATIONS, [describe_operation(info)])


@click.command(
    cls=OperatorCommand, examples=("pyasynq undo", f'pyasynq undo {_EXAMPLE} --yes --reason "wrong query"')
)
@click.argument("operation", metavar="[OPERATION]", required=False)
@reason_option
@yes_option
@operator_command
async def undo(session: Session, operation: str | None, reason: str, *, yes: bool) -> int:
    """Restore the tasks of a deletion, within a day; of your last deletion unless you name another."""
    if operation is None:
        info = await _find_undoable(session)
    else:
        info = await session.operator.operation(operation)
    when = session.printer.moment().relative(info.created).replace("now", "just now")
    why = f': "{visible(info.reason)}"' if info.reason else ""
    deleted = f"deleted {counted(info.done, 'task')} of {_queues(info)} {when}"
    click.echo(f"{visible(info.user)} {deleted}{why}", err=True)
    what = f"{WORDS[Act.UNDO].order} {counted(info.undoable, 'task')}"
    confirm_change(session, what, number=info.undoable, yes=yes)
    return await finish_operation(
        session, await session.operator.undo_operation(info.operation, reason=reason)
    )


async def _find_undoable(session: Session) -> OperationInfo:
    """Return the newest deletion by this user that can be undone and was not undone yet.

    Raises:
        click.ClickException: if there is none.
    """
    operations = await session.operator.operations(_MOST)
    undone = {info.undoes for info in operations if info.undoes}
    for info in operations:
        is_open = info.undo_until is not None and info.undo_until > datetime.now(UTC)
        is_own = info.user == session.operator.user.name
        if info.undoable and is_open and is_own and info.operation not in undone:
            return info
    raise click.ClickException(
        "you have deleted nothing within a day that can be put back; pyasynq op ls shows what others did"
    )


def _queues(info: OperationInfo) -> str:
    if len(info.queues) == 1:
        return f"queue {visible(info.queues[0])}"
    return counted(len(info.queues), "queue")


def describe_operation_in_words(info: OperationInfo, moment: Moment) -> str:
    """Format an operation as lines of text."""
    state = "orphaned: no process goes on with it" if info.is_orphaned else str(info.state)
    left = info.total - info.done - info.skipped
    pairs = [
        ("Operation", visible(info.operation)),
        ("Act", str(info.act) + (f" of {visible(info.undoes)}" if info.undoes else "")),
        ("State", state),
        ("Tasks", f"{info.total:,}: {info.done:,} done, {info.skipped:,} left as they were, {left:,} to go"),
        ("Queues", some(info.queues, _MOST_QUEUES)),
        ("Query", visible(info.query) or "none: the tasks were named"),
        (
            "Started",
            f"{moment.relative(info.created)} by {visible(info.user)} ({moment.exact(info.created)})",
        ),
        ("Reason", visible(info.reason) or "none"),
    ]
    if info.undo_until is not None:
        until = moment.exact(info.undo_until)
        pairs.append(("Undo", f"{counted(info.undoable, 'task')}, until {until}"))
    if info.error:
        pairs.append(("Error", visible(info.error)))
    text = format_pairs(pairs)
    if info.refused:
        text += "Left as they were\n" + "".join(
            f"  {visible(task_id)}  {visible(reason)}  (queue {visible(queue)})\n"
            for queue, task_id, reason in info.refused[:_MOST_LEFT]
        )
        if len(info.refused) > _MOST_LEFT:
            text += f"  and {info.skipped - _MOST_LEFT:,} more; -o json has the first 1,000\n"
    return text
