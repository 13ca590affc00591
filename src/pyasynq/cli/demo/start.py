"""Run of the demo: starts Valkey, dashboard and workers, lets the tasks run, and prints a summary."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import json
import os
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from pyasynq._exit_codes import EXIT_ABORTED
from pyasynq.cli.demo.display import choose_display
from pyasynq.cli.demo.report import report
from pyasynq.cli.demo.run import Demo
from pyasynq.cli.demo.sources import (
    PLANTED_FOLDER,
    Sources,
    find_sources,
    plant_broken_files,
    standard_library,
)
from pyasynq.cli.demo.text import INDENT, WIDTH, shorten
from pyasynq.cli.demo.workers import Workers
from pyasynq.client import Client
from pyasynq.embedded import EmbeddedServer
from pyasynq.operations import Operator, User

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pyasynq.cli.demo.display import Display
    from pyasynq.cli.demo.summary import Summary


def show_demo(folder: Path | None, *, kill: bool, as_json: bool, keep: bool, port: int) -> int:
    """Show the demo; return the exit code.

    Args:
        folder: folder whose Python files the workers read; None for Python's own library.
        kill: whether a worker is killed on the way.
        as_json: whether only the summary is printed, as JSON.
        keep: whether Valkey and the dashboard stay up at the end, until Ctrl-C.
        port: port of the dashboard; if it is in use, a free port is chosen.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # some encodings lack bars and ellipses
    display = choose_display(quiet=as_json)
    try:
        source = (folder or standard_library()).resolve()
        summary = asyncio.run(
            _run_demo(source, display, _Ending(as_json=as_json, keep=keep), kill=kill, port=port)
        )
    except asyncio.CancelledError:
        click.echo("Stopped; the workers and the server have ended.", err=True)
        return EXIT_ABORTED
    return int(bool(summary.violations()))


@dataclass(frozen=True, slots=True)
class _Ending:
    """Options for the end of the demo: summary as JSON or text, and whether the servers stay up."""

    as_json: bool
    keep: bool

    async def reach(self, summary: Summary, address: str) -> None:
        """Print the summary; with `keep`, then wait until Ctrl-C cancels the task."""
        if self.as_json:
            click.echo(json.dumps(summary.to_json(), indent=2))
        else:
            _print_report(summary)
        if self.keep:
            where = f"The dashboard stays open at {address}" if address else "Redis stays open"
            click.echo(f"\n{where} until Ctrl-C.", err=True)
            await asyncio.Event().wait()


def _print_report(summary: Summary) -> None:
    color = None if "NO_COLOR" not in os.environ else False
    for heading, lines in report(summary):
        click.secho(f"\n{heading}", bold=True, color=color)
        for line in lines:
            click.echo(f"{INDENT}{line}".rstrip())


async def _run_demo(folder: Path, display: Display, ending: _Ending, *, kill: bool, port: int) -> Summary:
    _cancel_on_signals(cast("asyncio.Task[Summary]", asyncio.current_task()))
    async with contextlib.AsyncExitStack() as stack:
        with display:
            url, sources, workers = stack.enter_context(_set_up(folder, display))
            address = await stack.enter_async_context(_serve_dashboard(url, port, display))
            async with Client(url) as client, Operator(url, User.local()) as operator:
                summary = await Demo(client, operator, workers.all, sources, display).run(kill=kill)
        await ending.reach(summary, address)
        return summary


@contextlib.asynccontextmanager
async def _serve_dashboard(url: str, port: int, display: Display) -> AsyncIterator[str]:
    """Serve the dashboard of the demo; yield its URL, or an empty string without the extra `web`."""
    if any(importlib.util.find_spec(name) is None for name in ("starlette", "jinja2", "uvicorn")):
        yield ""
        return
    from pyasynq.cli.web_server import serve_in_background  # noqa: PLC0415 - only where the extra is installed
    from pyasynq.web import dashboard  # noqa: PLC0415 - as above

    serving, bound = await serve_in_background(
        dashboard(url, title="demo", environment=("DEMO", "amber")), port
    )
    address = f"http://127.0.0.1:{bound}/"
    display.say(f"Its dashboard is open at {address}")
    try:
        yield address
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


def _cancel_on_signals(task: asyncio.Task[Summary]) -> None:
    """Let the first SIGINT, SIGTERM or SIGHUP cancel the task at its next await; later ones change nothing.

    Cancellation takes effect only at an await, so every `with` block below is exited normally.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    loop = asyncio.get_running_loop()

    def cancel() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        task.cancel()

    for number in numbers:
        loop.add_signal_handler(number, cancel)


@contextlib.contextmanager
def _set_up(folder: Path, display: Display) -> Iterator[tuple[str, Sources, Workers]]:
    """Find the files; provide a temporary folder, a Valkey server and two workers during the `with` block."""
    with tempfile.TemporaryDirectory(prefix="pyasynq-demo-") as temporary:
        scratch = Path(temporary)
        sources = Sources(folder, find_sources(folder), plant_broken_files(scratch / PLANTED_FOLDER))
        with EmbeddedServer() as server:
            found = f"{server.name} {server.version} is up; {len(sources.files):,} Python files in "
            display.say(found + shorten(str(folder), WIDTH - len(found)))
            with Workers(server.url, scratch) as workers:
                yield server.url, sources, workers
