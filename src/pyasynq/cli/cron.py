"""The commands `pyasynq cron`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from pyasynq._face_records.fleet import ENTRIES, ENTRY_EVENTS, describe_entry, describe_entry_event
from pyasynq._visible_text import visible
from pyasynq.cli.actions import for_each, reason_option
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session


_EXAMPLE: Final = "0d2c7f0e-9f4e-4a8e-8a35-5b1d1f6b7c11"

_entries = click.argument("entries", metavar="ENTRY...", nargs=-1, required=True)


@click.group(cls=NounGroup, aliases={"ls": "list", "unpause": "resume"})
def cron() -> None:
    """List the entries (periodic tasks) of running schedulers; pause, resume, and run them."""


@cron.command("list", examples=("pyasynq cron ls", "pyasynq cron ls -o wide"))
@operator_command
async def list_entries(session: Session) -> None:
    """List the periodic tasks of all running schedulers, those in Go included."""

    async def gather() -> list[Record]:
        entries = await session.operator.schedules()
        return [describe_entry(info) for info in sorted(entries, key=lambda one: (one.spec, one.id))]

    await session.show(ENTRIES, gather)


@cron.command("history", examples=(f"pyasynq cron history {_EXAMPLE}",))
@_entries
@click.option("--page", type=click.IntRange(min=1), default=1, show_default=True, help="Which page.")
@click.option("--size", type=click.IntRange(1, 1_000), default=30, show_default=True, help="Tasks on a page.")
@operator_command
async def show_entry_history(session: Session, entries: Sequence[str], page: int, size: int) -> None:
    """Show the tasks that scheduler entries enqueued, the newest first."""

    async def gather() -> list[Record]:
        return [
            describe_entry_event(entry, event)
            for entry in entries
            for event in await session.operator.schedule_events(entry, page, size)
        ]

    await session.show(ENTRY_EVENTS, gather)


@cron.command("pause", examples=(f'pyasynq cron pause {_EXAMPLE} --reason "wrong address"',))
@_entries
@reason_option
@operator_command
async def pause_entries(session: Session, entries: Sequence[str], reason: str) -> int:
    """Pause scheduler entries: they enqueue nothing until resumed. Schedulers in Go ignore pauses."""
    return await _set_paused(session, entries, reason, paused=True)


@cron.command("resume", examples=(f"pyasynq cron resume {_EXAMPLE}",))
@_entries
@reason_option
@operator_command
async def resume_entries(session: Session, entries: Sequence[str], reason: str) -> int:
    """Resume scheduler entries: they enqueue again from their next scheduled time."""
    return await _set_paused(session, entries, reason, paused=False)


async def _set_paused(session: Session, entries: Sequence[str], reason: str, *, paused: bool) -> int:
    operator = session.operator
    change, done = (operator.pause_schedule, "Paused") if paused else (operator.resume_schedule, "Resumed")

    async def change_one(entry: str) -> None:
        result = await change(entry, reason=reason)
        if paused and not result.understood:
            raise click.ClickException(
                f"entry {visible(entry)} is one of a scheduler in Go, which ignores pauses"
            )
        click.echo(f"{done} entry {visible(entry)}.", err=True)

    return await for_each(entries, change_one)


@cron.command("run", examples=(f"pyasynq cron run {_EXAMPLE}",))
@_entries
@reason_option
@operator_command
async def run_entries(session: Session, entries: Sequence[str], reason: str) -> int:
    """Enqueue the tasks of scheduler entries now, in addition to their schedule."""

    async def run_one(entry: str) -> None:
        result = await session.operator.run_schedule(entry, reason=reason)
        task = result.task
        click.echo(f"Enqueued task {visible(task.id)} to queue {visible(task.queue)}.", err=True)
        if result.unread_options:
            left = ", ".join(map(visible, result.unread_options))
            click.echo(f"Left out, since they cannot be read: {left}", err=True)

    return await for_each(entries, run_one)
