"""Child processes of the harness: in their own sessions, measured, and killed when the harness ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

_PATIENCE = 15.0
_PROC = Path("/proc")


class Children:
    """All processes that a run has started. Leaving the `with` block kills those that are left."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._living: list[Child] = []
        self._number = 0

    def start(
        self, command: Sequence[str], *, name: str, environment: Mapping[str, str], pipes: bool = False
    ) -> Child:
        """Start a command; its output goes to a log file, or with `pipes` its standard output to the harness.

        It gets its own session, so Ctrl-C reaches only the harness, which then kills the children.
        """
        self._number += 1
        log = self._logs / f"{self._number:03}-{name}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else file,
                stderr=file,
                env=dict(environment),
                start_new_session=True,
            )
        child = Child(process, log, name)
        self._living = [other for other in self._living if other.alive]
        self._living.append(child)
        return child

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for child in self._living:
            child.kill()


class Child:
    """One process and its descendants."""

    def __init__(self, process: subprocess.Popen[Any], log: Path, name: str) -> None:
        self.process = process
        self.name = name
        self._log = log

    @property
    def said(self) -> str:
        """Last 2,000 characters of the process' log."""
        return self._log.read_text(errors="replace")[-2000:]

    @property
    def alive(self) -> bool:
        """Whether the process that was started still runs."""
        return self.process.poll() is None

    @property
    def pids(self) -> list[int]:
        """Process ids of the process and its descendants."""
        return [self.process.pid, *descendants(self.process.pid)]

    def cpu_seconds(self) -> float:
        """Return the processor seconds used so far by the process and its living descendants."""
        return sum(cpu_seconds(pid) for pid in self.pids)

    def peak_memory(self) -> int:
        """Return the sum of the peak resident memory of all processes, in bytes."""
        return sum(peak_memory(pid) for pid in self.pids)

    def stop(self) -> None:
        """Ask the process to end; kill it if that takes long."""
        if self.alive:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_PATIENCE)
        self.kill()

    def kill(self) -> None:
        """Kill the process and its descendants at once."""
        _kill_group(self.process)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def _kill_group(process: subprocess.Popen[Any]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # The group has ended; macOS reports this with the second error.
        return


def descendants(pid: int) -> list[int]:
    """Return all living descendants of a process."""
    lists = list(_PROC.glob(f"{pid}/task/*/children"))
    if not lists:
        return [] if _PROC.joinpath(str(os.getpid())).exists() else _descendants_elsewhere(pid)
    found = []
    for text in map(_read, lists):
        for child in map(int, text.split()):
            found += [child, *descendants(child)]
    return found


def _descendants_elsewhere(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds of a process: exact to the microsecond on Linux, else to the tick."""
    texts = [_read(path) for path in _PROC.glob(f"{pid}/task/*/schedstat")]
    nanoseconds = [int(text.split()[0]) for text in texts if text]
    if nanoseconds:
        return sum(nanoseconds) / 1e9
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def peak_memory(pid: int) -> int:
    """Return the peak resident memory in bytes; the present one where the system does not report the peak."""
    for name, value in _status(pid):
        if name == "VmHWM":
            return int(value.split()[0]) * 1024
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def _status(pid: int) -> Iterator[tuple[str, str]]:
    for line in _read(_PROC / str(pid) / "status").splitlines():
        name, _, value = line.partition(":")
        yield name, value


def _read(path: Path) -> str:
    """Return the text of a file of /proc; empty if its process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
