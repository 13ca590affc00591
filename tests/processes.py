"""Finding processes that a test has started, directly or not, and waiting for what they do."""

from __future__ import annotations

import psutil

MARK = "PYASYNQ_TEST_MARK"
"""Name of the environment variable by which a test marks the processes that it starts and their children."""


def marked_processes(mark: str) -> list[psutil.Process]:
    """Return the living processes whose environment has the mark, regardless of their parents."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return found
