"""The command `pyasynq doctor`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._exit_codes import EXIT_ABORTED, EXIT_CLEAN, EXIT_FAILED, EXIT_UNREACHABLE
from pyasynq._human_text import some
from pyasynq._visible_text import escape_json, visible
from pyasynq.cli.connection_options import connection_options
from pyasynq.cli.output.printer import terminal_width, wrap_text
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq.cli.connection import Connection
    from pyasynq.doctor import Finding

_SHOWN_SUBJECTS: Final = 5
_INDENT: Final = "    "
_COLORS: Final = {"error": "red", "warning": "yellow", "notice": "cyan"}
"""Colors of severities."""


@click.command()
@connection_options
@click.option("--queue", "queues", metavar="NAME", multiple=True, help="Only this queue; may be repeated.")
@click.option("--fix", is_flag=True, help="Repair what can be repaired, after a question.")
@click.option("--yes", is_flag=True, help="With --fix: do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with the list `findings`.")
@click.option(
    "--archive-max-size",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="How many archived tasks a queue keeps. Unless given: 9,999, and a fuller archive is not trimmed.",
)
@click.option(
    "--unowned-locks",
    is_flag=True,
    help='Also find locks whose task is gone. Not for those who enqueue with until="expiry".',
)
@click.option(
    "--pause",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Between the two looks that each finding takes.",
)
def doctor(connection: Connection, *, fix: bool, yes: bool, as_json: bool, **settings: Any) -> None:
    """Find inconsistent task data in a live Redis, and repair it while workers run.

    Without --fix nothing is changed. A healthy Redis, however busy, gives no findings.

    Exit codes: 0 nothing but notices, or all findings repaired; 1 findings; 2 wrong usage; 5 it could not be
    checked; 130 stopped with Ctrl-C. After Ctrl-C, repairs that were made are listed, and they stay.
    """
    if yes and not fix:
        raise click.UsageError("--yes answers the question of --fix; give both")
    if fix and not yes and (as_json or not sys.stdin.isatty()):
        raise click.UsageError(
            "--fix asks before it writes, and there is no terminal to answer at; give --yes too"
        )
    try:
        code = asyncio.run(_visit(connection.url, settings, fix=fix, yes=yes, as_json=as_json))
    except PyasynqError as error:
        click.echo(f"Error: could not check: {visible(error)}", err=True)
        code = EXIT_UNREACHABLE
    except KeyboardInterrupt:
        click.echo("Stopped; what was repaired so far stays repaired.", err=True)
        code = EXIT_ABORTED
    raise SystemExit(code)


async def _visit(url: str, settings: dict[str, Any], *, fix: bool, yes: bool, as_json: bool) -> int:
    from pyasynq.doctor import Doctor  # noqa: PLC0415 - --help does without

    async with Doctor(url, **settings) as visitor:
        findings = await visitor.examine(progress=_progress("keys"))
        if not as_json:
            _print(findings, visitor.skipped)
        repairable = [one for one in findings if one.is_repairable]
        if fix and repairable and (yes or _ask_to_repair(len(repairable))):
            done: list[Finding] = []
            try:
                findings = await visitor.repair(findings, progress=_progress("findings"), report=done.append)
            except asyncio.CancelledError:
                _print_repairs(done, visitor.skipped, as_json=as_json)
                raise
            _print_repairs(findings, visitor.skipped, as_json=as_json)
        elif as_json:
            _print_json(findings, visitor.skipped)
    return EXIT_FAILED if any(_matters(one) for one in findings) else EXIT_CLEAN


def _matters(finding: Finding) -> bool:
    return finding.severity != "notice" and not finding.is_repaired


def _ask_to_repair(number: int) -> bool:
    return click.confirm(f"Repair {number} of these findings now?", err=True)


def _progress(unit: str) -> Callable[[int, int], None] | None:
    """Return a callback that shows on stderr how many of all units are done; None without a terminal."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        click.echo(f"\r{done:,} of {total:,} {unit}", nl=done >= total, err=True)

    return show


def _print(findings: Sequence[Finding], skipped: Sequence[str]) -> None:
    queue = None
    for finding in findings:
        if finding.queue != queue:
            queue = finding.queue
            _echo(f"\nQueue {visible(queue)}" if queue else "\nRedis and servers", bold=True)
        number = f" ({len(finding.subjects):,})" if len(finding.subjects) > 1 else ""
        _echo(f"  {finding.severity}: {finding.kind}{number}", fg=_COLORS[finding.severity])
        _echo_indented(visible(finding.explanation))
        _echo_indented(some(finding.subjects, _SHOWN_SUBJECTS))
        _echo_indented(f"--fix: {finding.repair}." if finding.repair else "--fix does nothing about it.")
    if not findings:
        click.echo("No findings.")
    for what in skipped:
        click.echo(f"Not looked at: {visible(what)}.", err=True)


def _echo_indented(text: str) -> None:
    """Print text with an indent. In a terminal it is wrapped, but ids are not broken."""
    width = terminal_width()
    lines = [text] if width is None else wrap_text(text, width - len(_INDENT))
    click.echo("\n".join(_INDENT + line for line in lines))


def _print_json(findings: Sequence[Finding], skipped: Sequence[str]) -> None:
    content = {"findings": [one.to_json() for one in findings], "skipped": skipped}
    click.echo(escape_json(json.dumps(content, indent=2)))


def _print_repairs(findings: Sequence[Finding], skipped: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        _print_json(findings, skipped)
        return
    click.echo()
    for finding in findings:
        if finding.is_repairable:
            where = f" in queue {visible(finding.queue)}" if finding.queue else ""
            done, of = len(finding.repaired), len(finding.subjects)
            note = "" if done == of else "; the others have changed meanwhile, or need an option"
            click.echo(f"Repaired {done:,} of {of:,}: {finding.kind}{where}{note}.")


def _echo(text: str, **style: Any) -> None:
    click.secho(text, color=False if "NO_COLOR" in os.environ else None, **style)
