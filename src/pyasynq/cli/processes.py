"""`--processes`, recycling and health: from options to a supervisor, or to one worker that answers probes."""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._background.code_places import blocking_stack
from pyasynq._background.exit_guard import end_process
from pyasynq._checks import seconds_of
from pyasynq._exit_codes import EXIT_UNFINISHED
from pyasynq._visible_text import visible_lines
from pyasynq.config import ServerConfig
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
    from pyasynq.server import Server

_log = logging.getLogger("pyasynq")
_THREAD_SECONDS: Final = 0.5
"""How long threads may take to end after the worker."""
_EXIT_MARGIN: Final = 0.8
"""How long after the time-outs of a shutdown the interpreter may still end; a supervisor waits for 1 s."""

SUPERVISED: Final = "--supervised"
_SIZE: Final = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[KMGT]?)(i?B)?", re.IGNORECASE)
_MOST: Final = 2**63
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def memory_size(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Read `512M` or `1.5G`: bytes, with units of 1,024.

    Raises:
        BadParameter: for what is no size, or none at all.
    """
    if value is None:
        return None
    match = _SIZE.fullmatch(value.strip())
    size = float(match["number"]) * _UNITS[match["unit"].upper()] if match else 0
    if not 1 <= size < _MOST:
        raise click.BadParameter(f"{value!r} is no size: write 512M or 1.5G")
    return int(size)


def inherited_socket(_ctx: click.Context, _param: click.Parameter, value: int | None) -> int | None:
    """Take the number of a socket that the supervisor has handed over.

    Raises:
        BadParameter: for what is none.
    """
    try:
        is_socket = value is None or stat.S_ISSOCK(os.fstat(value).st_mode)
    except (OSError, OverflowError):
        is_socket = False
    if not is_socket:
        raise click.BadParameter(
            f"{value} is no socket of a supervisor, which alone says this: use --processes"
        )
    return value


def is_supervisor(settings: dict[str, Any]) -> bool:
    """Whether these options ask for child processes.

    Raises:
        UsageError: for options that do not go together.
    """
    if settings["supervised"] is not None:
        return False
    recycles = settings["max_tasks_per_child"] is not None or settings["max_memory"] is not None
    if settings["processes"] is None and not recycles:
        return False
    if settings["max_tasks"] is not None:
        raise click.UsageError(
            "--max-tasks ends one process after so many tasks; with children use --max-tasks-per-child, "
            "which replaces them, or --burst, which ends when all queues are empty"
        )
    return True


def process_name() -> str:
    """Return what a worker under a supervisor is called, such as `worker 2`."""
    return f"worker {os.environ.get(WORKER_VARIABLE, '?')}"


def supervise(arguments: Sequence[str], settings: dict[str, Any]) -> int:
    """Run `pyasynq worker` with these arguments in so many children, and return the exit code."""

    def command(socket: int) -> list[str]:
        return [sys.executable, "-m", "pyasynq.cli", "worker", *arguments, SUPERVISED, str(socket)]

    return Supervisor(
        command,
        SupervisorSettings(
            # Recycling without a number of processes is about one.
            processes=settings["processes"] or 1,
            burst=settings["burst"],
            max_memory=settings["max_memory"],
            health=health_settings(settings),
            beat_timeout=settings["beat_timeout"],
            start_timeout=settings["start_timeout"],
            end_timeout=end_timeout(settings),
        ),
    ).run()


def end_timeout(settings: dict[str, Any]) -> float:
    """Return how many seconds a worker of these options may take to end, without a margin."""
    shutdown: float = settings["shutdown_timeout"]
    return shutdown + seconds_of("cancel_timeout", ServerConfig().cancel_timeout)


def health_settings(settings: dict[str, Any]) -> HealthSettings:
    """Return where probes are answered; of a child nowhere, since its supervisor answers."""
    if settings["supervised"] is not None:
        return HealthSettings()
    return HealthSettings(settings["health_port"], settings["health_host"], settings["health_file"])


def run_server(
    app: App,
    server: Server,
    *,
    link: SupervisorLink | None,
    health: HealthSettings,
    loop_factory: Callable[[], AbstractEventLoop] | None,
) -> int:
    """Be a worker that its supervisor, or a probe, knows the state of; return the exit code."""
    if link is not None:
        limits = {task_type: route.crash_limit for task_type in app.tasks if (route := app.route(task_type))}
        link.attach(server, app.url, {name: limit for name, limit in limits.items() if limit is not None})
    vitals = Vitals(1, os.getpid())
    vitals.watch(server.events)
    closing = _ClosingTime(server)
    with Health(health, lambda: [vitals]):
        code = server.run_forever(app, loop_factory=loop_factory)
    until = closing.limit()
    threading.Thread(target=_bound_exit, args=(code, until), name="pyasynq-exit-guard", daemon=True).start()
    return code


class _ClosingTime:
    """When a server began to close, and until when its process may live."""

    def __init__(self, server: Server) -> None:
        self._config = server.config
        self._began: float | None = None
        server.events.subscribe(ServerStateChanged, self._state)

    def limit(self) -> float:
        """Return the monotonic time at which the process must be gone."""
        now = time.monotonic()
        config, began = self._config, self._began if self._began is not None else now
        seconds = seconds_of("shutdown_timeout", config.shutdown_timeout)
        seconds += seconds_of("cancel_timeout", config.cancel_timeout)
        return max(began + seconds + _EXIT_MARGIN, now + _THREAD_SECONDS)

    def _state(self, event: ServerStateChanged) -> None:
        if event.state == "closed" and self._began is None:
            self._began = time.monotonic()


def _bound_exit(code: int, until: float) -> None:
    """End the process if its interpreter does not.

    It waits without limit for threads, functions of `atexit` and processes of `multiprocessing`. Threads get
    a moment: what stops idle threads of executors is among the interpreter's own last acts.
    """
    time.sleep(_THREAD_SECONDS)
    main = threading.main_thread()
    left = [thread.name for thread in threading.enumerate() if not thread.daemon and thread is not main]
    if left:
        _log.error("the process ends although non-daemon threads still run: %s", ", ".join(left))
        end_process(code or EXIT_UNFINISHED)
    time.sleep(max(0.0, until - time.monotonic()))
    stack = visible_lines(blocking_stack(main.ident or 0).rstrip())
    _log.error("the end of the interpreter did not end in time and was given up; it is at:\n%s", stack)
    end_process(code or EXIT_UNFINISHED)
