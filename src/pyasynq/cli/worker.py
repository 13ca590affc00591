"""The command `pyasynq worker`."""

from __future__ import annotations

import gc
import logging
import sys
from typing import TYPE_CHECKING, Any

import click

from pyasynq._embedded.address import is_embedded_in_memory
from pyasynq._human_text import some
from pyasynq.cli.locate import load_app
from pyasynq.cli.log_options import adopt_handlers, log_options, set_up_logging, task_lines_option
from pyasynq.cli.processes import (
    SUPERVISED,
    end_timeout,
    health_settings,
    inherited_socket,
    is_supervisor,
    memory_size,
    process_name,
    run_server,
    supervise,
)
from pyasynq.cli.queues import ordered_queues, queue_concurrency, queue_rates, queue_weights, with_limits
from pyasynq.cli.reload import PARENT, end_with_parent, run_with_reload
from pyasynq.config import ServerConfig
from pyasynq.errors import PyasynqError
from pyasynq.events import ServerStarting
from pyasynq.supervisor import HealthSettings, SupervisorLink, SupervisorSettings, leave_process_1

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from pyasynq.app import App

_EXIT_ERROR = 1
_SHOWN_TYPES = 20
_log = logging.getLogger("pyasynq")
_DEFAULTS = ServerConfig()
_SUPERVISOR_DEFAULTS = SupervisorSettings(processes=1)
# Tasks make few cycles: the collector's default of 700 objects would run it every few tasks.
_GC_THRESHOLD = (20_000, 10, 10)
_TYPED = "pyasynq.typed"


