"""The command `pyasynq ping`."""

from __future__ import annotations

import time

import click

from pyasynq.app import App


@click.command()
@click.option("--redis", "url", metavar="URL", help="Where Redis is; PYASYNQ_REDIS_URL unless given.")
def ping(url: str | None) -> None:
    """Ask Redis for a sign of life; exit with 1 when there is none."""
    app = App(url)
    began = time.perf_counter()
    try:
        app.ping_sync()
    finally:
        app.close_sync()
    click.echo(f"Redis at {app.address} answered in {(time.perf_counter() - began) * 1000:.1f} ms.")
