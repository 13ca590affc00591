"""The demo's worker processes: ordinary `pyasynq worker` commands, started, killed and ended by us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final, Self

from pyasynq.cli.demo.tasks import QUEUE

if TYPE_CHECKING:
    from pathlib import Path

CONCURRENCY: Final = 8
"""Number of tasks that each worker holds at a time: small, so that much work is left when one is killed."""

_STOP_SECONDS: Final = 10.0
_QUOTED_LINES: Final = 15


class Worker:
    """One `pyasynq worker` process. Its standard input is a pipe that ends when this process does."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name.replace(' ', '-')}.log"
        command = [sys.executable, "-m", "pyasynq.cli", "worker", "pyasynq.cli.demo.tasks:app"]
        options = ["--concurrency", str(CONCURRENCY), "--queues", f"{QUEUE}=1", "--log-level", "warning"]
        options.append("--publish-events")
        with self._log.open("wb") as log:
            # In a session of its own, so that Ctrl-C reaches the demo alone, which ends its workers in order.
            self._process = subprocess.Popen(
                [*command, *options],
                env={**os.environ, "PYASYNQ_REDIS_URL": url},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=folder,  # the user's current folder may contain modules of any name
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process; None while it runs."""
        return self._process.poll()

    @property
    def last_words(self) -> str:
        """The last lines of the worker's log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_QUOTED_LINES:])

    def kill(self) -> None:
        """End the process with SIGKILL, so that it can clean up nothing, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the process, unless it has ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def wait_or_kill(self) -> None:
        """Wait until the process has ended after SIGTERM; kill it if it does not end in time."""
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdin is not None:
            self._process.stdin.close()


class Workers:
    """Two workers, which end with the `with` block."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self.all: list[Worker] = []

    def __enter__(self) -> Self:
        try:
            for number in (1, 2):
                self.all.append(Worker(f"worker {number}", self._url, self._folder))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        for worker in self.all:
            worker.ask_to_stop()
        for worker in self.all:
            worker.wait_or_kill()
