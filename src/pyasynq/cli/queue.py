"""The commands `pyasynq queue`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from pyasynq._exit_codes import EXIT_FAILED, EXIT_PARTLY
from pyasynq._face_records.queues import (
    HISTORY,
    LISTED_QUEUES,
    describe_day,
    describe_listed_queue,
    describe_rate,
    error_rate,
)
from pyasynq._human_text import counted, duration
from pyasynq._visible_text import visible
from pyasynq.cli.actions import DURATION, confirm_change, for_each, reason_option, yes_option
from pyasynq.cli.completion import complete_queues
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.cells import human_bytes
from pyasynq.cli.output.printer import format_pairs
from pyasynq.errors import QueueNotEmptyError, RedisPermissionError, nearest
from pyasynq.operations import find_declared_max_run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.cli.output.cells import Moment
    from pyasynq.info import QueueInfo, QueueInfos
    from pyasynq.operations import Operator

_names = click.argument("queues", metavar="QUEUE...", nargs=-1, required=True, shell_complete=complete_queues)


@click.group(cls=NounGroup, aliases={"ls": "list", "resume": "unpause", "rm": "remove", "delete": "remove"})
def queue() -> None:
    """List queues; pause, resume, and remove them."""


@queue.command(
    "list",
    examples=(
        "pyasynq queue ls",
        "pyasynq queue ls mail -o wide",
        "pyasynq queue ls -o name | xargs pyasynq queue pause",
    ),
)
@click.argument("pattern", required=False)
@operator_command
async def list_queues_command(session: Session, pattern: str | None) -> None:
    """List all queues, or those whose names contain a text."""

    async def gather() -> list[Record]:
        infos, declared = await read_queues_and_limits(session.operator)
        tell_unreadable(infos)
        return [
            describe_listed_queue(info, declared) for info in infos if not pattern or pattern in info.queue
        ]

    await session.show(LISTED_QUEUES, gather)


async def read_queues_and_limits(operator: Operator) -> tuple[QueueInfos, dict[str, int]]:
    """Return the counts of all queues, and how many tasks of each its servers let run at once."""
    import asyncio  # noqa: PLC0415 - help needs no event loop

    infos, servers = await asyncio.gather(operator.queue_infos(), operator.servers(payloads=False))
    return infos, find_declared_max_run(servers)


@queue.command(
    "inspect",
    examples=("pyasynq queue inspect default", "pyasynq queue inspect default critical -o json"),
)
@_names
@operator_command
async def inspect_queues(session: Session, queues: Sequence[str]) -> int | None:
    """Show the details of queues."""
    infos = await session.operator.queue_infos(queues, memory=True)
    declared = find_declared_max_run(await session.operator.servers(payloads=False))
    if session.printer.is_for_people and session.printer.fields is None:
        texts = [describe_queue_in_words(info, declared, session.printer.moment()) for info in infos]
        click.echo("\n".join(texts), nl=False)
    else:
        session.printer.records(LISTED_QUEUES, [describe_listed_queue(info, declared) for info in infos])
    return tell_unreadable(infos)


def describe_queue_in_words(info: QueueInfo, declared: Mapping[str, int], moment: Moment) -> str:
    """Format a queue as lines of text; `declared` has how many tasks its servers let run at once."""
    state = "running"
    if info.paused:
        until = info.paused_until
        state = f"paused, until {moment.exact(until)} ({moment.relative(until)})" if until else "paused"
    oldest = f", the oldest for {duration(info.latency.total_seconds())}" if info.pending else ""
    rate = error_rate(info.processed, info.failed)
    failures = f", {info.failed:,} failed ({rate:.2%})" if rate is not None else ""
    memory = "-" if info.memory_usage is None else f"about {human_bytes(info.memory_usage)}"
    return format_pairs(
        (
            ("Queue", visible(info.queue)),
            ("State", state),
            ("Limits", describe_limits(info, declared.get(info.queue))),
            ("Tasks", f"{info.size:,}"),
            ("  pending", f"{info.pending:,}{oldest}"),
            ("  active", f"{info.active:,}"),
            ("  scheduled", f"{info.scheduled:,}"),
            ("  retry", f"{info.retry:,}"),
            ("  archived", f"{info.archived:,}"),
            ("  completed", f"{info.completed:,}"),
            ("  aggregating", f"{info.aggregating:,} in {counted(info.groups, 'group')}"),
            ("Today (UTC)", f"{info.processed:,} processed{failures}"),
            ("Memory", memory),
        )
    )


def describe_limits(info: QueueInfo, declared: int | None) -> str:
    """Return the limits of a queue as a phrase: those stored, or else how many tasks its servers let run."""
    limits = info.limits
    parts = [] if limits.max_run is None else [f"{limits.max_run:,} at once"]
    parts += [] if limits.rate is None else [f"{describe_rate(limits)} starts"]
    parts += ["strictly ordered"] if limits.ordered else []
    return ", ".join(parts) or (
        "none stored" if declared is None else f"{declared:,} at once, by its servers"
    )


def tell_unreadable(infos: QueueInfos) -> int | None:
    """Print which queues could not be read; return the exit code, or None if all could be read."""
    for error in infos.unreadable.values():
        click.echo(f"Error: {visible(error)}", err=True)
    if not infos.unreadable:
        return None
    return EXIT_PARTLY if len(infos) else EXIT_FAILED


@queue.command("history", examples=("pyasynq queue history default --days 30",))
@_names
@click.option(
    "-x", "--days", type=click.IntRange(1, 366), default=10, show_default=True, help="Days to show."
)
@operator_command
async def show_history(session: Session, queues: Sequence[str], days: int) -> None:
    """Show how many tasks queues processed on each of the last days."""

    async def gather() -> list[Record]:
        return [describe_day(day) for name in queues for day in await session.operator.history(name, days)]

    await session.show(HISTORY, gather)


@queue.command(
    "pause",
    examples=("pyasynq queue pause mail", 'pyasynq queue pause mail --for 15m --reason "provider is down"'),
)
@_names
@click.option("--for", "pause_for", type=DURATION, help="Resume after this time by itself, as in 15m or 1h.")
@reason_option
@operator_command
async def pause_queues(session: Session, queues: Sequence[str], pause_for: float | None, reason: str) -> int:
    """Pause queues: workers take no more tasks from them. Running tasks continue."""

    async def pause_one(name: str) -> None:
        await session.operator.pause_queue(name, pause_for, reason=reason)
        until = f" for {duration(pause_for)}" if pause_for else ""
        click.echo(f"Paused queue {visible(name)}{until}.", err=True)
        await _warn_of_unknown_queue(session.operator, name, is_endless=not pause_for)

    return await for_each(queues, pause_one)


async def _warn_of_unknown_queue(operator: Operator, name: str, *, is_endless: bool) -> None:
    """Print a warning if the queue has had no task, and no live server serves it: it may be misspelt."""
    try:
        known = set(await operator.queues())
        if name not in known:
            known.update(*(server.queues for server in await operator.servers(payloads=False)))
    except RedisPermissionError:
        return
    if name not in known:
        command = f"pyasynq queue resume {shlex.quote(name)}"
        stays = f", and stays paused until  {command}" if is_endless else ""
        text = f"queue {name!r} does not exist yet{stays}{nearest(name, known)}"
        click.echo(f"Warning: {visible(text)}", err=True)


@queue.command("unpause", examples=("pyasynq queue resume mail",))
@_names
@reason_option
@operator_command
async def unpause_queues(session: Session, queues: Sequence[str], reason: str) -> int:
    """Resume paused queues: workers take tasks from them again."""

    async def resume_one(name: str) -> None:
        await session.operator.resume_queue(name, reason=reason)
        click.echo(f"Resumed queue {visible(name)}.", err=True)

    return await for_each(queues, resume_one)


@queue.command("remove", examples=("pyasynq queue rm old-queue", "pyasynq queue rm old-queue --force --yes"))
@_names
@click.option("-f", "--force", is_flag=True, help="Also delete the tasks of a queue that has some.")
@reason_option
@yes_option
@operator_command
async def remove(session: Session, queues: Sequence[str], reason: str, *, force: bool, yes: bool) -> int:
    """Remove queues. A queue with tasks needs --force; that cannot be undone."""
    if force:
        infos = await session.operator.queue_infos(queues)
        if number := sum(info.size for info in infos):
            what = f"Delete {counted(number, 'task')} with {counted(len(infos), 'queue')}"
            confirm_change(session, what, number=number, yes=yes)

    async def remove_one(name: str) -> None:
        try:
            deleted = await session.operator.delete_queue(name, force=force, reason=reason)
        except QueueNotEmptyError as error:
            raise click.ClickException(f"{visible(error)}; with --force its tasks are deleted too") from error
        click.echo(f"Removed queue {visible(name)} with {counted(deleted, 'task')}.", err=True)

    return await for_each(queues, remove_one)
