"""Marks in the environment of child processes, by which all descendants of a child are found and killed.

A process group does not include processes with their own session, and the parent of an orphan is unknown.
But all descendants inherit the environment, unless a process is given another one.
"""

from __future__ import annotations

import os
import signal
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

FAMILY: Final = "PYASYNQ_FAMILY"
"""Environment variable by which a supervisor names the family (process tree) of each worker."""
MARK: Final = "PYASYNQ_EXECUTOR_CHILD"
"""Environment variable that a worker sets for each child process: the worker's family, and a UUID."""
_PROCESSES: Final = Path("/proc")
_MOST_LOOKS: Final = 20
"""Maximum number of searches for descendants, in case they keep starting new processes."""


def new_family() -> str:
    """Return a unique name for a worker's family of processes (variable `FAMILY`)."""
    return uuid.uuid4().hex


def new_mark() -> str:
    """Return a unique value of the variable `MARK` for a new child: this worker's family, and a UUID."""
    return f"{os.environ.get(FAMILY) or 'alone'}/{uuid.uuid4().hex}"


def kill_marked(beginning: str) -> int:
    """Kill the processes whose marks start with this text; return how many. Needs /proc.

    Processes of other users are not found, nor processes whose environment was replaced.
    """
    wanted = f"{MARK}={beginning}".encode()
    killed = 0
    for _ in range(_MOST_LOOKS):
        found = [pid for pid in _list_living() if _has(pid, wanted)]
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        if not found:
            break
    return killed


def _list_living() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROCESSES) if name.isdecimal()]  # noqa: PTH208 - as names
    except OSError:
        return []


def _has(pid: int, wanted: bytes) -> bool:
    # The environment of an ended process is empty or unreadable.
    try:
        variables = (_PROCESSES / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return variables.startswith(wanted) or b"\0" + wanted in variables
