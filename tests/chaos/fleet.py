"""Worker processes that are killed and replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_ROOT = Path(__file__).resolve().parents[2]
_STOP_SECONDS = 20.0
_GOOD_ENDS = frozenset({0, -signal.SIGTERM})
"""The second is that of a process which is told to end before it has learned to listen."""


class Fleet:
    """A number of worker processes, which end with the `with` block.

    Args:
        size: how many processes.
        arguments: what follows `pyasynq worker`, or `python -m` and the program.
        environment: variables in addition to our own.
        log: the file that all of them write to.
        program: the module that is run, instead of `pyasynq worker`.
        command: another program than Python, and its first arguments.
        may_end_with: exit codes that are not a failure; `revive` starts such a process again.
        package: where another version of the package is installed, instead of this one.
    """

    def __init__(
        self,
        size: int,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        program: str = "",
        command: Sequence[str] = (),
        may_end_with: frozenset[int] = frozenset(),
        package: Path | None = None,
    ) -> None:
        self._size = size
        module = [program] if program else ["pyasynq.cli", "worker"]
        self._command = [*(command or [sys.executable, "-m", *module]), *arguments]
        path = os.pathsep.join(
            filter(None, [str(package or _ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH")])
        )
        self._environment = {**os.environ, **environment, "PYTHONPATH": path}
        self._log = log
        self._may_end_with = may_end_with
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for _ in range(self._size):
            self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def size(self) -> int:
        """How many processes there are to be."""
        return self._size

    def stop(self) -> list[str]:
        """Ask all of them to end, and return a sentence about each that does not end well."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.terminate()
        complaints = []
        for process in processes:
            try:
                code = process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                complaints.append(f"worker {process.pid} did not end within {_STOP_SECONDS:g} s")
            else:
                if code not in _GOOD_ENDS | self._may_end_with:
                    complaints.append(f"worker {process.pid} ended with exit code {code}")
        return complaints

    def pids(self) -> list[int]:
        """Return the ids of the processes that live, in the order of their starts."""
        return [process.pid for process in self._processes if process.poll() is None]

    def kill(self, pid: int, *, replace: bool = True) -> None:
        """Kill one with SIGKILL, wait until it is gone, and start another, unless told not to."""
        process = self._process(pid)
        process.kill()
        process.wait()
        self._processes.remove(process)
        if replace:
            self._start()

    def terminate(self, pid: int, *, within: float) -> bool:
        """Send SIGTERM to one and wait; return whether it ended in time, and start another in its place.

        One that did not is killed.
        """
        process = self._process(pid)
        process.terminate()
        try:
            process.wait(within)
        except subprocess.TimeoutExpired:
            self.kill(pid)
            return False
        self._processes.remove(process)
        self._start()
        return True

    def revive(self) -> list[int]:
        """Start again what has ended with an exit code that is not a failure, as an init system does.

        Return the ids of the processes that had ended.
        """
        ended = [process for process in self._processes if process.poll() in self._may_end_with]
        for process in ended:
            self._processes.remove(process)
            self._start()
        return [process.pid for process in ended]

    def failures(self) -> Iterator[str]:
        """Name each process that ended without being killed."""
        for process in self._processes:
            if process.poll() is not None and process.returncode not in self._may_end_with:
                yield f"worker {process.pid} ended by itself with exit code {process.returncode}"

    def _process(self, pid: int) -> subprocess.Popen[bytes]:
        return next(process for process in self._processes if process.pid == pid)

    def _start(self) -> None:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._processes.append(process)
