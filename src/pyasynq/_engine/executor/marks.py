"""A mark in the environment of a child process, by which all that it has started is found again.

A process group ends where a process begins a session of its own, and a parent is forgotten when it ends.
The environment is inherited by all of them, unless a process is given another one on purpose.
"""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

FAMILY: Final = "PYASYNQ_FAMILY"
"""Variable that a supervisor sets for each worker."""
MARK: Final = "PYASYNQ_EXECUTOR_CHILD"
"""Variable that a worker sets for each child process: the family of the worker, and a number."""
_PROCESSES: Final = Path("/proc")
_MOST_LOOKS: Final = 20
"""A process may start others while it is looked for; one that does so for ever is left alone."""


def new_family() -> str:
    """Return what no other worker has."""
    return uuid.uuid4().hex


def new_mark() -> str:
    """Return the mark of a new child of this worker."""
    return f"{os.environ.get(FAMILY) or 'alone'}/{uuid.uuid4().hex}"


def kill_marked(beginning: str) -> int:
    """Kill the processes whose marks begin so; return how many. Without /proc none is found.

    For processes that other users own, or whose environment was replaced, nothing can be done.
    """
    wanted = f"{MARK}={beginning}".encode()
    killed = 0
    for _ in range(_MOST_LOOKS):
        found = [pid for pid in _living() if _has(pid, wanted)]
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        if not found:
            break
    return killed


def _living() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROCESSES) if name.isdecimal()]  # noqa: PTH208 - as names
    except OSError:
        return []


def _has(pid: int, wanted: bytes) -> bool:
    # That of a process which has ended is empty, or cannot be read.
    try:
        variables = (_PROCESSES / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return variables.startswith(wanted) or b"\0" + wanted in variables
