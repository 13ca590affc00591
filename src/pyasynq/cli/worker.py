"""The command `pyasynq worker`."""

from __future__ import annotations

import gc
import logging
import sys
from typing import TYPE_CHECKING, Any, get_args

import click

from pyasynq._embedded.address import is_embedded_in_memory
from pyasynq.cli.locate import find_app, load_module
from pyasynq.cli.logs import LogFormat, install_logging
from pyasynq.cli.queues import queue_weights
from pyasynq.cli.reload import run_with_reload
from pyasynq.config import ServerConfig
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Sequence

    from pyasynq.app import App

_EXIT_ERROR = 1
_SHOWN_TYPES = 20
_log = logging.getLogger("pyasynq")
_DEFAULTS = ServerConfig()
# Tasks make few cycles: the collector's default of 700 objects would run it every few tasks.
_GC_THRESHOLD = (20_000, 10, 10)


@click.command()
@click.argument("reference", metavar="MODULE:APP")
@click.argument("modules", metavar="[MODULE]...", nargs=-1)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=_DEFAULTS.concurrency,
    show_default=True,
    help="How many tasks run at once.",
)
@click.option(
    "--queues",
    callback=queue_weights,
    metavar="NAME=WEIGHT,...",
    help="Queues to serve, as in critical=6,default=3. Unless given: every queue that the app's tasks name, "
    "and default, with equal weights.",
)
@click.option("--strict", is_flag=True, help="Serve a queue only while all of higher weight are empty.")
@click.option("--burst", is_flag=True, help="Exit when all queues are empty and nothing runs.")
@click.option("--max-tasks", type=click.IntRange(min=1), help="Exit after so many tasks.")
@click.option(
    "--shutdown-timeout",
    type=click.FloatRange(min=0),
    default=_DEFAULTS.shutdown_timeout,
    show_default=True,
    metavar="SECONDS",
    help="How long running tasks may go on after a stop.",
)
@click.option("--with-scheduler", is_flag=True, help="Also enqueue what the app's cron expressions say.")
@click.option("--reload", is_flag=True, help="Restart when a Python file in this folder changes.")
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
def worker(reference: str, modules: tuple[str, ...], *, reload: bool, **settings: Any) -> None:
    """Run the tasks of an app.

    MODULE:APP names the app, as in myapp.tasks:app; each further MODULE is imported because it declares
    tasks. TERM or Ctrl-C stop it in good order, TSTP makes it take no more tasks.

    Exit codes: 0 all done, 1 it could not start, 2 wrong usage, 3 unfinished tasks were put back, 4 handlers
    could not be stopped.
    """
    if sys.platform == "win32":
        raise click.ClickException(
            "the worker does not run on Windows; clients do. Run it in WSL or a container"
        )
    install_logging(settings["log_level"], settings["log_format"])
    if reload:
        if settings["burst"]:
            raise click.UsageError("--reload waits for changes and --burst exits: use one of them")
        raise SystemExit(run_with_reload([argument for argument in _arguments() if argument != "--reload"]))
    raise SystemExit(_work(find_app(reference), modules, settings))


def _arguments() -> Sequence[str]:
    return sys.argv[sys.argv.index("worker") + 1 :]


def _work(app: App, modules: Sequence[str], settings: dict[str, Any]) -> int:
    if settings["url"] is not None:
        app.url = settings["url"]
    for module in (*modules, *app.modules):
        load_module(module)
    config = _config(app, settings)
    gc.set_threshold(*_GC_THRESHOLD)
    gc.collect()
    gc.freeze()
    try:
        return app.run_worker(config, with_scheduler=settings["with_scheduler"], loop_factory=loop_factory())
    except PyasynqError:
        raise
    except Exception:  # noqa: BLE001 - reported with its traceback; the process ends
        # Not ours: the lifespan's, most likely, and there the traceback is what helps.
        _log.exception("the worker was ended by an error")
        return _EXIT_ERROR


def _config(app: App, settings: dict[str, Any]) -> ServerConfig:
    queues = settings["queues"] or app.default_weights()
    unserved = [name for name in app.queues if name not in queues]
    if unserved:
        _log.warning(
            "tasks of this app go to queues that this worker does not serve: %s; add them to --queues",
            ", ".join(unserved),
        )
    if app.tasks:
        _log.info("task types: %s", _some(sorted(app.tasks)))
    else:
        _log.warning("this app declares no tasks; name the modules that do, as in App(..., modules=[...])")
    if is_embedded_in_memory(app.url):
        _log.warning(
            "%s is a server in the memory of this worker: what other processes enqueue does not reach it; "
            "name a folder, as in embedded://./data",
            app.address,
        )
    return ServerConfig(
        concurrency=settings["concurrency"],
        queues=queues,
        strict_priority=settings["strict"],
        burst=settings["burst"],
        max_tasks=settings["max_tasks"],
        shutdown_timeout=settings["shutdown_timeout"],
    )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN_TYPES])
    return f"{shown} and {len(names) - _SHOWN_TYPES} more" if len(names) > _SHOWN_TYPES else shown


def loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """Return what makes the fastest event loop that is installed, or None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop
