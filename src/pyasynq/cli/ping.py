"""The command `pyasynq ping`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from pyasynq._exit_codes import EXIT_UNREACHABLE
from pyasynq._visible_text import visible
from pyasynq.cli.connection_options import connection_options
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from pyasynq.cli.connection import Connection


@click.command(
    cls=OperatorCommand, examples=("pyasynq ping", "pyasynq ping --redis redis://localhost:6379/0")
)
@connection_options
def ping(connection: Connection) -> None:
    """Ask Redis for a sign of life; exit with 5 if there is none, 2 for wrong usage."""
    from pyasynq.app import App  # noqa: PLC0415 - --help does without

    app = App(connection.url)
    began = time.perf_counter()
    try:
        app.ping_sync()
    except PyasynqError as error:
        click.echo(f"Error: {visible(error)}", err=True)
        raise SystemExit(EXIT_UNREACHABLE) from error
    finally:
        app.close_sync()
    click.echo(f"Redis at {visible(app.address)} answered in {(time.perf_counter() - began) * 1000:.1f} ms.")
