"""Worker processes: the supervisor for `--processes` and recycling, and health probes of a single one."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from pyasynq._background.code_places import format_blocking_stack
from pyasynq._background.exit_guard import end_process
from pyasynq._checks import parse_seconds
from pyasynq._exit_codes import EXIT_UNFINISHED
from pyasynq._visible_text import visible_lines
from pyasynq.cli.log_options import set_up_logging
from pyasynq.cli.process_options import SUPERVISED, SUPERVISOR
from pyasynq.events import ServerStateChanged
from pyasynq.supervisor import (
    WORKER_VARIABLE,
    Health,
    HealthSettings,
    Supervisor,
    SupervisorLink,
    SupervisorSettings,
    Vitals,
)

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Sequence

    from pyasynq.app import App
    from pyasynq.metrics.worker import FleetMetrics, WorkerMetrics
    from pyasynq.server import Server
    from pyasynq.worker_config import WorkerConfig

_log = logging.getLogger("pyasynq")
_THREAD_SECONDS: Final = 0.5
"""Grace period in seconds for other threads after the worker has ended."""
_EXIT_MARGIN: Final = 0.8
"""Seconds for the interpreter to exit, after the timeouts of a shutdown.

A supervisor waits about 1 s, and then kills the process.
"""


class SupervisorRun(NamedTuple):
    """Settings of a supervisor's process, decoded from its command line."""

    settings: SupervisorSettings
    log: dict[str, Any]
    has_metrics: bool


def parse_supervisor_run(text: str) -> SupervisorRun:
    """Decode the supervisor's settings from the argument that `supervisor_arguments` wrote.

    Raises:
        BadParameter: if the text is not such an argument.
    """
    try:
        facts = json.loads(text)
        health = HealthSettings(**facts["health"])
        settings = SupervisorSettings(**facts["settings"], health=health)
        return SupervisorRun(settings, facts["log"], facts["metrics"])
    except (ValueError, TypeError, KeyError) as error:
        raise click.BadParameter(
            "not the settings of a supervisor, which a worker alone gives: use --processes",
            param_hint=SUPERVISOR,
        ) from error


def is_supervisor(config: WorkerConfig) -> bool:
    """Return whether these settings ask for child processes.

    Raises:
        UsageError: for conflicting settings.
    """
    recycles = config.max_tasks_per_child is not None or config.max_memory is not None
    if config.processes is None and not recycles:
        return False
    if config.max_tasks is not None:
        raise click.UsageError(
            "--max-tasks ends one process after this many tasks; with children use --max-tasks-per-child, "
            "which replaces them, or --burst, which ends when all queues are empty"
        )
    return True


def process_name() -> str:
    """Return the name of a worker under a supervisor, such as `worker 2`."""
    return f"worker {os.environ.get(WORKER_VARIABLE, '?')}"


def supervisor_arguments(config: WorkerConfig) -> list[str]:
    """Return the command-line arguments of a supervisor, which runs without the app."""
    told = {
        # Recycling without `--processes` means one child process.
        "processes": config.processes or 1,
        "burst": config.burst,
        "max_memory": config.max_memory,
        "beat_timeout": parse_seconds("beat_timeout", config.beat_timeout),
        "start_timeout": parse_seconds("start_timeout", config.start_timeout),
        "end_timeout": end_timeout(config),
    }
    health = dataclasses.asdict(health_settings(config, is_supervised=False))
    facts = {"settings": told, "health": health, "log": log_settings(config), "metrics": config.metrics}
    return [f"{SUPERVISOR}={json.dumps(facts)}"]


def supervise(arguments: Sequence[str], run: SupervisorRun) -> int:
    """Run `pyasynq worker` with these arguments in several children, and return the exit code."""
    set_up_logging(run.log, process="supervisor")

    def command(socket: int) -> list[str]:
        return [sys.executable, "-m", "pyasynq.cli", "worker", *arguments, SUPERVISED, str(socket)]

    return Supervisor(command, run.settings, _make_fleet_metrics() if run.has_metrics else None).run()


