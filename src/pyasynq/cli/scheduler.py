"""The command `pyasynq scheduler`."""

from __future__ import annotations

import logging
from typing import Any

import click

from pyasynq.cli.event_loop import loop_factory
from pyasynq.cli.log_options import log_options, set_up_logging

_log = logging.getLogger("pyasynq")


@click.command()
@click.argument("reference", metavar="MODULE:APP")
@click.argument("modules", metavar="[MODULE]...", nargs=-1)
@log_options
@click.option("--redis", "url", metavar="URL", help="Where Redis is, instead of what the app says.")
@click.option(
    "--forward",
    is_flag=True,
    help="Also move due tasks of the app's queues to pending, for when all workers are scaled away.",
)
def scheduler(reference: str, modules: tuple[str, ...], *, forward: bool, **settings: Any) -> None:
    """Run the scheduler of an app: enqueue its periodic tasks when they are due.

    MODULE:APP names the app, as in myapp.tasks:app; each further MODULE is imported because it declares
    tasks. Any number of schedulers may run: each due task is enqueued once. TERM or Ctrl-C stop it
    gracefully, TSTP makes it fire no more.

    Exit codes: 0 stopped gracefully, 1 it could not start, 2 wrong usage.
    """
    from pyasynq.cli.locate import load_app  # noqa: PLC0415 - --help does without

    app = load_app(reference, modules, settings["url"])
    set_up_logging(settings)
    if not app.has_schedules and not forward:
        _log.warning(
            "this app has no schedules, so nothing will be enqueued: declare some with @app.cron or "
            "app.schedule, or name the modules that do, as in App(..., modules=[...])"
        )
    raise SystemExit(app.run_scheduler(forward=forward, loop_factory=loop_factory()))
