"""The command `pyasynq worker`."""

from __future__ import annotations

import sys
from typing import Any

import click

from pyasynq.cli.commands import version_flag
from pyasynq.cli.process_options import SUPERVISED, SUPERVISOR, inherited_socket
from pyasynq.cli.reload import PARENT
from pyasynq.cli.worker_settings import setting_options

_TYPED = "pyasynq.typed"


class _WorkerCommand(click.Command):
    """Command class that keeps its arguments as typed, to pass them to child processes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_TYPED] = tuple(args)
        return super().parse_args(ctx, args)


@click.command(cls=_WorkerCommand)
@click.argument("reference", metavar="MODULE:APP")
@click.argument("modules", metavar="[MODULE]...", nargs=-1)
@setting_options
@click.option("--redis", "url", metavar="URL", help="Where Redis is, instead of what the app says.")
@click.option(
    "--config",
    "file",
    metavar="FILE.toml",
    help="Read settings from this file, instead of [tool.pyasynq] in the pyproject.toml of the app.",
)
@click.option("--show-config", is_flag=True, help="Print each setting and where it came from, and exit.")
@version_flag
@click.option(SUPERVISED, type=int, callback=inherited_socket, hidden=True)
@click.option(SUPERVISOR, hidden=True)
@click.option(PARENT, type=int, callback=inherited_socket, hidden=True)
def worker(reference: str, modules: tuple[str, ...], **typed: Any) -> None:
    """Run the tasks of an app.

    MODULE:APP names the app, as in myapp.tasks:app; each further MODULE is imported because it declares
    tasks. TERM or Ctrl-C stop it gracefully, TSTP makes it take no more tasks; with --processes HUP
    replaces the processes one after the other (rolling restart).

    Each setting is a flag, an environment variable such as PYASYNQ_CONCURRENCY, a line of a file, or an
    argument of App(worker=WorkerConfig(...)). The first of these that is given wins.

    Exit codes: 0 all done, 1 it could not start, 2 wrong usage, 130 a second Ctrl-C. After a shutdown:
    3 unfinished tasks were put back, 4 handlers could not be stopped. 5: the processes die again and again.
    """
    if sys.platform == "win32":
        raise click.ClickException(
            "the worker does not run on Windows; clients do. Run it in WSL or a container"
        )
    from pyasynq.cli.worker_start import start_worker_process  # noqa: PLC0415 - --help does without

    arguments: tuple[str, ...] = click.get_current_context().meta[_TYPED]
    raise SystemExit(start_worker_process(reference, modules, arguments, typed))
