"""Start of a worker from the command line: settings, supervisor, reload, and the worker itself."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyasynq._embedded.address import is_embedded_in_memory
from pyasynq._human_text import some
from pyasynq._visible_text import visible
from pyasynq.app import App
from pyasynq.cli.connection import URL_VARIABLE
from pyasynq.cli.event_loop import loop_factory
from pyasynq.cli.garbage_collection import tune_garbage_collection
from pyasynq.cli.locate import load_app
from pyasynq.cli.log_options import adopt_handlers, set_up_logging
from pyasynq.cli.process_options import SUPERVISOR
from pyasynq.cli.processes import (
    end_timeout,
    health_settings,
    is_supervisor,
    log_settings,
    parse_supervisor_run,
    process_name,
    run_server,
    supervise,
    supervisor_arguments,
)
from pyasynq.cli.reload import PARENT, end_with_parent, run_with_reload
from pyasynq.cli.worker_settings import (
    Resolved,
    find_file,
    find_misspelt_variables,
    load_file,
    read_environment,
    read_file,
    read_flags,
    resolve,
    without_queue_limits,
)
from pyasynq.errors import ConfigurationError, PyasynqError
from pyasynq.events import ServerStarting
from pyasynq.supervisor import SupervisorLink, leave_process_1

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyasynq.cli.queue_settings import Given
    from pyasynq.worker_config import WorkerConfig

_EXIT_ERROR = 1
_SHOWN_TYPES = 20
_log = logging.getLogger("pyasynq")
_INSTRUMENTATION = "opentelemetry.instrumentation.auto_instrumentation"
_TRACED = "PYASYNQ_OTEL_AUTO"
"""Environment variable that pyasynq's OpenTelemetry instrumentor sets under `opentelemetry-instrument`."""


def start_worker_process(
    reference: str, modules: tuple[str, ...], arguments: tuple[str, ...], typed: Mapping[str, Any]
) -> int:
    """Run `pyasynq worker` with its options; return the exit code.

    Args:
        reference: names the app, as in `myapp.tasks:app`.
        modules: further modules to import.
        arguments: all words that the user typed after the command's name.
        typed: values of the options.

    Raises:
        UsageError: for an invalid option, or an invalid combination of options.
        PyasynqError: if the worker cannot start.
    """
    _trace_again()
    layers = read_flags(typed), read_environment()
    # Nothing overrides flags and variables, so their conflicts are final before app and file are known.
    early = resolve(*map(without_queue_limits, layers)).config
    _check_conflicts(early)
    if early.reload and typed["parent"] is None and not typed["show_config"]:
        return _reload(arguments, early)
    if typed["supervisor"] is not None:
        if typed["parent"] is not None:
            end_with_parent(typed["parent"])
        run = parse_supervisor_run(typed["supervisor"])
        return supervise(_remove_flags(arguments, SUPERVISOR, PARENT), run)
    if typed["parent"] is not None:
        end_with_parent(os.dup(typed["parent"]))
    if typed["supervised"] is None and not typed["show_config"]:
        leave_process_1()
    # Connect before anything that takes time, because the supervisor may end meanwhile.
    link = SupervisorLink(typed["supervised"]) if typed["supervised"] is not None else None
    app = load_app(reference, modules, typed["url"])
    resolved = resolve(*layers, _read_settings_file(reference, typed["file"]), app=app)
    warnings = [*_explain_misspelt_variables(), *_explain_ignored_url(app, typed["url"])]
    if typed["show_config"]:
        _show(app, typed["url"], resolved, warnings)
        return 0
    config = resolved.config
    _check_conflicts(config, reloads=typed["parent"] is not None)
    _check_metrics(config)
    if link is None:
        _start_other_program(app, config, arguments, typed["parent"])
        if typed["parent"] is not None:
            os.set_inheritable(typed["parent"], False)
    else:
        config = replace(config, max_tasks=config.max_tasks_per_child)
    set_up_logging(log_settings(config), process=process_name() if link is not None else "")
    for warning in warnings:
        _log.warning(warning)
    return _work(app, config, link)


def _trace_again() -> None:
    """Activate tracing in a child process: `opentelemetry-instrument` only reaches the first process.

    `opentelemetry-instrument` removes itself from the environment of child processes.
    """
    if _INSTRUMENTATION in sys.modules or not os.environ.get(_TRACED):
        return
    try:
        module = importlib.import_module(_INSTRUMENTATION)
    except ImportError:
        return  # a parent process set up tracing by other means
    module.initialize()


def _read_settings_file(reference: str, file: str | None) -> Mapping[str, Given]:
    if file is not None:
        path = Path(file)
        content = load_file(path)
        return read_file(path, content.get("tool", {}).get("pyasynq", content))
    module = sys.modules.get(reference.partition(":")[0])
    place = getattr(module, "__file__", None)
    found = find_file(Path(place).resolve().parent if place else None)
    return read_file(*found) if found is not None else {}


