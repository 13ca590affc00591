"""The meaning of a command's end, and what is kept of its output."""

from __future__ import annotations

import errno
import signal
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.control import Archive, Retry, Snooze
from pyasynq.gateway.configurations import CommandLimits, CommandSettings
from pyasynq.gateway.configurations.argument_template import parse_argument
from pyasynq.gateway.hosted.cmd.exit_outcomes import (
    CommandEnd,
    find_killing_limit,
    judge_end,
    judge_failed_start,
)
from pyasynq.gateway.hosted.cmd.launcher.control_group import ControlGroup
from pyasynq.gateway.hosted.cmd.output import CommandProgress, KeptOutput, OutputLines, read_progress

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = CommandSettings(
    (parse_argument("argv[0]", "/bin/true"),),
    limits=CommandLimits(cpu=10, memory=100 * 2**20, processes=32, file_size=2**20),
    success_codes=(1,),
    retry_codes=(64,),
    archive_codes=(2,),
    snooze_codes={99: 30.0},
)


def exit_by(code: int) -> int:
    """Return the status of a program that exits."""
    return code << 8


@pytest.mark.parametrize(
    ("end", "kind", "reason"),
    [
        (CommandEnd(exit_by(3)), Retry, "exit code 3: bad"),
        (CommandEnd(exit_by(75)), Retry, "exit code 75: bad"),
        (CommandEnd(exit_by(64)), Retry, "exit code 64: bad"),
        (CommandEnd(exit_by(65)), Archive, "exit code 65: bad"),
        (CommandEnd(exit_by(77)), Archive, "exit code 77: bad"),
        (CommandEnd(exit_by(78)), Archive, "exit code 78: bad"),
        (CommandEnd(exit_by(2)), Archive, "exit code 2: bad"),
        (CommandEnd(signal.SIGSEGV), Retry, "killed by signal SIGSEGV: bad"),
        (CommandEnd(signal.SIGSEGV | 0x80), Retry, "killed by signal SIGSEGV: bad"),
        (CommandEnd(signal.SIGXCPU), Retry, "killed at its CPU limit of 10 s: bad"),
        (CommandEnd(signal.SIGKILL, cpu=11), Retry, "killed at its CPU limit of 10 s: bad"),
        (CommandEnd(signal.SIGKILL, cpu=1), Retry, "killed by signal SIGKILL: bad"),
        (CommandEnd(signal.SIGXFSZ), Retry, "killed at its limit of 1.0 MB for a file: bad"),
        (CommandEnd(signal.SIGKILL, memory_kills=1), Retry, "killed at its memory limit of 105 MB: bad"),
        (
            CommandEnd(exit_by(3), memory=90 * 2**20),
            Retry,
            "exit code 3 (near its memory limit of 105 MB): bad",
        ),
        (CommandEnd(exit_by(3), refused_forks=1), Retry, "exit code 3 (at its limit of 32 processes): bad"),
    ],
)
def test_a_failed_command_is_judged(end: CommandEnd, kind: type[Any], reason: str) -> None:
    """By its exit code or signal; the reason names the limit, and ends with the last line of errors."""
    outcome = judge_end(end, COMMAND, "bad")

    assert isinstance(outcome, kind)
    assert reason == str(outcome)


@pytest.mark.parametrize(
    ("end", "limit"),
    [
        (CommandEnd(exit_by(0)), ""),
        (CommandEnd(None), ""),
        (CommandEnd(exit_by(3), memory=90 * 2**20, memory_kills=1), ""),
        (CommandEnd(signal.SIGSEGV), ""),
        (CommandEnd(signal.SIGKILL, cpu=1), ""),
        (CommandEnd(signal.SIGKILL, cpu=10), "cpu"),
        (CommandEnd(signal.SIGXCPU), "cpu"),
        (CommandEnd(signal.SIGXFSZ), "file_size"),
        (CommandEnd(signal.SIGKILL, cpu=11, memory_kills=1), "memory"),
    ],
)
def test_the_limit_that_killed_a_command_is_found(end: CommandEnd, limit: str) -> None:
    """As its error names it; a command without this limit was killed by something else."""
    assert limit == find_killing_limit(end, COMMAND.limits)
    assert "" == find_killing_limit(end, CommandLimits())


@pytest.mark.parametrize("code", [0, 1])
def test_a_success_is_judged(code: int) -> None:
    """0, and the codes of the type."""
    assert judge_end(CommandEnd(exit_by(code)), COMMAND) is None


def test_a_code_may_snooze() -> None:
    """Without a retry spent."""
    outcome = judge_end(CommandEnd(exit_by(99)), COMMAND)

    assert isinstance(outcome, Snooze)
    assert 30 == outcome.delay


@pytest.mark.parametrize(
    ("stage", "number", "kind", "reason"),
    [
        ("program", errno.ENOENT, Retry, "the program could not be started: No such file or directory"),
        ("program", errno.E2BIG, Archive, "the arguments of the command are too long for this system"),
        ("user", errno.EPERM, Retry, "the user of the command could not be taken on"),
        ("start", errno.EINVAL, Retry, "the command could not be started"),
    ],
)
def test_a_failed_start_is_judged(stage: str, number: int, kind: type[Any], reason: str) -> None:
    """By what could not be done."""
    outcome = judge_failed_start(stage, number)

    assert isinstance(outcome, kind)
    assert reason in str(outcome)


