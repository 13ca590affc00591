"""The commands `pyasynq attention`: findings, their snoozes, and objectives of queues."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._exit_codes import EXIT_CLEAN, EXIT_FAILED
from pyasynq._face_records.attention import FINDINGS, SEVERITY_COLORS, describe_finding
from pyasynq._human_text import counted, duration
from pyasynq._visible_text import visible
from pyasynq.cli.actions import DURATION, command_line, reason_option
from pyasynq.cli.completion import complete_findings, complete_queues
from pyasynq.cli.nouns import NounGroup
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.printer import terminal_width
from pyasynq.errors import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.cli.output.cells import Moment
    from pyasynq.cli.output.printer import Printer
    from pyasynq.operations import Attention, AttentionFinding

_MOST_OF_A_KIND: Final = 10
"""Maximum number of findings of one detector in a table. Without workers, for example, each queue has one."""
_NONE: Final = "none"
_COMMAND: Final = "pyasynq "
_INDENT: Final = "   "
_WIDEST: Final = 100
"""Maximum number of characters in a line of text."""


def build_command(session: Session, finding: AttentionFinding) -> str:
    """Return the command line of a finding's action, with `--redis` if the session needs it."""
    command = finding.action.command
    if finding.action.verb and command.startswith(_COMMAND):
        return command_line(session, command.removeprefix(_COMMAND))
    return command


@click.group(cls=NounGroup, aliases={"ls": "list"}, default="list")
def attention() -> None:
    """List problems that need an operator now, each with the one action that resolves it.

    Without a command it runs `list`, whose options  pyasynq attention list --help  shows.
    """


@attention.command(
    "list",
    examples=(
        "pyasynq attention",
        "pyasynq attention --severity 4 -o json",
        "pyasynq attention --watch",
    ),
)
@click.option(
    "--severity", type=click.IntRange(1, 5), default=1, show_default=True, help="Only what is as severe."
)
@click.option("-q", "--queue", metavar="NAME", shell_complete=complete_queues, help="Only this queue.")
@click.option("--snoozed", is_flag=True, help="Show snoozed findings as well.")
@click.option("--all", "is_whole", is_flag=True, help="Show each of many findings of the same kind.")
@operator_command
async def list_findings(
    session: Session, severity: int, queue: str | None, *, snoozed: bool, is_whole: bool
) -> int:
    """List problems (findings) that need an operator now, the most severe first.

    A table has ten findings of each kind, and stderr says how many there are; other formats have all.

    Exit codes: 0 nothing needs attention; 1 there are findings that are not snoozed; the others as always.
    """
    is_quiet = True

    async def gather() -> list[Record]:
        nonlocal is_quiet
        found = await session.operator.attention()
        _tell_unreadable(found)
        shown = [
            one
            for one in (*found.findings, *(found.snoozed if snoozed else ()))
            if one.severity >= severity and queue in {None, one.queue}
        ]
        is_quiet = all(one.snooze for one in shown)
        if session.is_summary and not is_whole:
            shown = _keep_some_of_each(shown)
        return [describe_finding(one) | {"command": build_command(session, one)} for one in shown]

    in_words = session.printer.format == "table" and session.printer.fields is None
    await session.show(FINDINGS, gather, describe_in_words if in_words else None)
    return EXIT_CLEAN if is_quiet else EXIT_FAILED


def _keep_some_of_each(findings: Sequence[AttentionFinding]) -> list[AttentionFinding]:
    """Return the first findings of each detector; print on stderr how many were left out."""
    counts: Counter[str] = Counter()
    kept = []
    for one in findings:
        counts[one.detector] += 1
        if counts[one.detector] <= _MOST_OF_A_KIND:
            kept.append(one)
    for detector, count in counts.items():
        if count > _MOST_OF_A_KIND:
            of_all = counted(count, f"{detector} finding")
            click.echo(
                f"Only the first {_MOST_OF_A_KIND} of {of_all} are shown; --all shows all of them.", err=True
            )
    return kept


def describe_in_words(record: Mapping[str, Any], printer: Printer) -> str:
    """Format a finding as lines of text; command lines are not wrapped, so that they can be pasted."""
    moment = printer.moment()
    place = record["queue"] or record["subject"]
    since = f", since {moment.relative(record['since'])}" if record["since"] else ""
    head = f"{record['severity']}  {record['detector']}"
    lines = [
        f"{printer.style(head, SEVERITY_COLORS.get(record['severity']))}  {record['id']}"
        + (f"  {visible(place)}" if place else "")
        + since,
        *_wrap(visible(record["sentence"])),
    ]
    if record["query"]:
        lines.append(f"   Tasks: pyasynq search {visible(shlex.quote(record['query']))}")
    lines.append(f"   {visible(record['action'])}" + (":" if record["command"] else "."))
    if record["command"]:
        lines.append(f"     {visible(record['command'])}")
    if record["snoozed_until"]:
        lines.append(_describe_snooze(record, moment))
    return "".join(line + "\n" for line in lines)


