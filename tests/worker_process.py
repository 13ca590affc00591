"""A `pyasynq` command as a child process whose log lines tests wait for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import signal
    from types import TracebackType

_SOURCES = str(Path(__file__).parent.parent / "src")


class WorkerProcess:
    """One `pyasynq` process in a folder; tests wait for lines of its standard error.

    `lines` is what was read of it so far, `output` all of standard output after the end.

    Leaving the `with` block kills it, if it still runs.
    """

    def __init__(self, folder: Path, url: str, *arguments: str, **environment: str) -> None:
        self.lines: list[str] = []
        self.output = ""
        path = os.pathsep.join(filter(None, [_SOURCES, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pyasynq.cli", *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "PYASYNQ_REDIS_URL": url, **environment},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def text(self) -> str:
        """All that was read so far."""
        return "".join(self.lines)

    def wait_for(self, pattern: str) -> str:
        """Read until a line matches, and return it; fail when the process ends without one."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line)
            if re.search(pattern, line):
                return line
        raise AssertionError(f"no line matches {pattern!r} in:\n{self.text}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def terminate(self) -> None:
        """Send SIGTERM to the process."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the process, and read the rest of its output."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Read the rest of the output, and return the exit code."""
        assert self._process.stderr is not None
        assert self._process.stdout is not None
        self.lines += self._process.stderr
        self.output = self._process.stdout.read()
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._process:
            self._process.kill()
