"""The command `pyasynq mark`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from pyasynq._face_records.statistics import MARKS, describe_mark
from pyasynq._visible_text import visible
from pyasynq.cli.actions import DURATION, TIME
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.cli.operator_command import operator_command

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session


@click.command(
    cls=OperatorCommand,
    examples=(
        'pyasynq mark "deploy abc123"',
        'pyasynq mark "provider was down" --at 2026-11-25T14:05:00Z',
        "pyasynq mark --list --since 7d",
    ),
)
@click.argument("text", required=False)
@click.option("--at", type=TIME, help="When it happened; now unless given.")
@click.option("--list", "is_list", is_flag=True, help="List the marks.")
@click.option(
    "--since", type=DURATION, default="7d", show_default=True, help="With --list: how far to look back."
)
@click.option("--remove", metavar="MARK", help="Remove the mark with this id.")
@operator_command
async def mark(
    session: Session,
    text: str | None,
    at: datetime | None,
    since: float,
    remove: str | None,
    *,
    is_list: bool,
) -> None:
    """Add a mark (annotation) to all charts, such as a deployment; list and remove marks."""
    if text in {"ls", "list"}:
        raise click.UsageError(f"{text!r} says too little for a mark; to list them:  pyasynq mark --list")
    if sum((text is not None, is_list, remove is not None)) != 1:
        raise click.UsageError("give the text of a mark, or --list, or --remove MARK")
    if remove is not None:
        if not await session.operator.remove_mark(remove):
            raise click.ClickException(f"there is no mark {visible(remove)}; pyasynq mark --list has the ids")
        click.echo(f"Removed mark {visible(remove)}.", err=True)
        return
    if text is not None:
        made = await session.operator.add_mark(text, at=at)
        if session.printer.is_for_people:
            click.echo(f"Marked {session.printer.moment().exact(made.at)}: {visible(made.text)}", err=True)
        else:
            session.printer.records(MARKS, [describe_mark(made)])
        return

    async def gather() -> list[Record]:
        marks = await session.operator.marks(datetime.now(UTC) - timedelta(seconds=since))
        return [describe_mark(one) for one in reversed(marks)]

    await session.show(MARKS, gather)