def _wrap(sentence: str) -> list[str]:
    width = min(terminal_width() or _WIDEST, _WIDEST)
    return textwrap.wrap(sentence, width, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _describe_snooze(record: Mapping[str, Any], moment: Moment) -> str:
    until = moment.exact(record["snoozed_until"])
    return f"   Snoozed until {until} by {visible(record['snoozed_by'])}: {visible(record['snooze_reason'])}"


def _tell_unreadable(found: Attention) -> None:
    for name, why in found.unreadable.items():
        click.echo(f"Error: queue {visible(name)} cannot be read: {visible(why)}", err=True)


_finding_argument = click.argument("finding", metavar="ID", shell_complete=complete_findings)


@attention.command(
    "snooze", examples=('pyasynq attention snooze 1f0c9a2b --for 2h --reason "migration until noon"',)
)
@_finding_argument
@click.option("--for", "time", type=DURATION, required=True, help="For how long, at most 30d.")
@click.option("--reason", metavar="TEXT", required=True, help="Why it needs no attention until then.")
@operator_command
async def snooze_finding(session: Session, finding: str, time: float, reason: str) -> None:
    """Snooze a finding: hide it for a time, for all users."""
    one = await _find_finding(session, finding)
    snooze = await session.operator.snooze_finding(
        one.detector, one.queue, subject=one.subject, duration=time, reason=reason
    )
    until = session.printer.moment().exact(snooze.until)
    click.echo(f"Snoozed {_name(one)} for {duration(time)}, until {until}.", err=True)


@attention.command("unsnooze", examples=("pyasynq attention unsnooze 1f0c9a2b",))
@_finding_argument
@operator_command
async def unsnooze_finding(session: Session, finding: str) -> None:
    """End the snooze of a finding."""
    one = await _find_finding(session, finding)
    if not await session.operator.unsnooze_finding(one.detector, one.queue, subject=one.subject):
        raise click.ClickException(f"{_name(one)} is not snoozed")
    click.echo(f"Ended the snooze of {_name(one)}.", err=True)


async def _find_finding(session: Session, digits: str) -> AttentionFinding:
    """Return the current finding with this id, short or whole.

    Raises:
        click.ClickException: if no finding or more than one has this id.
    """
    attention = await session.operator.attention()
    known = [*attention.findings, *attention.snoozed]
    found = [one for one in known if digits in {one.short_id, one.id}]
    if len(found) == 1:
        return found[0]
    if found:
        raise click.ClickException(f"{counted(len(found), 'finding')} have the id {visible(digits)}")
    likely = nearest(digits, [one.short_id for one in known])
    raise click.ClickException(
        f"there is no finding {visible(digits)} now{likely}; pyasynq attention --snoozed has the ids"
    )


def _name(finding: AttentionFinding) -> str:
    place = finding.queue or finding.subject
    return finding.detector + (f" of {visible(place)}" if place else "")


class ObjectiveType(click.ParamType[Any]):
    """Parameter type for a wait objective: a duration, or `none`."""

    name = "duration|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the duration in seconds, or the string `none`: click uses None for a missing argument."""
        return value if value == _NONE else DURATION.convert(value, param, ctx)


@attention.command(
    "wait-objective",
    examples=(
        'pyasynq attention wait-objective mail 30s --reason "promised to support"',
        "pyasynq attention wait-objective mail none",
    ),
)
@click.argument("queue", shell_complete=complete_queues)
@click.argument("objective", metavar="SECONDS|none", type=ObjectiveType())
@reason_option
@operator_command
async def set_wait_objective(session: Session, queue: str, objective: Any, reason: str) -> None:
    """Set the wait objective of a queue: how long its next task may be pending (default: 5 minutes)."""
    seconds = None if objective == _NONE else objective
    await session.operator.set_wait_objective(queue, seconds, reason=reason)
    told = "has no objective of its own now" if seconds is None else f"may be pending for {duration(seconds)}"
    whose = "Queue" if seconds is None else "The next task of queue"
    click.echo(f"{whose} {visible(queue)} {told}.", err=True)
