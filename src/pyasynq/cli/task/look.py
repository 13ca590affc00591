"""The commands `pyasynq task list` and `pyasynq task inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from pyasynq._exit_codes import EXIT_CLEAN, EXIT_FAILED, EXIT_PARTLY
from pyasynq._face_records.tasks import describe_task, tasks_view
from pyasynq._human_text import counted, duration
from pyasynq._visible_text import visible, visible_lines
from pyasynq.cli.choice import (
    find_by_ids,
    id_option,
    ids_argument,
    queue_option,
    quote_in_query,
    require_ids,
    within_queues,
)
from pyasynq.cli.completion import complete_queues, complete_where
from pyasynq.cli.operator_command import operator_command, tell_error
from pyasynq.cli.output.cells import data_text
from pyasynq.cli.output.printer import format_pairs
from pyasynq.cli.task.noun import EXAMPLE_ID, task
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.cli.output.cells import Moment
    from pyasynq.task import TaskInfo

_STATES: Final = [state.value for state in TaskState]
_MOST_ON_A_PAGE: Final = 1_000


@task.command(
    "list",
    examples=(
        "pyasynq task ls -q default -s archived",
        "pyasynq task ls -q default -s retry --fields id,due,last_error",
        "pyasynq task ls -s archived --where 'error:timeout failed:<1h'",
    ),
)
@click.option("-q", "--queue", metavar="NAME", shell_complete=complete_queues, help="Their queue.")
@click.option("-s", "--state", type=click.Choice(_STATES), help="Their state.")
@click.option(
    "--where",
    metavar="QUERY",
    shell_complete=complete_where,
    help="Only tasks that match, of all queues and states unless given. See docs/query.md.",
)
@click.option("-g", "--group", default="", metavar="NAME", help="Their group, for aggregating tasks.")
@click.option("--page", type=click.IntRange(min=1), default=1, show_default=True, help="Which page.")
@click.option(
    "--size", type=click.IntRange(1, _MOST_ON_A_PAGE), default=30, show_default=True, help="Tasks on a page."
)
@operator_command
async def list_command(
    session: Session,
    queue: str | None,
    state: str | None,
    where: str | None,
    group: str,
    page: int,
    size: int,
) -> None:
    """List the tasks of a queue that are in one state, or find tasks by a query."""
    if where is not None:
        if page > 1:
            raise click.UsageError("--where has no pages; give a larger --size")
        from pyasynq.cli.search import show_search  # noqa: PLC0415 - a list is faster without it

        parts = [f"({where})" if where.strip() else "", f"state:{state}" if state else ""]
        parts.append(f"group:{quote_in_query(group)}" if group else "")
        text = " ".join(filter(None, parts))
        await show_search(session, within_queues(text, [queue] if queue else []), "", size)
        return
    if queue is None or state is None:
        raise click.UsageError("give --queue and --state, or --where")
    if state == TaskState.AGGREGATING and not group:
        raise click.UsageError("aggregating tasks are in groups: give --group; pyasynq group ls lists them")

    async def gather() -> list[Record]:
        infos = await session.operator.tasks(queue, state, page, size, group=group)
        return [describe_task(info) for info in infos]

    await session.show(tasks_view(state), gather)


@task.command(
    "inspect", examples=(f"pyasynq task inspect {EXAMPLE_ID}", f"pyasynq task inspect {EXAMPLE_ID} -o json")
)
@ids_argument
@id_option
@queue_option
@operator_command
async def inspect_tasks(
    session: Session, ids: Sequence[str], more_ids: Sequence[str], queue: str | None
) -> int:
    """Show the details of tasks, by their ids. `--queue` is optional."""
    found, missing = await find_by_ids(session, require_ids(ids, more_ids), queue)
    for error in missing:
        tell_error(error, as_json=not session.printer.is_for_people)
    if not found:
        return EXIT_FAILED
    if session.printer.is_for_people and session.printer.fields is None:
        texts = [describe_task_in_words(info, session.printer.moment()) for info in found]
        click.echo("\n".join(texts), nl=False)
    else:
        session.printer.records(tasks_view(), [describe_task(info) for info in found])
    return EXIT_PARTLY if missing else EXIT_CLEAN


def describe_task_in_words(info: TaskInfo, moment: Moment) -> str:
    """Format a task as lines of text."""
    pairs = [
        ("Task", visible(info.id)),
        ("Type", visible(info.type)),
        ("Queue", visible(info.queue)),
        ("State", describe_state(info, moment)),
        ("Retried", f"{info.retried:,} of {info.max_retry:,}"),
    ]
    if info.group:
        pairs.append(("Group", visible(info.group)))
    if info.crashes:
        pairs.append(("Crashes", f"{counted(info.crashes, 'worker')} died with it"))
    if info.timeout is not None:
        pairs.append(("Timeout", duration(info.timeout.total_seconds())))
    if info.deadline is not None:
        pairs.append(("Deadline", f"{moment.exact(info.deadline)} ({moment.relative(info.deadline)})"))
    if info.progress is not None:
        done = f"{info.progress.done:g}" + (f" of {info.progress.total:g}" if info.progress.total else "")
        pairs.append(("Progress", visible(f"{done} {info.progress.note}".strip())))
    pairs += [(f"Header {visible(name)}", visible(value)) for name, value in info.headers.items()]
    pairs.append(("Payload", visible(data_text(info.payload))))
    if info.result is not None:
        pairs.append(("Result", visible(data_text(info.result))))
    if info.last_error:
        failed = f" ({moment.relative(info.last_failed_at)})" if info.last_failed_at else ""
        pairs.append(("Last error", visible(info.last_error) + failed))
    return format_pairs(pairs) + describe_attempts(info, moment)


def describe_state(info: TaskInfo, moment: Moment) -> str:
    """Return the state of a task, and when it is due or since when it has been in this state."""
    words = str(info.state)
    if info.is_orphaned:
        words += ", without a lease: no live worker has it"
    elif info.server_id:
        words += f" on server {visible(info.server_id)}"
    if info.next_process_at is not None and info.state in {TaskState.SCHEDULED, TaskState.RETRY}:
        words += f", due {moment.relative(info.next_process_at)} ({moment.exact(info.next_process_at)})"
    elif info.in_state_since is not None:
        words += f", since {moment.relative(info.in_state_since)} ({moment.exact(info.in_state_since)})"
    return words


def describe_attempts(info: TaskInfo, moment: Moment) -> str:
    """Format the ended attempts of a task, and the traceback of the last one, as lines of text."""
    ages = [moment.relative(one.ended_at) for one in info.attempts]
    width = max(map(len, ages), default=0)
    pairs = [
        (f"  {age:>{width}}", visible(f"{one.outcome}: {one.error}" if one.error else one.outcome))
        for age, one in zip(ages, info.attempts, strict=True)
    ]
    text = "Attempts\n" + format_pairs(pairs) if pairs else ""
    if info.traceback:
        indented = "".join(f"  {line}\n" for line in visible_lines(info.traceback).splitlines())
        text += f"Traceback\n{indented}"
    return text
