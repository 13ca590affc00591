"""Decorator and session of operator commands: common options, one-sentence errors and exit codes."""

from __future__ import annotations

import functools
import json
import logging
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._exit_codes import (
    EXIT_ABORTED,
    EXIT_CLEAN,
    EXIT_FAILED,
    EXIT_REFUSED,
    EXIT_UNREACHABLE,
)
from pyasynq._visible_text import escape_json, visible, visible_lines
from pyasynq.cli.connection_options import connection_options
from pyasynq.cli.garbage_collection import collect_hardly_ever
from pyasynq.cli.output.printer import Printer, output_options
from pyasynq.errors import (
    PermissionDeniedError,
    PyasynqError,
    RedisAuthenticationError,
    RedisPermissionError,
    RedisUnavailableError,
    ReplyLostError,
    error_code,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pyasynq._face_records.fields import View
    from pyasynq.cli.connection import Connection
    from pyasynq.cli.output.printer import Describe
    from pyasynq.operations import Operator

_CLEAR: Final = "\x1b[H\x1b[J"
"""Control sequence: cursor to the top left, and the screen below it cleared (ECMA-48, CUP and ED)."""
_DEFAULT_WATCH: Final = 2.0
_EXIT_CODES: Final[tuple[tuple[type[PyasynqError], int], ...]] = (
    (RedisUnavailableError, EXIT_UNREACHABLE),
    (RedisAuthenticationError, EXIT_UNREACHABLE),
    (ReplyLostError, EXIT_UNREACHABLE),
    (RedisPermissionError, EXIT_REFUSED),
    (PermissionDeniedError, EXIT_REFUSED),
)


@dataclass(frozen=True, slots=True)
class Session:
    """Context of an operator command.

    Attributes:
        operator: `Operator` that makes the calls, on behalf of the person at this terminal.
        connection: connection to the Redis on which the operator works.
        printer: how the result is printed.
        watch: seconds between two reads of the records; None reads them once.
    """

    operator: Operator
    connection: Connection
    printer: Printer
    watch: float | None = None

    @property
    def is_summary(self) -> bool:
        """Whether the output is a default table for people, which may have less detail than the records."""
        is_for_programs = self.watch is not None and not sys.stdout.isatty()
        return self.printer.format == "table" and self.printer.fields is None and not is_for_programs

    async def show(
        self,
        view: View,
        gather: Callable[[], Awaitable[Sequence[Mapping[str, Any]]]],
        describe: Describe | None = None,
    ) -> None:
        """Print records once or, with `--watch`, repeatedly.

        A terminal is redrawn each time. Elsewhere each changed record is printed as a JSON line.

        Args:
            view: fields of the records, and the sentence to print if there are none.
            gather: function that reads the records.
            describe: formats a record as lines of text, instead of a table row.
        """
        if self.watch is None:
            self.printer.records(view, await gather(), describe)
            return
        from asyncio import sleep  # noqa: PLC0415 - help and completion need no asyncio

        seen: dict[Any, str] = {}
        while True:
            records = await gather()
            if sys.stdout.isatty():
                text = self.printer.format_records(view, records, describe) or f"{view.empty}\n"
                click.echo(_CLEAR + text, nl=False, color=True)
            else:
                self._print_changes(view, records, seen)
            await sleep(self.watch)

    def _print_changes(self, view: View, records: Sequence[Mapping[str, Any]], seen: dict[Any, str]) -> None:
        lines = Printer("jsonl", self.printer.fields)
        for record in records:
            line = lines.format_records(view, [record])
            if seen.get(record[view.key]) != line:
                seen[record[view.key]] = line
                click.echo(line, nl=False)
        sys.stdout.flush()


def operator_command(function: Callable[..., Awaitable[int | None]]) -> Callable[..., None]:
    """Decorate a coroutine function `(session, ...)` as an operator command, with the common options.

    The function returns the exit code; None means 0.
    """

    @connection_options
    @output_options
    @click.option(
        "--watch",
        type=click.FloatRange(min=0.2),
        is_flag=False,
        flag_value=_DEFAULT_WATCH,
        metavar="[SECONDS]",
        help="Look again and again, every 2 seconds unless given.",
    )
    @click.option("--debug", is_flag=True, help="Show the traceback of an error.")
    @functools.wraps(function)
    def wrapped(
        connection: Connection, printer: Printer, watch: float | None, *, debug: bool, **arguments: Any
    ) -> None:
        # Imported late: help and completion need no Redis.
        from pyasynq.cli.redis_without_metrics import import_redis_without_metrics  # noqa: PLC0415 - as above

        collect_hardly_ever()
        import_redis_without_metrics()
        from pyasynq.operations import Operator, User  # noqa: PLC0415 - as above

        async def visit() -> int | None:
            async with Operator(connection.url, User.local(), read_only=connection.read_only) as operator:
                return await function(Session(operator, connection, printer, watch), **arguments)

        raise SystemExit(run(visit, as_json=not printer.is_for_people, debug=debug))

    return wrapped


def run(visit: Callable[[], Awaitable[int | None]], *, as_json: bool, debug: bool) -> int:
    """Run a coroutine function and return its exit code; an error of pyasynq is printed as one sentence."""
    import asyncio  # noqa: PLC0415 - help and completion need none

    # Silence the log: it would repeat the errors (printed below) and the changes (in the audit).
    logging.getLogger("pyasynq").addHandler(logging.NullHandler())
    try:
        return asyncio.run(_await_visit(visit)) or EXIT_CLEAN
    except PyasynqError as error:
        if debug:
            raise
        tell_error(error, as_json=as_json)
        return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), EXIT_FAILED)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        click.echo("Interrupted.", err=True)
        return EXIT_ABORTED


async def _await_visit(visit: Callable[[], Awaitable[int | None]]) -> int | None:
    return await visit()


def tell_error(error: PyasynqError, *, as_json: bool) -> None:
    """Write an error to stderr: as a sentence or, for programs, as a JSON object with code and message."""
    user_traceback: str = getattr(error, "user_traceback", "")
    if user_traceback:
        click.echo(visible_lines(user_traceback), err=True, nl=False)
    if as_json:
        content = {"error": {"code": error_code(error), "message": visible(error)}}
        click.echo(escape_json(json.dumps(content, ensure_ascii=False)), err=True)
    else:
        click.echo(f"Error: {visible(error)}", err=True)