def _make_fleet_metrics() -> FleetMetrics:
    from pyasynq.metrics.worker import FleetMetrics  # noqa: PLC0415 - nothing of it is loaded without --metrics

    return FleetMetrics()


def _make_worker_metrics(server: Server) -> WorkerMetrics:
    from pyasynq.metrics.worker import WorkerMetrics  # noqa: PLC0415 - as above

    metrics = WorkerMetrics()
    metrics.watch(server.events)
    for events in server.related_events:
        metrics.watch_scheduler(events)
    return metrics


def end_timeout(config: WorkerConfig) -> float:
    """Return the maximum seconds for the shutdown of a worker with these settings, without a margin."""
    shutdown = parse_seconds("shutdown_timeout", config.shutdown_timeout)
    return shutdown + parse_seconds("cancel_timeout", config.cancel_timeout)


def health_settings(config: WorkerConfig, *, is_supervised: bool) -> HealthSettings:
    """Return the settings of health probes; a child has no probes, since its supervisor answers them."""
    if is_supervised:
        return HealthSettings()
    return HealthSettings(config.health_port, config.health_host, config.health_file)


def log_settings(config: WorkerConfig) -> dict[str, Any]:
    """Return the settings of logging as `set_up_logging` takes them."""
    return {
        "no_logging": not config.logging,
        "log_config": config.log_config,
        "log_level": config.log_level,
        "log_format": config.log_format,
        "task_lines": config.log_tasks,
    }


def run_server(
    app: App,
    server: Server,
    *,
    link: SupervisorLink | None,
    health: HealthSettings,
    has_metrics: bool = False,
    loop_factory: Callable[[], AbstractEventLoop] | None,
) -> int:
    """Run a worker that reports its state to its supervisor or to probes; return the exit code."""
    metrics = _make_worker_metrics(server) if has_metrics else None
    if link is not None:
        router = app.__pyasynq_router__()
        rules = {task_type: route.rules for task_type in app.tasks if (route := router.route(task_type))}
        limits = {name: one.crash_limit for name, one in rules.items() if one.crash_limit is not None}
        link.attach(server, app.url, limits, None if metrics is None else metrics.take_rows)
    vitals = Vitals(1, os.getpid())
    vitals.watch(server.events)
    closing = _ClosingTime(server)
    with Health(health, lambda: [vitals], None if metrics is None else metrics.render):
        code = server.run_forever(app, loop_factory=loop_factory)
    until = closing.limit()
    threading.Thread(
        target=_force_exit_later, args=(code, until), name="pyasynq-exit-guard", daemon=True
    ).start()
    return code


class _ClosingTime:
    """Deadline for the exit of a process, computed from the time at which its server began to close."""

    def __init__(self, server: Server) -> None:
        self._config = server.config
        self._began: float | None = None
        server.events.subscribe(ServerStateChanged, self._on_state)

    def limit(self) -> float:
        """Return the monotonic time at which the process must be gone."""
        now = time.monotonic()
        config, began = self._config, self._began if self._began is not None else now
        seconds = parse_seconds("shutdown_timeout", config.shutdown_timeout)
        seconds += parse_seconds("cancel_timeout", config.cancel_timeout)
        return max(began + seconds + _EXIT_MARGIN, now + _THREAD_SECONDS)

    def _on_state(self, event: ServerStateChanged) -> None:
        if event.state == "closed" and self._began is None:
            self._began = time.monotonic()


def _force_exit_later(code: int, until: float) -> None:
    """Kill this process if the interpreter does not exit in time.

    The interpreter waits without limit for threads, functions of `atexit` and processes of `multiprocessing`.
    Threads get a grace period first: the interpreter stops idle threads of executors only in its last steps.
    """
    time.sleep(_THREAD_SECONDS)
    main = threading.main_thread()
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not main]
    if left:
        _log.error("the process ends although non-daemon threads still run: %s", ", ".join(left))
        end_process(code or EXIT_UNFINISHED)
    time.sleep(max(0.0, until - time.monotonic()))
    stack = visible_lines(format_blocking_stack(main.ident or 0).rstrip())
    _log.error("the end of the interpreter did not end in time and was given up; it is at:\n%s", stack)
    end_process(code or EXIT_UNFINISHED)
