"""Worker processes that are killed and replaced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ROOT = Path(__file__).resolve().parents[2]
_STOP_SECONDS = 20.0


class Fleet:
    """A number of worker processes, which end with the `with` block.

    Args:
        size: how many processes.
        arguments: what follows `pyasynq worker`, or `python -m` and the program.
        environment: variables beside our own.
        log: the file that all of them write to.
        program: the module that is run, instead of `pyasynq worker`.
    """

    def __init__(
        self,
        size: int,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        program: str = "",
    ) -> None:
        self._size = size
        self._command = [
            sys.executable,
            "-m",
            *([program] if program else ["pyasynq.cli", "worker"]),
            *arguments,
        ]
        path = os.pathsep.join(filter(None, [str(_ROOT), str(_ROOT / "src"), os.environ.get("PYTHONPATH")]))
        self._environment = {**os.environ, **environment, "PYTHONPATH": path}
        self._log = log
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for _ in range(self._size):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def pids(self) -> list[int]:
        """Return the ids of the processes that live, in the order of their starts."""
        return [process.pid for process in self._processes if process.poll() is None]

    def kill(self, pid: int, *, replace: bool = True) -> None:
        """Kill one with SIGKILL, wait until it is gone, and start another, unless told not to."""
        [process] = [process for process in self._processes if process.pid == pid]
        process.kill()
        process.wait()
        self._processes.remove(process)
        if replace:
            self._start()

    def failures(self) -> Iterator[str]:
        """Name each process that ended although nobody killed it."""
        for process in self._processes:
            if process.poll() is not None:
                yield f"worker {process.pid} ended by itself with exit code {process.returncode}"

    def _start(self) -> None:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._processes.append(process)
