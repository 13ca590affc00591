"""The command `pyasynq scheduler`."""

from __future__ import annotations

import logging
from typing import Any, get_args

import click

from pyasynq.cli.locate import find_app, load_module
from pyasynq.cli.logs import LogFormat, install_logging
from pyasynq.cli.worker import loop_factory

_log = logging.getLogger("pyasynq")


@click.command()
@click.argument("reference", metavar="MODULE:APP")
@click.argument("modules", metavar="[MODULE]...", nargs=-1)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    default="info",
    show_default=True,
    help="The least level that is written.",
)
@click.option(
    "--log-format",
    type=click.Choice(get_args(LogFormat)),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON object a line.",
)
@click.option("--redis", "url", metavar="URL", help="Where Redis is, instead of what the app says.")
def scheduler(reference: str, modules: tuple[str, ...], **settings: Any) -> None:
    """Enqueue what the cron expressions of an app say.

    MODULE:APP names the app, as in myapp.tasks:app; each further MODULE is imported because it declares
    tasks. Any number of schedulers may run: each tick is enqueued once. TERM or Ctrl-C stop it in good
    order, TSTP makes it fire no more.

    Exit codes: 0 stopped in good order, 1 it could not start, 2 wrong usage.
    """
    install_logging(settings["log_level"], settings["log_format"])
    app = find_app(reference)
    if settings["url"] is not None:
        app.url = settings["url"]
    for module in (*modules, *app.modules):
        load_module(module)
    raise SystemExit(app.run_scheduler(loop_factory=loop_factory()))
