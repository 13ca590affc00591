"""The commands of `pyasynq task` that change tasks: a single task directly, many by an operation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._exit_codes import EXIT_CLEAN, EXIT_FAILED, EXIT_PARTLY
from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.cli.actions import DURATION, TIME, confirm_change, for_each, outcome_option
from pyasynq.cli.bulk import WORDS, act_on_found, act_on_query
from pyasynq.cli.choice import FoundTasks, TaskChoice, choose_tasks, find_by_ids
from pyasynq.cli.completion import complete_queues
from pyasynq.cli.enqueue import parse_headers
from pyasynq.cli.operator_command import operator_command, tell_error
from pyasynq.cli.task.noun import EXAMPLE_ID, task
from pyasynq.operations import Act, OperationOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyasynq.cli.operator_command import Session
    from pyasynq.task import TaskInfo

    ActOnOne = Callable[[TaskInfo], Awaitable[str]]

_AT_ONCE: Final = 100
"""Maximum number of tasks that are changed one by one, with a printed result each; more need an operation."""
_QUERY: Final = "state:archived error:timeout"


async def act(
    session: Session, act: Act, choice: TaskChoice, options: OperationOptions, one: ActOnOne | None = None
) -> int:
    """Act on the chosen tasks and return the exit code.

    Args:
        session: session of the command.
        act: action on the tasks.
        choice: tasks that the user has chosen.
        options: options of the operation, if one is started.
        one: function that acts on a single task and returns the result in words; None starts an operation.
    """
    if choice.where:
        return await act_on_query(session, act, options, choice)
    tasks, missing = await find_by_ids(session, choice.ids, choice.queue)
    for error in missing:
        tell_error(error, as_json=not session.printer.is_for_people)
    if not tasks:
        return EXIT_FAILED
    if one is None or choice.rate or choice.dry_run or len(tasks) > _AT_ONCE:
        found = FoundTasks()
        found.add(act, tasks)
        code = await act_on_found(session, act, options, choice, found) if found.total else EXIT_FAILED
    else:
        code = await _act_on_each(session, act, choice, tasks, one)
    return EXIT_PARTLY if missing and code == EXIT_CLEAN else code


async def _act_on_each(
    session: Session, act: Act, choice: TaskChoice, tasks: Sequence[TaskInfo], one: ActOnOne
) -> int:
    if act is Act.DELETE:
        what = f"{WORDS[act].order} {counted(len(tasks), 'task')} for good"
        confirm_change(session, what, number=len(tasks), yes=choice.yes)
    by_place = {f"{info.queue}\n{info.id}": info for info in tasks}

    async def act_on_one(place: str) -> None:
        info = by_place[place]
        result = await one(info)
        click.echo(f"Task {visible(info.id)} in queue {visible(info.queue)} {result}.", err=True)

    return await for_each(list(by_place), act_on_one)


@task.command(
    "run",
    examples=(
        f"pyasynq task run {EXAMPLE_ID}",
        f"pyasynq task run --where '{_QUERY}' --dry-run",
        f"pyasynq task run --where '{_QUERY}' --spread 30m --reason \"provider is back\"",
    ),
)
@click.option("--spread", type=DURATION, help="Lay their times evenly over this time, as in 30m.")
@choose_tasks
@operator_command
async def run_command(session: Session, choice: TaskChoice, spread: float | None) -> int:
    """Run tasks now: put scheduled, retry, archived or completed tasks at the end of their queue."""
    if spread is not None:
        options = OperationOptions(
            process_at=datetime.now(UTC), spread=timedelta(seconds=spread), rate=choice.rate
        )
        return await act(session, Act.RESCHEDULE, choice, options)

    async def run_one(info: TaskInfo) -> str:
        await session.operator.run_task(info.queue, info.id, reason=choice.reason)
        return "is pending now"

    return await act(session, Act.RUN, choice, OperationOptions(rate=choice.rate), run_one)


@task.command(
    "archive",
    examples=(
        f'pyasynq task archive {EXAMPLE_ID} --reason "wrong address"',
        "pyasynq task archive --where 'state:retry retried:>5'",
    ),
)
@choose_tasks
@operator_command
async def archive_command(session: Session, choice: TaskChoice) -> int:
    """Archive tasks: they are kept, and do not run unless you run them again."""

    async def archive_one(info: TaskInfo) -> str:
        await session.operator.archive_task(info.queue, info.id, reason=choice.reason)
        return "is archived"

    return await act(session, Act.ARCHIVE, choice, OperationOptions(rate=choice.rate), archive_one)


@task.command(
    "delete",
    examples=(
        f"pyasynq task rm {EXAMPLE_ID} --yes",
        "pyasynq task rm --where 'state:archived archived:>30d' --reason \"too old\"",
    ),
)
@click.option("--no-undo", is_flag=True, help="Keep nothing for an undo, so that memory is free at once.")
@choose_tasks
@operator_command
async def delete_command(session: Session, choice: TaskChoice, *, no_undo: bool) -> int:
    """Delete tasks and release their locks.

    If --reason is given, the deletion can be undone for a day, with  pyasynq undo
    """

    async def delete_one(info: TaskInfo) -> str:
        await session.operator.delete_task(info.queue, info.id, reason=choice.reason)
        return "is deleted"

    options = OperationOptions(rate=choice.rate, undo=not no_undo)
    is_undoable = bool(choice.reason) and not no_undo
    return await act(session, Act.DELETE, choice, options, None if is_undoable else delete_one)


@task.command(
    "cancel",
    examples=(
        f"pyasynq task cancel {EXAMPLE_ID}",
        "pyasynq task cancel --where 'type:report:* running:>1h' --then archive",
    ),
)
@outcome_option
@choose_tasks
@operator_command
async def cancel_tasks(session: Session, choice: TaskChoice, outcome: Any) -> int:
    """Cancel running tasks. Workers in Go always retry them and ignore --then."""

    async def cancel_one(info: TaskInfo) -> str:
        result = await session.operator.cancel_task(info.queue, info.id, outcome, reason=choice.reason)
        return f"was told to end ({result.status})"

    options = OperationOptions(rate=choice.rate, outcome=outcome)
    return await act(session, Act.CANCEL, choice, options, cancel_one)


@task.command(
    "reschedule",
    examples=(
        f"pyasynq task reschedule {EXAMPLE_ID} --in 2h",
        "pyasynq task reschedule --where 'state:retry type:email:*' --at 2026-12-01T08:00:00Z --spread 1h",
    ),
)
@click.option("--at", "process_at", type=TIME, help="When they are due.")
@click.option("--in", "process_in", type=DURATION, help="After what time they are due, as in 2h.")
@click.option("--spread", type=DURATION, default=0.0, help="Lay their times evenly over this time after it.")
@choose_tasks
@operator_command
async def reschedule_command(
    session: Session, choice: TaskChoice, process_at: datetime | None, process_in: float | None, spread: float
) -> int:
    """Change when scheduled, retry and archived tasks are due."""
    if (process_at is None) == (process_in is None):
        raise click.UsageError("when? Give --at or --in")
    at = process_at or datetime.now(UTC) + timedelta(seconds=process_in or 0.0)
    options = OperationOptions(process_at=at, spread=timedelta(seconds=spread), rate=choice.rate)

    async def reschedule_one(info: TaskInfo) -> str:
        await session.operator.reschedule_task(info.queue, info.id, at, reason=choice.reason)
        return f"is due {session.printer.moment().relative(at)}"

    return await act(session, Act.RESCHEDULE, choice, options, None if spread else reschedule_one)


@task.command(
    "edit",
    examples=(
        f"pyasynq task edit {EXAMPLE_ID} --retry 10",
        "pyasynq task edit --where 'state:scheduled type:report:*' --timeout 10m --header region=eu",
    ),
)
@click.option(
    "--retry", "--max-retry", "max_retry", type=click.IntRange(min=0), help="Retries that they have."
)
@click.option("--timeout", type=DURATION, help="How long an attempt may take.")
@click.option("--deadline", type=TIME, help="Until when an attempt must end.")
@click.option(
    "-H", "--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header to set; may be repeated."
)
@choose_tasks
@operator_command
async def edit_tasks(
    session: Session,
    choice: TaskChoice,
    max_retry: int | None,
    timeout: float | None,
    deadline: datetime | None,
    headers: tuple[str, ...],
) -> int:
    """Change options of scheduled, retry and archived tasks; others stay as they are."""
    options = OperationOptions(
        max_retry=max_retry,
        timeout=None if timeout is None else timedelta(seconds=timeout),
        deadline=deadline,
        headers=parse_headers(headers),
        rate=choice.rate,
    )
    return await act(session, Act.EDIT, choice, options)


@task.command(
    "copy",
    examples=(f"pyasynq task copy {EXAMPLE_ID}", "pyasynq task copy --where 'state:completed completed:<1h'"),
)
@choose_tasks
@operator_command
async def copy_tasks(session: Session, choice: TaskChoice) -> int:
    """Enqueue copies of tasks in any state; the originals do not change."""
    return await act(session, Act.ENQUEUE_AGAIN, choice, OperationOptions(rate=choice.rate))


@task.command(
    "move",
    examples=(
        f"pyasynq task move {EXAMPLE_ID} --to slow",
        "pyasynq task move --where 'queue:mail type:report:*' --to reports",
    ),
)
@click.option(
    "--to", "target", metavar="QUEUE", required=True, shell_complete=complete_queues, help="The other queue."
)
@choose_tasks
@operator_command
async def move_tasks(session: Session, choice: TaskChoice, target: str) -> int:
    """Move tasks that are not running to another queue; they keep their state and times."""
    return await act(session, Act.MOVE, choice, OperationOptions(queue=target, rate=choice.rate))
