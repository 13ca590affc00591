"""Asynq's commands `task runall`, `archiveall` and `deleteall`: all tasks of a queue in one state."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from pyasynq.cli.actions import reason_option, yes_option
from pyasynq.cli.bulk import act_on_query
from pyasynq.cli.choice import TaskChoice, quote_in_query
from pyasynq.cli.completion import complete_queues
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.task.noun import task
from pyasynq.operations import STATES_OF_ACT, Act, OperationOptions
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.cli.operator_command import Session


def _choose_all(act: Act) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds Asynq's options to a command; the command gets them as `choice`."""
    states = [state.value for state in TaskState if state in STATES_OF_ACT[act]]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.option(
            "-q",
            "--queue",
            metavar="NAME",
            shell_complete=complete_queues,
            required=True,
            help="Their queue.",
        )
        @click.option("-s", "--state", type=click.Choice(states), required=True, help="Their state.")
        @click.option("-g", "--group", metavar="NAME", help="Their group, for aggregating tasks.")
        @reason_option
        @click.option("--dry-run", is_flag=True, help="Count the tasks, and change nothing.")
        @yes_option
        @functools.wraps(command)
        def wrapped(
            *args: Any,
            queue: str,
            state: str,
            group: str | None,
            reason: str,
            dry_run: bool,
            yes: bool,
            **kwargs: Any,
        ) -> Any:
            if (state == TaskState.AGGREGATING) != bool(group):
                raise click.UsageError("give --group with the state aggregating, and with no other")
            where = f"state:{state}" + (f" group:{quote_in_query(group)}" if group else "")
            choice = TaskChoice(where=where, queue=queue, reason=reason, yes=yes, dry_run=dry_run)
            return command(*args, choice=choice, **kwargs)

        return wrapped

    return decorate


@task.command("runall", examples=('pyasynq task runall -q mail -s archived --reason "provider is back"',))
@_choose_all(Act.RUN)
@operator_command
async def run_all_command(session: Session, choice: TaskChoice) -> int:
    """Run all tasks of a queue that are in one state: put them at the queue's end."""
    return await act_on_query(session, Act.RUN, OperationOptions(), choice)


@task.command("archiveall", examples=("pyasynq task archiveall -q mail -s retry",))
@_choose_all(Act.ARCHIVE)
@operator_command
async def archive_all_command(session: Session, choice: TaskChoice) -> int:
    """Archive all tasks of a queue in one state."""
    return await act_on_query(session, Act.ARCHIVE, OperationOptions(), choice)


@task.command("deleteall", examples=('pyasynq task deleteall -q mail -s completed --reason "not needed"',))
@_choose_all(Act.DELETE)
@operator_command
async def delete_all_command(session: Session, choice: TaskChoice) -> int:
    """Delete all tasks of a queue in one state; `pyasynq undo` can restore them for a day."""
    return await act_on_query(session, Act.DELETE, OperationOptions(), choice)