class _WorkerCommand(click.Command):
    """Keeps what was typed after its name, for the processes that do the work."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_TYPED] = tuple(args)
        return super().parse_args(ctx, args)


@click.command(cls=_WorkerCommand)
@click.argument("reference", metavar="MODULE:APP")
@click.argument("modules", metavar="[MODULE]...", nargs=-1)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(min=1),
    default=_DEFAULTS.concurrency,
    show_default=True,
    help="How many tasks run at once.",
)
@click.option(
    "--prefetch",
    type=click.IntRange(min=0),
    default=_DEFAULTS.prefetch,
    show_default=True,
    metavar="NUMBER",
    help="How many short tasks at most are taken before there is a slot for them; 0 for none.",
)
@click.option(
    "-q",
    "--queues",
    callback=queue_weights,
    metavar="NAME=WEIGHT,...",
    help="Queues to serve, as in critical=6,default=3. Unless given: every queue that the app's tasks name, "
    "and default, with equal weights.",
)
@click.option(
    "--queue-concurrency",
    callback=queue_concurrency,
    metavar="NAME=NUMBER,...",
    help="How many tasks of a queue run at once in all workers together, as in deliver=1.",
)
@click.option(
    "--queue-rate",
    callback=queue_rates,
    metavar="NAME=RATE,...",
    help="How many tasks of a queue start in a time in all workers together, as in mail=50/s,sms=100/m; "
    "mail=50/s+10 lets ten start at once.",
)
@click.option(
    "--queue-ordered",
    callback=ordered_queues,
    metavar="NAME,...",
    help="Queues whose tasks run strictly one after the other, in all workers together.",
)
@click.option("--strict", is_flag=True, help="Serve a queue only while all of higher weight are empty.")
@click.option("-b", "--burst", is_flag=True, help="Exit when all queues are empty and nothing runs.")
@click.option("--max-tasks", type=click.IntRange(min=1), help="Exit after so many tasks.")
@click.option(
    "--shutdown-timeout",
    type=click.FloatRange(min=0),
    default=_DEFAULTS.shutdown_timeout,
    show_default=True,
    metavar="SECONDS",
    help="How long running tasks may go on after a stop.",
)
@click.option(
    "-p",
    "--processes",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Run so many processes, each with this --concurrency, and a supervisor that restarts them.",
)
@click.option(
    "--max-tasks-per-child",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Replace a process when it has run so many tasks; those that run may finish.",
)
@click.option(
    "--max-memory",
    callback=memory_size,
    metavar="SIZE",
    help="Replace a process when it holds more memory than that, as in 512M; tasks that run may finish.",
)
@click.option(
    "--beat-timeout",
    type=click.FloatRange(min=0),
    default=_SUPERVISOR_DEFAULTS.beat_timeout,
    show_default=True,
    metavar="SECONDS",
    help="Kill and replace one of several processes that gives no sign of life for this long; 0 for never.",
)
@click.option(
    "--start-timeout",
    type=click.FloatRange(min=0),
    default=_SUPERVISOR_DEFAULTS.start_timeout,
    show_default=True,
    metavar="SECONDS",
    help="Call a reload off when its new process takes no tasks after this time; 0 for never.",
)
@click.option(
    "--executor-processes",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="How many tasks with executor='process' run at once, each in a child process. Unless given: one for "
    "each slot.",
)
@click.option(
    "--executor-max-tasks",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Replace such a child process when it has run so many tasks.",
)
@click.option(
    "--health-port",
    type=click.IntRange(min=0, max=65_535),
    metavar="PORT",
    help="Answer HTTP probes there: /live, and /ready while tasks are taken.",
)
@click.option(
    "--health-host",
    default=HealthSettings().host,
    show_default=True,
    metavar="ADDRESS",
    help="The address that --health-port belongs to; 127.0.0.1 for this host alone, :: for IPv6.",
)
@click.option(
    "--health-file",
    metavar="PATH",
    help="Touch this file every second while /live would say yes; it is removed at the end.",
)
@click.option(SUPERVISED, type=int, callback=inherited_socket, hidden=True)
@click.option(PARENT, type=int, callback=inherited_socket, hidden=True)
@click.option("--with-scheduler", is_flag=True, help="Also enqueue what the app's cron expressions say.")
@click.option(
    "--publish-events", is_flag=True, help="Publish what happens to tasks, as a stream that others follow."
)
@click.option("--reload", is_flag=True, help="Restart when a Python file in this folder changes.")
@log_options
@task_lines_option
@click.option("--redis", "url", metavar="URL", help="Where Redis is, instead of what the app says.")
def worker(reference: str, modules: tuple[str, ...], *, reload: bool, **settings: Any) -> None:
    """Run the tasks of an app.

    MODULE:APP names the app, as in myapp.tasks:app; each further MODULE is imported because it declares
    tasks. TERM or Ctrl-C stop it in good order, TSTP makes it take no more tasks; with --processes HUP
    replaces the processes one after the other.

    Exit codes: 0 all done, 1 it could not start, 2 wrong usage, 3 unfinished tasks were put back, 4 handlers
    could not be stopped, 5 the processes die again and again, 130 a second Ctrl-C.
    """
    if sys.platform == "win32":
        raise click.ClickException(
            "the worker does not run on Windows; clients do. Run it in WSL or a container"
        )
    typed: tuple[str, ...] = click.get_current_context().meta[_TYPED]
    if reload:
        if settings["burst"]:
            raise click.UsageError("--reload waits for changes and --burst exits: use one of them")
        set_up_logging(settings)
        again = [argument for argument in typed if argument != "--reload"]
        raise SystemExit(run_with_reload(again, end_timeout(settings)))
    if settings["parent"] is not None:
        end_with_parent(settings["parent"])
        typed = tuple(argument for argument in typed if not argument.startswith(f"{PARENT}="))
    if is_supervisor(settings):
        set_up_logging(settings, process="supervisor")
        raise SystemExit(supervise(typed, settings))
    leave_process_1()
    # Before anything that takes time: the supervisor may end meanwhile.
    link = SupervisorLink(settings["supervised"]) if settings["supervised"] is not None else None
    app = load_app(reference, modules, settings["url"])
    set_up_logging(settings, process=process_name() if link is not None else "")
    raise SystemExit(_work(app, settings, link))


def _work(app: App, settings: dict[str, Any], link: SupervisorLink | None) -> int:
    config = _config(app, settings)
    gc.set_threshold(*_GC_THRESHOLD)
    gc.collect()
    gc.freeze()
    try:
        server = app.server(config, with_scheduler=settings["with_scheduler"])
        if not settings["no_logging"]:
            # The lifespan has been entered by then, and may have configured logging.
            server.events.subscribe(ServerStarting, lambda _: adopt_handlers())
        return run_server(
            app,
            server,
            link=link,
            health=health_settings(settings),
            loop_factory=loop_factory(),
        )
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
            some(unserved, _SHOWN_TYPES),
        )
    if app.tasks:
        _log.info("task types: %s", some(sorted(app.tasks), _SHOWN_TYPES))
    else:
        _log.warning("this app declares no tasks; name the modules that do, as in App(..., modules=[...])")
    if is_embedded_in_memory(app.url):
        if settings["supervised"] is not None:
            raise click.UsageError(
                f"{app.address} is a server in the memory of one process, and there are several; "
                "name a folder, as in embedded://./data"
            )
        _log.warning(
            "%s is a server in the memory of this worker: what other processes enqueue does not reach it; "
            "name a folder, as in embedded://./data",
            app.address,
        )
    return ServerConfig(
        concurrency=settings["concurrency"],
        prefetch=settings["prefetch"],
        queues=with_limits(
            queues, settings["queue_concurrency"], settings["queue_rate"], settings["queue_ordered"]
        ),
        strict_priority=settings["strict"],
        burst=settings["burst"],
        max_tasks=settings["max_tasks"] or settings["max_tasks_per_child"],
        shutdown_timeout=settings["shutdown_timeout"],
        publish_events=settings["publish_events"],
        executor_processes=settings["executor_processes"],
        executor_max_tasks=settings["executor_max_tasks"],
    )


def loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """Return what makes the fastest event loop that is installed, or None for asyncio's own."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    return uvloop.new_event_loop
