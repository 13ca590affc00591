"""Control group (cgroup v2) of a command: kills all its processes at once, and limits them together."""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_OWN: Final = Path("/proc/self/cgroup")
_UNIFIED: Final = "0::"


def find_own_group() -> Path | None:
    """Return the folder of this process' control group; None without cgroup v2."""
    try:
        mounts = _MOUNTS.read_text("utf-8").splitlines()
        own = _OWN.read_text("utf-8").splitlines()
    except OSError:
        return None
    for line in mounts:
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            mount = fields.split(" ")[4]
            paths = [one.removeprefix(_UNIFIED) for one in own if one.startswith(_UNIFIED)]
            return Path(mount + paths[0]) if paths else None
    return None


def can_make_groups(folder: Path) -> bool:
    """Return whether child groups can be made, joined and killed below a control group."""
    group = ControlGroup(folder / f"pyasynq-probe-{os.getpid()}")
    try:
        group.make(memory=None, processes=None)
    except OSError:
        return False
    can_kill = (group.folder / "cgroup.kill").exists()
    can_join = os.access(folder / "cgroup.procs", os.W_OK)
    group.remove()
    return can_kill and can_join


class ControlGroup:
    """A control group of one command. Its methods raise `OSError`, except `kill` and `remove`.

    Args:
        folder: folder of the group, below the service's own group.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._limits: tuple[int | None, int | None] | None = None

    @functools.cached_property
    def limits_memory(self) -> bool:
        """Whether the memory of the whole command can be limited."""
        return (self.folder / "memory.max").exists()

    @functools.cached_property
    def limits_processes(self) -> bool:
        """Whether the number of processes of the whole command can be limited."""
        return (self.folder / "pids.max").exists()

    def make(self, *, memory: int | None, processes: int | None) -> None:
        """Make the group with the limits that the host allows, unless it exists with these limits."""
        if self._limits == (memory, processes):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.limits_memory:
            self._write("memory.max", "max" if memory is None else str(memory))
            with suppress(OSError):
                self._write("memory.swap.max", "max" if memory is None else "0")
            with suppress(OSError):
                self._write("memory.oom.group", "1")
        if self.limits_processes:
            self._write("pids.max", "max" if processes is None else str(processes))
        self._limits = memory, processes

    def join(self) -> None:
        """Move this process into the group."""
        self._write("cgroup.procs", "0")

    def add(self, pid: int) -> None:
        """Move a process into the group."""
        self._write("cgroup.procs", str(pid))

    def kill(self) -> None:
        """Kill all processes of the group at once."""
        with suppress(OSError):
            self._write("cgroup.kill", "1")

    def count_memory_kills(self) -> int:
        """Return how often the kernel killed processes of the group because of its memory limit."""
        return self._read_count("memory.events", "oom_kill") if self.limits_memory else 0

    def count_refused_forks(self) -> int:
        """Return how often the limit of processes refused a new one."""
        return self._read_count("pids.events", "max") if self.limits_processes else 0

    def remove(self) -> None:
        """Remove the group, if it is empty."""
        self._limits = None
        with suppress(OSError):
            self.folder.rmdir()

    def _write(self, name: str, text: str) -> None:
        file = os.open(f"{self.folder}/{name}", os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)

    def _read_count(self, name: str, word: str) -> int:
        try:
            lines = (self.folder / name).read_text("ascii").splitlines()
        except OSError:
            return 0
        pairs = [line.split() for line in lines]
        return next((int(pair[1]) for pair in pairs if pair[:1] == [word]), 0)
