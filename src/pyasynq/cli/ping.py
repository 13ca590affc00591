"""The command `pyasynq ping`."""

from __future__ import annotations

import os
import time

import click

from pyasynq._app.sending import REDIS_URL_VARIABLE
from pyasynq._visible_text import visible
from pyasynq.app import App


@click.command()
@click.option("--redis", "url", metavar="URL", help="Where Redis is; PYASYNQ_REDIS_URL unless given.")
def ping(url: str | None) -> None:
    """Ask Redis for a sign of life; exit with 1 if there is none, 2 for wrong usage."""
    if not url and not os.environ.get(REDIS_URL_VARIABLE):
        raise click.UsageError(
            "which Redis? Write  pyasynq ping --redis redis://localhost:6379/0,  "
            f"or set {REDIS_URL_VARIABLE} in the environment"
        )
    app = App(url)
    began = time.perf_counter()
    try:
        app.ping_sync()
    finally:
        app.close_sync()
    click.echo(f"Redis at {visible(app.address)} answered in {(time.perf_counter() - began) * 1000:.1f} ms.")
