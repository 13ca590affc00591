"""The command `pyasynq demo`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pyasynq.cli.demo.display import choose_display
from pyasynq.cli.demo.report import report
from pyasynq.cli.demo.run import Demo
from pyasynq.cli.demo.sources import PLANTED_FOLDER, Sources, find_sources, plant_broken_files, standard_library
from pyasynq.cli.demo.tasks import app
from pyasynq.cli.demo.workers import Workers
from pyasynq.embedded import EmbeddedServer
from pyasynq.inspector import Inspector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.cli.demo.display import Display
    from pyasynq.cli.demo.summary import Summary

_INTERRUPTED = 130
_READABLE_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("folder", type=_READABLE_FOLDER, required=False)
@click.option("--no-kill", is_flag=True, help="Let both workers live.")
@click.option("--json", "as_json", is_flag=True, help="Print nothing but the summary, as JSON.")
def demo(folder: Path | None, *, no_kill: bool, as_json: bool) -> None:
    """Watch two workers read every Python source file of FOLDER (or of Python's own library).

    Nothing needs to be installed or running: the demo starts a real Valkey server for itself, kills one of the workers on
    the way, and proves at the end that no task was lost. It leaves nothing behind.
    """
    display = choose_display(quiet=as_json)
    try:
        summary = asyncio.run(_until_interrupted(_demo(folder or standard_library(), display, kill=not no_kill)))
    except asyncio.CancelledError:
        click.echo("Stopped; the workers and the server have ended.", err=True)
        raise SystemExit(_INTERRUPTED) from None
    if as_json:
        click.echo(json.dumps(summary.to_json(), indent=2))
    else:
        _print_report(summary)
    if summary.violations():
        raise SystemExit(1)
