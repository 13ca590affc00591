"""Descendant processes: found in /proc by the ids of their parents, and stopped before they are killed."""

from __future__ import annotations

import os
import select
import signal
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from . import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .control_group import ControlGroup

_PROCESSES: Final = Path("/proc")
_KILL_SECONDS: Final = 10.0
"""Maximum seconds until killed processes end; the kernel may wait for a disk that long."""
_LOOK_SECONDS: Final = 0.05
"""Seconds until the next check of killed processes, unless one of them ends before."""
_MOST_STOPS: Final = 200
"""Maximum number of searches for processes that are not stopped yet."""
_ENDED: Final = ("Z", "X")


class Bell:
    """Self-pipe that wakes a poll when a child process ends (SIGCHLD). Each process has one."""

    def __init__(self) -> None:
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else _make_pipe()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def wait(self, others: Collection[int] = (), seconds: float | None = None) -> set[int]:
        """Wait until a child ends or one of the descriptors can be read; return the readable descriptors."""
        poll = select.poll()
        for descriptor in (self._read, *others):
            poll.register(descriptor, select.POLLIN)
        ready = {one for one, _ in poll.poll(None if seconds is None else seconds * 1_000)}
        if self._read in ready:
            with suppress(BlockingIOError):
                while os.read(self._read, 4_096):
                    pass
        return ready - {self._read}


def _make_pipe() -> tuple[int, int]:
    pair = os.pipe()
    for one in pair:
        os.set_blocking(one, False)
    return pair


class ProcessTree:
    """A command, which is a child of this process, and all its descendants.

    Args:
        main: process id of the command.
        bell: `Bell` of this process, which wakes it when a child ends.
        group: control group of the command, if it has one.

    Attributes:
        status: wait status of the command, as `os.wait` returns it; None while it runs.
        cpu: CPU seconds of all processes that have ended.
        memory: peak memory (resident set) of the largest process, in bytes.
    """

    def __init__(self, main: int, bell: Bell, group: ControlGroup | None = None) -> None:
        self._main = main
        self._bell = bell
        self._group = group
        self.status: int | None = None
        self.cpu = 0.0
        self.memory = 0

    def reap(self) -> bool:
        """Reap the ended processes; return whether any process is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            self.cpu += usage.ru_utime + usage.ru_stime
            self.memory = max(self.memory, usage.ru_maxrss * 1_024)
            if pid == self._main:
                self.status = status

    def terminate(self) -> None:
        """Send SIGTERM to all processes, and SIGCONT so that stopped ones receive it."""
        found = list_descendants(os.getpid())
        send_signal(found, signal.SIGTERM)
        send_signal(found, signal.SIGCONT)
        if not found:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._main, signal.SIGTERM)

    def kill(self) -> int:
        """Kill all processes, and reap them; return how many could not be killed."""
        if self._group is not None:
            self._group.kill()
        if not kernel.IS_LINUX:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._main, signal.SIGKILL)
        return kill_descendants(self.reap, self._bell)


def kill_descendants(reap: Callable[[], bool], bell: Bell, without: Collection[int] = ()) -> int:
    """Kill all descendants of this process; return how many could not be killed.

    Args:
        reap: function that reaps ended processes, and returns whether anything is left to kill.
        bell: `Bell` of this process, which wakes it when a child ends.
        without: children that are not killed, nor their descendants.
    """
    end = time.monotonic() + _KILL_SECONDS
    while reap():
        if time.monotonic() > end:
            return len(list_descendants(os.getpid(), without)) or 1
        send_signal(_stop_all(without), signal.SIGKILL)
        bell.wait(seconds=_LOOK_SECONDS)
    return 0


def _stop_all(without: Collection[int]) -> list[int]:
    """Stop processes until none is left that could still fork; return all of them."""
    stopped: set[int] = set()
    for _ in range(_MOST_STOPS):
        found = list_descendants(os.getpid(), without)
        new = set(found) - stopped
        if not new:
            return found
        send_signal(new, signal.SIGSTOP)
        stopped |= new
    return list(stopped)


def send_signal(processes: Collection[int], number: signal.Signals) -> None:
    """Send a signal to each process that still exists."""
    for pid in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def list_descendants(root: int, without: Collection[int] = ()) -> list[int]:
    """Return the living descendants of a process; empty without /proc.

    Args:
        root: process id.
        without: processes that are left out, with their descendants.
    """
    children: defaultdict[int, list[int]] = defaultdict(list)
    ended: set[int] = set()
    try:
        names = os.listdir(_PROCESSES)  # noqa: PTH208 - as names
    except OSError:
        return []
    for name in names:
        if name.isdecimal() and (read := _read_state(int(name))) is not None:
            state, parent = read
            children[parent].append(int(name))
            if state in _ENDED:
                ended.add(int(name))
    found: list[int] = []
    left = [root]
    while left:
        for child in children.get(left.pop(), ()):
            if child not in without:
                left.append(child)
                found.append(child)
    return [one for one in found if one not in ended]


def _read_state(pid: int) -> tuple[str, int] | None:
    """Return state letter and parent's id of a process from /proc; None if it has ended."""
    try:
        text = (_PROCESSES / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name of the program is in parentheses, and may contain parentheses itself.
    state, parent = text[text.rindex(b")") + 2 :].split(b" ", 2)[:2]
    return state.decode(), int(parent)
