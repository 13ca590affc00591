"""Helpers shared by commands that change something: confirmation, reasons, durations, results."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from pyasynq._exit_codes import EXIT_CLEAN, EXIT_FAILED, EXIT_PARTLY, EXIT_REFUSED
from pyasynq._visible_text import visible
from pyasynq.cli.connection import URL_VARIABLE
from pyasynq.cli.operator_command import tell_error
from pyasynq.errors import PyasynqError, RedisError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pyasynq.cli.operator_command import Session

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
TYPED_FROM: Final = 1_000
"""Number of tasks above which a change is confirmed by typing the number."""


class DurationType(click.ParamType[float]):
    """Parameter type for a duration: seconds, or numbers with units as in `1h30m`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse a duration into seconds."""
        if isinstance(value, int | float):
            return float(value)
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value)
        parts = _PART.findall(value)
        if not parts or "".join(number + unit for number, unit in parts) != value:
            self.fail(
                f"{value!r} is not a duration; write seconds, or units as in 90s, 15m, 1h30m, 2d", param, ctx
            )
        return sum(float(number) * _UNITS[unit] for number, unit in parts)


DURATION: Final = DurationType()


class TimeType(click.ParamType[datetime]):
    """Parameter type for a timestamp with a time zone (RFC 3339)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Parse a timestamp into an aware datetime."""
        try:
            at = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            self.fail(f"{value!r} is not a time with a zone; write it as 2026-11-25T14:05:00Z", param, ctx)
        return at


TIME: Final = TimeType()

reason_option = click.option(
    "--reason", metavar="TEXT", default="", help="Why; it is kept in the audit with your name."
)
outcome_option = click.option(
    "--then",
    "outcome",
    type=click.Choice(["retry", "archive", "delete"]),
    default="retry",
    show_default=True,
    help="What is done with the task.",
)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def is_asked(*, yes: bool) -> bool:
    """Return whether the user is asked to confirm a change: if stdin is a terminal, and without `--yes`."""
    return not yes and sys.stdin.isatty()


def ask_user(question: str) -> str:
    """Print a question on stderr and return the line typed; an empty string at the end of stdin.

    Raises:
        KeyboardInterrupt: for Ctrl-C. Python's own signal handler is set meanwhile, because the handler of a
            running event loop would not end the reading.
    """
    click.echo(f"{question} ", err=True, nl=False)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        click.echo(err=True)
        raise
    finally:
        signal.signal(signal.SIGINT, handler)
    if not line:
        click.echo(err=True)
    return line.strip()


def ask_reason(what: str) -> str:
    """Ask for the reason of an action that the user has confirmed.

    Raises:
        click.UsageError: if stdin is not a terminal.
        SystemExit: with `EXIT_REFUSED`, if the user gives no reason.
    """
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what}: say why with --reason; it is kept in the audit")
    reason = ask_user("Why? (kept in the audit)")
    if not reason:
        refuse()
    return reason


def refuse() -> NoReturn:
    """Print that nothing was changed, and exit with `EXIT_REFUSED`."""
    click.echo("Nothing was changed.", err=True)
    raise SystemExit(EXIT_REFUSED)


def place_of(session: Session) -> str:
    """Return the profile's name in its color, then the address of Redis; without a profile, the address."""
    connection = session.connection
    place = visible(session.operator.address)
    if not connection.name:
        return place
    has_color = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    name = visible(connection.name)
    return f"{click.style(name, fg=connection.color or None, bold=True) if has_color else name} ({place})"


def command_line(session: Session, command: str) -> str:
    """Return a command line to copy: `pyasynq COMMAND`, with `--redis PROFILE` unless it is the default."""
    name = session.connection.name
    is_default = not name or os.environ.get(URL_VARIABLE) == name
    return f"pyasynq {command}" + ("" if is_default else f" --redis {shlex.quote(visible(name))}")


def confirm_change(session: Session, what: str, *, number: int, yes: bool) -> None:
    """Ask before a change: `Delete 12 tasks in redis.example:6379 (prod)?`.

    A change of more than 1,000 tasks is confirmed by typing their number. With `confirm = "type-name"` in the
    profile, each change is confirmed by typing the profile's name.

    Raises:
        SystemExit: with `EXIT_REFUSED`, if the user does not agree, or stdin is not a terminal.
    """
    if yes:
        return
    connection = session.connection
    place = place_of(session)
    if not sys.stdin.isatty():
        click.echo(f"{what} in {place}: give --yes, since no terminal can be asked.", err=True)
        raise SystemExit(EXIT_REFUSED)
    if connection.name and connection.confirm == "type-name":
        expected = connection.name
        typed = ask_user(f"{what} in {place}?\nType the name of the profile:")
    elif number > TYPED_FROM:
        expected = f"{number:,}"
        typed = ask_user(f"{what} in {place}?\nType the number of tasks:")
    else:
        expected = ""
        typed = ask_user(f"{what} in {place}? [y/N]").lower()
    if typed.replace(",", "") != expected.replace(",", "") if expected else typed not in {"y", "yes"}:
        if expected and typed:
            click.echo(f"That is not {visible(expected)}.", err=True)
        refuse()


async def for_each(subjects: Sequence[str], act: Callable[[str], Awaitable[None]]) -> int:
    """Call a function for each subject; print the errors, and return the exit code.

    Raises:
        RedisError: at the first failure of Redis, since calls for the other subjects would fail as well.
    """
    failed = 0
    for subject in dict.fromkeys(subjects):
        try:
            await act(subject)
        except RedisError:
            raise
        except PyasynqError as error:
            tell_error(error, as_json=False)
            failed += 1
    if not failed:
        return EXIT_CLEAN
    return EXIT_FAILED if failed == len(set(subjects)) else EXIT_PARTLY