def test_short_output_is_kept_whole() -> None:
    """Up to 64 KiB."""
    kept = KeptOutput()
    for _ in range(64):
        kept.add(b"x" * 1_023 + b"\n")

    assert (b"x" * 1_023 + b"\n") * 64 == kept.content()
    assert "x" * 500 == kept.last_line()


def test_long_output_is_cut_in_the_middle() -> None:
    """Its beginning and its end are kept, and the rest is counted."""
    kept = KeptOutput()
    kept.add(b"begin" + b"x" * 20_000)
    for _ in range(1_000):
        kept.add(b"y" * 10_000)
    kept.add(b"\nthe \xff\x1b[31mend\n\n")
    content = kept.content()

    assert content.startswith(b"beginxxx")
    assert f"({kept.total - 65_536:,} bytes left out)".encode() in content
    assert content.endswith(b"end\n\n")
    assert len(content) < 65_536 + 100
    assert "the \N{REPLACEMENT CHARACTER}\N{SYMBOL FOR ESCAPE}[31mend" == kept.last_line()


@pytest.mark.parametrize(
    ("line", "progress"),
    [
        (b"::progress 3/10 note", CommandProgress(3, 10, "note")),
        (b"::progress 3/10", CommandProgress(3, 10, "")),
        (b"::progress 0.5", CommandProgress(0.5, None, "")),
        (
            b"::progress 3 a \xff\x1b b\r",
            CommandProgress(3, None, "a \N{REPLACEMENT CHARACTER}\N{SYMBOL FOR ESCAPE} b"),
        ),
        (b"::progress -3/10", None),
        (b"::progress inf", None),
        (b"::progress 9999999999999999999", None),
        (b"x ::progress 3/10", None),
        (b"::progress", None),
    ],
)
def test_progress_is_read_from_a_line(line: bytes, progress: CommandProgress | None) -> None:
    """Other lines are output."""
    assert progress == read_progress(line)


def test_lines_are_logged_as_they_come() -> None:
    """Whole, visible, and cut if they are long; the newest progress of a read is reported."""
    logged: list[str] = []
    reported: list[CommandProgress] = []
    lines = OutputLines(logged.append, reported.append)
    lines.feed(b"a\nb\x1b[2J")
    lines.feed(b"c\xff\r\n::progress 1/3\n::progress 2/3\n" + b"x" * 20_000 + b"\nlast")
    lines.end()

    assert ["a", "b\N{SYMBOL FOR ESCAPE}[2Jc\N{REPLACEMENT CHARACTER}", "x" * 8_192, "last"] == logged
    assert [CommandProgress(2, 3, "")] == reported


def test_a_flood_of_lines_is_counted() -> None:
    """1,000 at once, and 100 a second; progress is read all the same."""
    logged: list[str] = []
    reported: list[CommandProgress] = []
    now = 0.0
    lines = OutputLines(logged.append, reported.append, clock=lambda: now)
    for _ in range(3):
        lines.feed(b"x\n" * 1_000)
    assert 1_000 == len(logged)
    lines.feed(b"::progress 1\n")
    now = 0.02
    lines.feed(b"y\nz\n")
    lines.end()

    assert ["(2,000 lines left out)", "y", "z"] == logged[1_000:]
    assert [CommandProgress(1, None, "")] == reported


def test_a_line_without_an_end_costs_no_memory() -> None:
    """Also when nothing is logged."""
    for log in (None, lambda _: None):
        lines = OutputLines(log, lambda _: None)
        for _ in range(100):
            lines.feed(b"x" * 65_536)
        assert 8_192 == len(lines._rest)


def test_a_control_group_limits_what_its_controllers_allow(tmp_path: Path) -> None:
    """Memory without swap, and processes; it is killed as a whole."""
    for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cgroup.kill"):
        (tmp_path / name).touch()
    (tmp_path / "memory.events").write_text("low 0\noom 2\noom_kill 3\n")
    (tmp_path / "pids.events").write_text("max 5\n")
    group = ControlGroup(tmp_path)
    group.make(memory=1_000, processes=7)
    group.kill()
    found = {one.name: one.read_text() for one in tmp_path.iterdir()}

    assert ("1000", "0", "1", "7", "1") == tuple(
        found[name]
        for name in ("memory.max", "memory.swap.max", "memory.oom.group", "pids.max", "cgroup.kill")
    )
    assert (3, 5) == (group.count_memory_kills(), group.count_refused_forks())
    group.make(memory=None, processes=None)
    assert ["max", "max"] == [(tmp_path / name).read_text() for name in ("memory.max", "pids.max")]


def test_a_control_group_without_controllers_only_kills(tmp_path: Path) -> None:
    """Its limits are then those of processes."""
    group = ControlGroup(tmp_path / "group")
    group.make(memory=1_000, processes=7)

    assert [] == list(group.folder.iterdir())
    assert (False, False, 0) == (group.limits_memory, group.limits_processes, group.count_memory_kills())
    group.remove()
    assert not group.folder.exists()
