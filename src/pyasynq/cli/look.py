"""The commands `pyasynq errors`, `types`, `events` and `audit`, which show reports over several queues."""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from pyasynq._face_records.reports import (
    AUDIT,
    ERRORS,
    EVENTS,
    TYPES,
    describe_audit_entry,
    describe_error,
    describe_event,
    describe_type,
)
from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.cli.actions import DURATION
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.printer import Printer
from pyasynq.cli.output.progress import StatusLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session

_queues = click.option(
    "-q", "--queue", "queues", metavar="NAME", multiple=True, help="Only this queue; may be repeated."
)
_MOST_ENTRIES: Final = 1_000
_SCANNED: Final = 10_000
_LEAST_SCANNED: Final = 10
_QUEUES_AT_ONCE: Final = 100
_SECONDS: Final = 0.15
"""Time limit in seconds of the search for a table; other formats, named queues and `--scan` have none."""


@click.command(
    cls=OperatorCommand,
    examples=("pyasynq errors", "pyasynq errors -q mail --state retry --since 24h", "pyasynq errors -o json"),
)
@_queues
@click.option(
    "-s",
    "--state",
    type=click.Choice(["archived", "retry"]),
    default="archived",
    show_default=True,
    help="Tasks that failed for good, or that will be retried.",
)
@click.option("--since", type=DURATION, help="Only tasks that failed at most this long ago, as in 24h.")
@click.option(
    "--scan",
    type=click.IntRange(1, 1_000_000),
    help="Newest tasks of each queue to look at, for as long as it takes. Default: 10,000 in all of them.",
)
@operator_command
async def errors(
    session: Session, queues: Sequence[str], state: str, since: float | None, scan: int | None
) -> None:
    """Group failed tasks by their errors, the most frequent first.

    The queues with the most such tasks are looked at first. A table has what was found within
    0.15 seconds, with one row for an error in several queues. Other formats and --queue have all,
    by queue.

    To list the tasks of an error, search for its signature, as in  pyasynq search error:sig:1f0c9a2b
    """
    after = None if since is None else datetime.now(UTC) - timedelta(seconds=since)

    async def gather() -> list[Record]:
        names = list(queues or await _order_by_failed_tasks(session, state))
        each = scan or max(_LEAST_SCANNED, _SCANNED // max(1, len(names)))
        began = time.monotonic()
        records: list[Record] = []
        cut: list[str] = []
        looked_at = 0
        is_limited = session.printer.is_for_people and not queues and scan is None
        with StatusLine() as status:
            while looked_at < len(names):
                if looked_at and is_limited and time.monotonic() - began > _SECONDS:
                    break
                some = names[looked_at : looked_at + _QUEUES_AT_ONCE]
                reports = await session.operator.error_reports(some, state, scan=each, since=after)
                for name, report in reports.items():
                    records += [describe_error(name, group) for group in report.groups]
                    cut += [] if report.is_complete else [name]
                looked_at += len(some)
                status.show(f"Looked at {looked_at:,} of {len(names):,} queues")
        if looked_at < len(names):
            those = f"Only {looked_at:,} of {len(names):,} queues, those with the most such tasks,"
            click.echo(f"{those} were looked at; --scan {each} looks at all.", err=True)
        if cut:
            newest = f"newest {counted(each, 'task')}"
            where = f"queue {visible(cut[0])}" if len(cut) == 1 else f"each of {len(cut):,} queues"
            click.echo(f"Only the {newest} of {where} were looked at; --scan looks at more.", err=True)
        if session.is_summary and not queues:
            records = join_queues(records)
        return sorted(records, key=lambda one: -one["count"])

    await session.show(ERRORS, gather)


def join_queues(records: Sequence[Record]) -> list[Record]:
    """Return one record for each error signature; its queue is the string `3 queues` if several have it."""
    by_signature: dict[str, list[Record]] = {}
    for one in records:
        by_signature.setdefault(one["signature"], []).append(one)
    return [_join(found) if len(found) > 1 else found[0] for found in by_signature.values()]


def _join(records: Sequence[Record]) -> Record:
    types: Counter[str] = Counter()
    for one in records:
        types.update(one["types"])
    times = [one[name] for one in records for name in ("earliest", "latest") if one[name] is not None]
    return {
        **records[0],
        "count": sum(one["count"] for one in records),
        "earliest": min(times, default=None),
        "latest": max(times, default=None),
        "queue": counted(len(records), "queue"),
        "types": dict(types.most_common()),
    }


async def _order_by_failed_tasks(session: Session, state: str) -> list[str]:
    """Return the queues with tasks in a state, most tasks first; then queues that could not be counted."""
    counts = await session.operator.state_counts(state)
    known = {name: count for name, count in counts.items() if count}
    unknown = [name for name, count in counts.items() if count is None]
    return [*sorted(known, key=lambda name: -known[name]), *unknown]


@click.command(cls=OperatorCommand, examples=("pyasynq types", "pyasynq types -o json"))
@operator_command
async def types(session: Session) -> None:
    """List the task types that workers have described within 30 days."""

    async def gather() -> list[Record]:
        infos = await session.operator.task_types()
        return [describe_type(info) for info in sorted(infos, key=lambda one: one.type)]

    await session.show(TYPES, gather)


@click.command(
    cls=OperatorCommand,
    examples=("pyasynq events", "pyasynq events -q mail --kind archived --for 10m -o jsonl"),
)
@_queues
@click.option("--kind", "kinds", metavar="NAME", multiple=True, help="Only these events; may be repeated.")
@click.option(
    "--type", "task_types", metavar="NAME", multiple=True, help="Only tasks of this type; may be repeated."
)
@click.option("--for", "seconds", type=DURATION, help="End after this time, as in 10m.")
@operator_command
async def events(
    session: Session,
    queues: Sequence[str],
    kinds: Sequence[str],
    task_types: Sequence[str],
    seconds: float | None,
) -> None:
    """Print events of tasks live, until Ctrl-C. Servers publish events only if `publish_events` is set."""
    printer = session.printer
    if printer.format == "json":
        printer = Printer("jsonl", printer.fields)
    has_header = printer.has_header
    async for event in session.operator.follow(
        queues or None, kinds=kinds, types=task_types, seconds=seconds
    ):
        line = Printer(printer.format, printer.fields, has_header=has_header, is_utc=printer.is_utc)
        click.echo(line.format_records(EVENTS, [describe_event(event)]), nl=False)
        has_header = False


@click.command(
    cls=OperatorCommand,
    examples=(
        "pyasynq audit",
        "pyasynq audit --since 24h --verb delete_task -o json",
        "pyasynq audit --refused",
    ),
)
@click.option("--user", default="", metavar="NAME", help="Only what this user did.")
@click.option("--verb", default="", metavar="NAME", help="Only this verb.")
@click.option("-q", "--queue", default="", metavar="PATTERN", help="Only queues that match, as in mail-*.")
@click.option("--text", default="", help="Only entries whose reason, details or error contain this.")
@click.option(
    "--since", type=DURATION, metavar="DURATION", help="Only entries not older than this, as in 24h."
)
@click.option("--refused", is_flag=True, help="Show the calls that were refused.")
@click.option(
    "--limit", type=click.IntRange(1, _MOST_ENTRIES), default=50, show_default=True, help="Entries."
)
@operator_command
async def audit(
    session: Session,
    user: str,
    verb: str,
    queue: str,
    text: str,
    since: float | None,
    limit: int,
    *,
    refused: bool,
) -> None:
    """Show the audit log: who changed what and why, the newest first."""
    from pyasynq.operations import AuditFilters  # noqa: PLC0415 - other commands here need no audit

    after = None if since is None else datetime.now(UTC) - timedelta(seconds=since)
    filters = AuditFilters(user=user, verb=verb, queue=queue, text=text, since=after)
    read = session.operator.refusals if refused else session.operator.audit

    async def gather() -> list[Record]:
        page = await read(filters, limit=limit)
        return [describe_audit_entry(entry) for entry in page.entries]

    await session.show(AUDIT, gather)
