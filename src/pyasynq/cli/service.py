"""The command `pyasynq service`: starts the task service with the settings of a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from pyasynq.cli.log_options import log_options
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.cli.process_options import LISTENER, SUPERVISED, inherited_socket

PARTS: Final = ("api", "hosted", "dashboard")
_MOST_PROCESSES: Final = 256


@click.command(
    cls=OperatorCommand,
    examples=(
        "pyasynq service service.toml",
        "pyasynq service service.toml --check",
        "pyasynq service service.toml --processes 4",
        "pyasynq service service.toml --only api",
    ),
)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--redis",
    envvar="PYASYNQ_REDIS_URL",
    metavar="URL",
    help="Where Redis is, in place of what the file says.",
)
@click.option("--only", type=click.Choice(PARTS), help="Run one part of the service alone.")
@click.option(
    "--processes",
    type=click.IntRange(1, _MOST_PROCESSES),
    help="Serve with this many processes; one that dies is replaced.",
)
@click.option(
    "--access-log/--no-access-log",
    default=True,
    show_default=True,
    help="Write a line for each request of a program.",
)
@click.option("--check", is_flag=True, help="Read the file, say what is wrong with it, and exit.")
@click.option(SUPERVISED, type=int, callback=inherited_socket, hidden=True)
@click.option(LISTENER, type=int, callback=inherited_socket, hidden=True)
@log_options
def service(file: Path, redis: str | None, only: str | None, *, check: bool, **options: Any) -> None:
    """Serve tasks over HTTP to programs and workers in any language.

    An address that other machines can reach requires API keys; `pyasynq key make` makes them.
    HUP reads the file again. TERM ends waiting requests and lets others finish; a second one cuts them off.

    Exit codes: 0 stopped; 1 it could not start; 2 wrong usage; 5 Redis does not answer, or the processes of
    --processes keep dying.
    """
    from pyasynq.cli.service_start import start_service  # noqa: PLC0415 - --help does without

    raise SystemExit(start_service(file, redis, only, check=check, options=options))
