"""The commands `pyasynq command`: commands that the task service runs for tasks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._face_records.service_reports import HOSTED_COMMAND, HOSTED_COMMANDS, describe_hosted_command
from pyasynq._human_text import bytes_text
from pyasynq._visible_text import visible, visible_lines
from pyasynq.cli.actions import for_each, outcome_option, reason_option
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.cells import human_bytes, short_duration
from pyasynq.cli.output.printer import format_pairs, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.cli.output.cells import Moment
    from pyasynq.operations import HostedCommand

_EXAMPLE_ID: Final = "5f0c92d1e7a4b386"
_ids = click.argument("ids", metavar="ID...", nargs=-1, required=True)


@click.group(cls=NounGroup, aliases={"ls": "list"})
def command() -> None:
    """List the commands that the task service runs for tasks; kill them."""


@command.command("list", examples=("pyasynq command ls", "pyasynq command ls --watch"))
@operator_command
async def list_hosted_commands(session: Session) -> None:
    """List the commands that run, and those that ended within 10 minutes."""

    async def gather() -> list[Record]:
        now = datetime.now(UTC)
        return [describe_hosted_command(one, now) for one in await session.operator.commands()]

    await session.show(HOSTED_COMMANDS, gather)


@command.command(
    "inspect",
    examples=(f"pyasynq command inspect {_EXAMPLE_ID}", f"pyasynq command inspect {_EXAMPLE_ID} -o json"),
)
@_ids
@operator_command
async def inspect_hosted_commands(session: Session, ids: Sequence[str]) -> int:
    """Show commands with the end of their output."""
    from pyasynq.operations import find_command  # noqa: PLC0415 - help needs no Redis

    commands = await session.operator.commands()
    found: list[HostedCommand] = []

    async def find(command_id: str) -> None:
        found.append(find_command(commands, command_id))

    code = await for_each(ids, find)
    if not found:
        return code
    moment = session.printer.moment()
    records = [describe_hosted_command(one, moment.now) for one in found]
    if session.printer.is_for_people and session.printer.fields is None:
        show("\n".join(_describe_in_words(*one, moment) for one in zip(found, records, strict=True)))
    else:
        session.printer.records(HOSTED_COMMAND, records)
    return code


@command.command(
    "kill",
    examples=(
        f"pyasynq command kill {_EXAMPLE_ID}",
        f'pyasynq command kill {_EXAMPLE_ID} --then archive --reason "it hangs"',
    ),
)
@_ids
@outcome_option
@reason_option
@operator_command
async def kill_hosted_commands(session: Session, ids: Sequence[str], outcome: Any, reason: str) -> int:
    """Kill running commands with all their processes, by cancelling their tasks."""
    from pyasynq.operations import find_command, require_running  # noqa: PLC0415 - help needs no Redis

    commands = await session.operator.commands()

    async def kill(command_id: str) -> None:
        one = find_command(commands, command_id)
        require_running(one)
        result = await session.operator.cancel_task(one.queue, one.task_id, outcome, reason=reason)
        task = f"{visible(one.task_id)} in queue {visible(one.queue)}"
        click.echo(f"Command {visible(one.id)} of task {task} was told to end ({result.status}).", err=True)

    return await for_each(ids, kill)


def _describe_in_words(one: HostedCommand, record: Record, moment: Moment) -> str:
    """Format a hosted command as lines of text."""
    words = one.state + (f": {visible(one.end)}" if one.end else "")
    pairs = [
        ("Command", visible(one.id)),
        ("Program", visible(one.program)),
        ("Task", f"{visible(one.task_id)}, attempt {one.attempt:,}"),
        ("Type", visible(one.queue)),
        ("State", words),
        ("Machine", visible(one.host)),
        ("Started", f"{moment.relative(one.started)} ({moment.exact(one.started)})"),
        ("Ran", short_duration(record["ran"])),
    ]
    if one.cpu is not None:
        pairs.append(("CPU", short_duration(one.cpu)))
    if one.memory is not None:
        pairs.append(("Memory", human_bytes(one.memory)))
    if one.reason:
        pairs.append(("Error", visible(one.reason)))
    streams = (
        ("Standard output", record["out"], one.out_bytes),
        ("Standard error", record["err"], one.err_bytes),
    )
    return format_pairs(pairs) + "".join(
        f"{name}, the end of {bytes_text(total)}\n{_indent(text)}" for name, text, total in streams if total
    )


def _indent(text: str) -> str:
    lines = visible_lines(text).expandtabs().rstrip("\n").split("\n")
    return "".join(f"  {line}".rstrip() + "\n" for line in lines)