def _show(app: App, url: str | None, resolved: Resolved, warnings: Iterable[str]) -> None:
    lines = [("redis", *_find_redis(app, url)), *resolved.lines()]
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    for name, value, source in lines:
        click.echo(f"{name:{widths[0]}}  {value:{min(widths[1], 40)}}  {source}")
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)


def _find_redis(app: App, url: str | None) -> tuple[str, str]:
    """Return address and database of Redis without the password, and the source of the URL, such as `app`."""
    own = URL_VARIABLE if app._url is None else "app"  # noqa: SLF001 - this command runs the app
    try:
        shown = visible(app._describe_redis())  # noqa: SLF001 - as above
    except ConfigurationError:  # the app has no URL
        return "none", "default"
    return shown, own if url is None else "--redis"


def _explain_misspelt_variables() -> list[str]:
    return [
        f"{visible(variable)} is not a setting and is ignored; did you mean {meant}?"
        for variable, meant in find_misspelt_variables().items()
    ]


def _explain_ignored_url(app: App, url: str | None) -> list[str]:
    """Return a warning if the environment names another Redis than the app's own URL, without passwords."""
    variable = os.environ.get(URL_VARIABLE, "").strip()
    if url is not None or not variable or app._url is None:  # noqa: SLF001 - this command runs the app
        return []
    used, _ = _find_redis(app, None)
    try:
        other, _ = _find_redis(App(variable), None)
    except ConfigurationError:  # it may be the name of a profile, or hold a password anywhere
        other = ""
    if other == used:
        return []
    shown = f"{URL_VARIABLE} ({other})" if other else URL_VARIABLE
    return [f"{shown} is not used: the app has a URL of its own ({used}); --redis overrides it"]


def _check_conflicts(config: WorkerConfig, *, reloads: bool = False) -> None:
    """Raise `UsageError` for settings that exclude each other; a worker with a reload parent `reloads`."""
    if (config.reload or reloads) and config.burst:
        raise click.UsageError("--reload waits for changes and --burst exits: use one of them")
    is_supervisor(config)


def _check_metrics(config: WorkerConfig) -> None:
    if config.metrics and config.health_port is None:
        raise click.UsageError("--metrics answers at the health port: give --health-port as well")


def _reload(arguments: tuple[str, ...], config: WorkerConfig) -> int:
    set_up_logging(log_settings(config))
    again = [argument for argument in arguments if argument != "--reload"]
    return run_with_reload(again, end_timeout(config))


def _remove_flags(arguments: tuple[str, ...], *flags: str) -> tuple[str, ...]:
    starts = tuple(f"{flag}=" for flag in flags)
    return tuple(argument for argument in arguments if not argument.startswith(starts))


def _start_other_program(
    app: App, config: WorkerConfig, arguments: tuple[str, ...], parent: int | None
) -> None:
    """Replace this process by the `--reload` parent or the supervisor, if the settings ask for one.

    Neither imports the app; `exec` frees the app's memory and threads from this process.
    """
    if config.reload and parent is None:
        _replace_process(*arguments, "--reload")
    if is_supervisor(config):
        _refuse_memory(app)
        _replace_process(*arguments, *supervisor_arguments(config))


def _replace_process(*arguments: str) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "pyasynq.cli", "worker", *arguments])  # noqa: S606 - ours


def _refuse_memory(app: App) -> None:
    if is_embedded_in_memory(app.url):
        raise click.UsageError(
            f"{app.address} is a server in the memory of one process, and there are several; "
            "name a folder, as in embedded://./data"
        )


def _work(app: App, config: WorkerConfig, link: SupervisorLink | None) -> int:
    _tell(app, config)
    tune_garbage_collection()
    try:
        server = app.server(config)
        if config.logging:
            # Runs after the lifespan was entered, which may have configured logging.
            server.events.subscribe(ServerStarting, lambda _: adopt_handlers())
        return run_server(
            app,
            server,
            link=link,
            health=health_settings(config, is_supervised=link is not None),
            has_metrics=config.metrics,
            loop_factory=loop_factory(),
        )
    except PyasynqError:
        raise
    except Exception:  # noqa: BLE001 - reported with its traceback; the process ends
        # The error is probably from the app's lifespan, so its traceback helps.
        _log.exception("the worker was ended by an error")
        return _EXIT_ERROR


def _tell(app: App, config: WorkerConfig) -> None:
    """Log the task types, and warnings about probable mistakes in the settings."""
    for name in config.queues:
        queue, colon, weight = name.rpartition(":")
        if colon and weight.isdecimal() and name not in app.queues:
            _log.warning(
                "this worker serves a queue %s; a weight is written %s=%s",
                visible(name),
                visible(queue),
                weight,
            )
    app._warn_of_unserved_queues(config, "--queues")  # noqa: SLF001 - this command runs the app
    if app.tasks:
        _log.info("task types: %s", some(sorted(app.tasks), _SHOWN_TYPES))
    else:
        _log.warning("this app declares no tasks; name the modules that do, as in App(..., modules=[...])")
    if is_embedded_in_memory(app.url):
        _log.warning(
            "%s is a server in the memory of this worker: what other processes enqueue does not reach it; "
            "name a folder, as in embedded://./data",
            app.address,
        )
