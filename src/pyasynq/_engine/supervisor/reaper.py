"""Reaper: process 1 (init) of a container, which reaps orphaned processes, so that no zombies remain.

A worker cannot do that itself: it would take the exit codes of processes that handlers have started and wait
for. So it becomes a child of a small process that does nothing else.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

_log = logging.getLogger("pyasynq")
_INIT: Final = 1
_TASKS: Final = Path("/proc/self/task")
_FORWARDED: Final = ("SIGTERM", "SIGINT", "SIGTSTP", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")


def leave_process_1() -> None:
    """Continue in a child if this is process 1; the parent forwards signals and reaps orphans.

    The parent ends with the child, and with its exit code. A process with threads only logs a warning,
    because it cannot be forked safely.
    """
    if os.getpid() != _INIT:
        return
    if threading.active_count() > 1 or _count_threads() > 1:
        _log.warning(
            "this worker is process 1 and already has threads: it does not wait for orphaned processes; "
            "start it by the command pyasynq worker, or let the container have an init"
        )
        return
    # Blocked, because the kernel ignores signals without a handler for process 1.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    child = os.fork()
    if child:
        _wait_for_all(child)
    # A process group of its own: Ctrl-C reaches only the parent, which forwards the signal once.
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _count_threads() -> int:
    return len(list(_TASKS.iterdir())) if _TASKS.is_dir() else 1


def _wait_for_all(child: int) -> None:
    """Wait for the child and for orphans; then end with the child's exit code."""

    def forward(number: int, frame: FrameType | None) -> None:
        del frame
        os.kill(child, number)

    for name in _FORWARDED:
        signal.signal(getattr(signal, name), forward)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
