"""`HostedCommands` without Redis: fake attempts, and processes that record their names."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyasynq.gateway.configurations import CommandRules, parse_service_file
from pyasynq.gateway.hosted.cmd.commands import HostedCommands
from pyasynq.gateway.hosted.cmd.isolation import find_isolation
from pyasynq.gateway.hosted.cmd.launcher.control_group import find_own_group
from pyasynq.task import Task
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from pyasynq.consumer import Attempt

ON_LINUX = pytest.mark.skipif(
    sys.platform != "linux", reason="only on Linux: elsewhere trees are not followed"
)
AS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/bin/perl").exists(), reason="only on Linux as root, with perl"
)
HAS_GROUPS = sys.platform == "linux" and find_isolation(CommandRules()).group is not None
IN_GROUPS = pytest.mark.skipif(not HAS_GROUPS, reason="only on Linux with a cgroup v2 that can be written")
ISOLATIONS = ["process", pytest.param("cgroup", marks=IN_GROUPS)]
ESCAPES = """
import os, sys, time

def stay(folder):
    with open(os.path.join(folder, str(os.getpid())), "w"):
        pass
    time.sleep(1_000)

def fork(work):
    if os.fork() == 0:
        work()
        os._exit(0)

folder = sys.argv[1]

def leave():
    os.setsid()
    fork(lambda: stay(folder))

def leave_deep():
    os.setsid()
    fork(lambda: (os.setsid(), fork(lambda: (os.setpgid(0, 0), fork(lambda: stay(folder))))))

fork(lambda: stay(folder))
fork(leave)
fork(leave_deep)
while len(os.listdir(folder)) < 3:
    time.sleep(0.01)
if sys.argv[2] == "stay":
    stay(folder)
if sys.argv[2] == "deaf":
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    stay(folder)
"""
"""A command that leaves processes behind: a child, a double fork, and one with three sessions and groups."""


@dataclass
class RanAttempt:
    """Fake attempt with the fields that a command reads."""

    payload: bytes = b"{}"
    seconds: float = 100.0
    id: str = "a"
    queue: str = "t"
    retried: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    reported: list[tuple[float, float | None, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deadline = datetime.now(UTC) + timedelta(seconds=self.seconds)
        self.task = Task("t", self.payload, headers=self.headers)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Record a progress report."""
        self.reported.append((done, total, note))


@asynccontextmanager
async def preparing_command(
    argv: list[str], isolation: str = "process", **fields: Any
) -> AsyncIterator[Callable[[RanAttempt], Awaitable[Any]]]:
    """Return the runner of a command's attempts, for the duration of a block."""
    file = parse_service_file(
        {"commands": {"isolation": isolation}, "tasks": {"t": {"kind": "cmd", "argv": argv, **fields}}}
    )
    commands = HostedCommands(file.tasks, file.commands)
    own = find_own_group()
    try:
        yield lambda attempt: commands.run(cast("Attempt", attempt))
    finally:
        await commands.close()
    assert own is None or [] == list(own.glob(f"pyasynq-{os.getpid()}-*"))
    assert not commands._launcher.folder.is_dir() or commands._launcher.folder == Path()


async def run_command_once(argv: list[str], attempt: RanAttempt | None = None, **fields: Any) -> Any:
    """Run a command once; return the outcome."""
    async with preparing_command(argv, **fields) as run:
        return await run(attempt or RanAttempt())


def shell_command(text: str, *arguments: str) -> list[str]:
    """Return the arguments of a script of the shell, without places for params."""
    return [_escape(one) for one in ("/bin/sh", "-c", text, "sh", *arguments)]


def python_command(code: str, *arguments: str) -> list[str]:
    """Return the arguments of a program in Python."""
    # By a shell: the interpreter of the tests may be one that its user can replace.
    return shell_command('exec "$@"', sys.executable, "-I", "-S", "-c", code, *arguments)


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def is_process_alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def list_living(folder: Path) -> list[int]:
    """Return the processes that have written their names, and still run."""
    return [int(one.name) for one in folder.iterdir() if is_process_alive(int(one.name))]


async def until_named(folder: Path, number: int) -> None:
    """Wait until this many processes have written their names."""
    await asyncio.to_thread(wait_until, lambda: len(list(folder.iterdir())) >= number)


async def until_dead(folder: Path) -> None:
    """Wait until none of the processes that have written their names runs."""
    await asyncio.to_thread(wait_until, lambda: not list_living(folder))
