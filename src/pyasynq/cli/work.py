"""The command `pyasynq work`: runs a local command for each task that it leases from the task service."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import click

from pyasynq._exit_codes import EXIT_UNREACHABLE
from pyasynq._visible_text import visible
from pyasynq.cli.actions import DURATION
from pyasynq.cli.command_process import KEY_VARIABLE
from pyasynq.cli.completion import complete_queues
from pyasynq.cli.event_loop import run_until_done
from pyasynq.cli.log_options import log_options, set_up_logging
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.errors import ConfigurationError

_SERVICE_VARIABLE: Final = "PYASYNQ_SERVICE"
_ADDRESS: Final = "http://task-queue:8080"
_USAGE: Final = "pyasynq work QUEUE... -- COMMAND ARG..."
_COMMAND: Final = "pyasynq.work.command"
"""Key under which `click.Context.meta` has the words after `--`."""
_MOST_QUEUES: Final = 100
_SHORTEST_LEASE: Final = 3.0
_LONGEST_LEASE: Final = 43_200.0
_LONGEST_GRACE: Final = 300.0


class WordsAfterDashes(OperatorCommand):
    """Command class that does not parse the words after `--`: they are the user's own command line."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words after the first `--`, and parse those before it."""
        own, program = args, None
        if "--" in args:
            place = args.index("--")
            own, program = args[:place], args[place + 1 :]
        ctx.meta[_COMMAND] = program
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of the usage line."""
        return [*super().collect_usage_pieces(ctx), "-- COMMAND [ARG]..."]


@click.command(
    cls=WordsAfterDashes,
    examples=(
        "pyasynq work resize --service http://task-queue:8080 -- ./resize.sh",
        "pyasynq work mails reports --concurrency 4 --key-file /run/secrets/key -- php handle.php",
    ),
)
@click.argument("queues", metavar="QUEUE...", nargs=-1, shell_complete=complete_queues)
@click.option(
    "--service",
    envvar=_SERVICE_VARIABLE,
    metavar="URL",
    help=f"Address of the task service. [env: {_SERVICE_VARIABLE}]",
)
@click.option(
    "--key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"File with the API key, in place of the variable {KEY_VARIABLE}.",
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    help="Number of commands that run at once.",
)
@click.option(
    "--lease",
    type=DURATION,
    default="30s",
    show_default=True,
    help="Length of a lease: a dead worker's tasks come back after it, a cancellation is seen in a third.",
)
@click.option(
    "--grace",
    type=DURATION,
    default="5s",
    show_default=True,
    help="Time between TERM and KILL for a command that has to end.",
)
@log_options
def work(queues: tuple[str, ...], service: str | None, key_file: Path | None, **options: Any) -> None:
    """Lease tasks over HTTP, and run a local command for each of them.

    The command gets the payload on stdin, and PYASYNQ_TASK_ID, PYASYNQ_TASK_TYPE, PYASYNQ_QUEUE,
    PYASYNQ_ATTEMPT and PYASYNQ_DEADLINE in its environment. Its stdout is the result, up to 64 kB.
    Its exit code is the outcome: 0 done; 75 tried again; 64, 65, 77 and 78 archived; any other one, and a
    signal, tried again. The end of its stderr is the text of the error.

    The lease is renewed while the command runs. At a cancellation and at the task's timeout it gets TERM, and
    KILL after --grace; so do all processes of its group.

    TERM and Ctrl-C take no more tasks and let commands finish. A second one ends the commands, and puts their
    tasks back to the front.

    Exit codes: 0 stopped; 1 the service refuses this worker; 2 wrong usage; 3 commands were ended, see above;
    5 the service did not answer.
    """
    if sys.platform == "win32":
        raise click.ClickException("this worker does not run on Windows")
    program = _check_program(click.get_current_context().meta[_COMMAND])
    _check(queues, options)
    if not service or not service.startswith(("http://", "https://")):
        raise click.UsageError(
            f"where is the task service? Give --service URL or set {_SERVICE_VARIABLE}, as in {_ADDRESS}"
        )
    key = os.environ.get(KEY_VARIABLE, "") if key_file is None else _read_key(key_file)
    from pyasynq.cli.command_attempt import CommandWorkerSettings  # noqa: PLC0415 - only to run
    from pyasynq.cli.command_worker import CommandWorker  # noqa: PLC0415 - as above
    from pyasynq.sdk.errors import ServiceError  # noqa: PLC0415 - as above

    settings = CommandWorkerSettings(
        queues=tuple(dict.fromkeys(queues)),
        program=program,
        concurrency=options["concurrency"],
        lease=options["lease"],
        grace=options["grace"],
    )
    set_up_logging(options)
    try:
        code = run_until_done(CommandWorker.run_with(service, key, settings))
    except ConfigurationError as error:
        raise click.UsageError(visible(error)) from None
    except ServiceError as error:
        if error.status:
            raise
        click.echo(f"Error: {visible(error)}", err=True)
        raise SystemExit(EXIT_UNREACHABLE) from None
    raise SystemExit(code)


def _check(queues: tuple[str, ...], options: dict[str, Any]) -> None:
    """Raise `click.UsageError` for queues and options that the task service or a worker does not accept."""
    if not queues:
        raise click.UsageError(f"which queues? Write  {_USAGE}")
    if len(set(queues)) > _MOST_QUEUES:
        raise click.UsageError(f"a worker takes tasks of {_MOST_QUEUES} queues at most; start several")
    if not _SHORTEST_LEASE <= options["lease"] <= _LONGEST_LEASE:
        raise click.UsageError("--lease is between 3s and 12h")
    if options["grace"] > _LONGEST_GRACE:
        raise click.UsageError("--grace is 5m at most")


def _check_program(program: list[str] | None) -> tuple[str, ...]:
    """Return the absolute path of the program, and its arguments; refuse a file that is not executable."""
    if not program:
        raise click.UsageError(f"which command runs the tasks? Write  {_USAGE}")
    found = shutil.which(program[0])
    if found is None:
        raise click.UsageError(f"there is no program {visible(program[0])!r}, or it may not be executed")
    return (str(Path(found).absolute()), *program[1:])


def _read_key(file: Path) -> str:
    """Return the API key in a file, without spaces and line breaks around it."""
    try:
        key = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise click.UsageError(f"--key-file {visible(file)} cannot be read: {reason}") from None
    if not key:
        raise click.UsageError(f"--key-file {visible(file)} is empty")
    return key
