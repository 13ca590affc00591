"""The end of commands: nothing of one is left running, whatever it has started and however it ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.fix_commands import (
    AS_ROOT,
    ESCAPES,
    IN_GROUPS,
    ISOLATIONS,
    ON_LINUX,
    RanAttempt,
    list_living,
    preparing_command,
    python_command,
    run_command_once,
    shell_command,
    until_dead,
    until_named,
)
from tests.run_async import run_async
from tests.waiting import wait_until

pytestmark = ON_LINUX


@pytest.mark.parametrize(
    ("end", "isolation"),
    [
        ("exit", "process"),
        ("timeout", "process"),
        ("cancel", "process"),
        ("killed", "process"),
        pytest.param("exit", "cgroup", marks=IN_GROUPS),
        pytest.param("timeout", "cgroup", marks=[IN_GROUPS, pytest.mark.long]),
        pytest.param("cancel", "cgroup", marks=IN_GROUPS),
        pytest.param("killed", "cgroup", marks=IN_GROUPS),
    ],
)
@run_async
async def test_nothing_of_a_command_is_left(tmp_path: Path, end: str, isolation: str) -> None:
    """Children, double forks and new sessions die with it, whatever its end."""
    code = python_command(ESCAPES, str(tmp_path), {"exit": "exit", "timeout": "deaf"}.get(end, "stay"))
    async with preparing_command(code, isolation, grace=0.1) as run:
        work = asyncio.ensure_future(run(RanAttempt(seconds=4 if end == "timeout" else 100)))
        await until_named(tmp_path, 3 if end == "exit" else 4)
        if end == "cancel":
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work
        elif end == "killed":
            # The keeper: its parent, the launcher, gets what is left.
            os.kill(find_keeper(list_living(tmp_path)), signal.SIGKILL)
            assert "the keeper of the command was killed" in str(await work)
            await until_dead(tmp_path)
        else:
            outcome = await work
            assert outcome is None if end == "exit" else str(outcome).startswith("timed out")
        assert [] == list_living(tmp_path)


def find_keeper(processes: list[int]) -> int:
    """Return the keeper above some processes: the parent of one that is the leader of its session."""
    leaders = [pid for pid in processes if os.getsid(pid) == pid]
    [main] = [
        pid for pid in leaders if b"stay" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2:]
    ][:1]
    return find_parent(main)


def find_parent(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@run_async
async def test_a_command_may_end_by_itself_within_the_grace() -> None:
    """TERM comes first, to all its processes."""
    script = (
        "trap 'echo bye; exit 0' TERM; (trap 'echo child; exit 0' TERM; sleep 100 & wait) & sleep 100 & wait"
    )
    logged: list[str] = []
    async with preparing_command(shell_command(script)) as run:
        logging.getLogger("pyasynq.commands").setLevel(logging.INFO)
        handler = logging.Handler()
        handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign] # of a test
        logging.getLogger("pyasynq.commands").addHandler(handler)
        try:
            outcome = await run(RanAttempt(seconds=3))
        finally:
            logging.getLogger("pyasynq.commands").removeHandler(handler)

    assert str(outcome).startswith("timed out")
    assert {"t/a out: bye", "t/a out: child"} == set(logged)


@AS_ROOT
@pytest.mark.parametrize(
    ("isolation", "code"),
    [
        ("process", "while (1) { defined(fork) or sleep 1_000 }"),
        pytest.param("process", "while (1) { fork }", marks=pytest.mark.long),
        pytest.param("cgroup", "while (1) { fork }", marks=[IN_GROUPS, pytest.mark.long]),
    ],
)
@run_async
async def test_a_fork_bomb_is_bounded_and_killed(isolation: str, code: str) -> None:
    """By the limit of processes; all are gone after the end."""
    attempt = RanAttempt(seconds=2)
    outcome = await run_command_once(
        shell_command('exec perl -e "$1"', code),
        attempt,
        isolation=isolation,
        user="nobody",
        grace=0,
        limits={"processes": 40},
    )

    assert str(outcome).startswith("timed out")
    assert [] == list_processes_of(65_534)


def list_processes_of(user: int) -> list[str]:
    """Return the processes of a user."""
    found = []
    for one in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if one.stat().st_uid == user:
                found.append(one.name)
    return found


@run_async
async def test_a_killed_launcher_is_replaced() -> None:
    """Its keepers go on; the next one comes from another launcher."""
    script = shell_command('cut -d" " -f4 /proc/$PPID/stat; read line')
    async with preparing_command(script) as run:
        launcher = int(await run(RanAttempt(b"\n")))
        os.kill(launcher, signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: has_ended(launcher))
        results = await asyncio.gather(run(RanAttempt(b"\n")), run(RanAttempt(b"\n")))
    assert launcher not in map(int, results)


@run_async
async def test_a_command_without_a_launcher_ends_with_its_keeper(tmp_path: Path) -> None:
    """No process is left that could end it."""
    async with preparing_command(shell_command('eval "$(cat)"')) as run:
        launcher = int(await run(RanAttempt(b'cut -d" " -f4 /proc/$PPID/stat')))
        os.kill(launcher, signal.SIGKILL)
        await asyncio.to_thread(wait_until, lambda: has_ended(launcher))
        work = asyncio.ensure_future(run(RanAttempt(f"echo >{tmp_path}/$$; exec sleep 1000".encode())))
        await until_named(tmp_path, 1)
        [command] = list_living(tmp_path)
        os.kill(find_parent(command), signal.SIGKILL)
        assert "the keeper of the command was killed" in str(await work)
        await asyncio.to_thread(wait_until, lambda: has_ended(command))


def has_ended(pid: int) -> bool:
    """Return whether a process has ended, also one whose parent does not know yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


SERVICE = """
import asyncio, sys
from tests.fix_commands import RanAttempt, preparing_command, python_command, ESCAPES

async def main():
    async with preparing_command(python_command(ESCAPES, sys.argv[1], "stay"), sys.argv[2]) as run:
        await run(RanAttempt())

asyncio.run(main())
"""


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_nothing_is_left_of_a_killed_service(tmp_path: Path, isolation: str, number: signal.Signals) -> None:
    """Its commands are killed at once, and their folders removed; while it is stopped, they go on."""
    names, folders = tmp_path / "names", tmp_path / "folders"
    names.mkdir()
    folders.mkdir()
    service = subprocess.Popen(
        [sys.executable, "-c", SERVICE, str(names), isolation], env={**os.environ, "TMPDIR": str(folders)}
    )
    try:
        wait_until(lambda: len(list(names.iterdir())) >= 4 or service.poll() is not None)
        assert [] != list(folders.iterdir())
        service.send_signal(number)
        if number is signal.SIGSTOP:
            assert 4 == len(list_living(names))
            service.kill()
        wait_until(lambda: not list_living(names))
        wait_until(lambda: not list(folders.iterdir()))
    finally:
        service.kill()
        service.wait()
