"""Commands as processes: what they are given, what is kept of them, and which limits hold."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from pyasynq.control import Archive, Retry
from tests.fix_commands import (
    AS_ROOT,
    ON_LINUX,
    RanAttempt,
    preparing_command,
    python_command,
    run_command_once,
    shell_command,
)
from tests.run_async import run_async

pytestmark = ON_LINUX


@pytest.mark.parametrize("limits", [{}, {"files": 64}], ids=["spawned", "forked"])
@run_async
async def test_a_command_gets_its_payload_and_little_else(
    monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]
) -> None:
    """Its environment is empty except for what is listed, and its folder is fresh."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("PYASYNQ_SECRET", "hush")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    attempt = RanAttempt(b'{"x": "a b"}', headers={"traceparent": trace}, retried=2)
    script = "cat; echo; env | sort; ls -A; umask; printf '%s\\n' \"$@\"; ls /proc/self/fd"
    output = await run_command_once(
        [*shell_command(script), "<{x}>"], attempt, env=["TZ", "MODE=fast", "MISSING"], limits=limits
    )
    lines = output.decode().splitlines()
    variables = dict(line.split("=", 1) for line in lines if "=" in line)

    assert '{"x": "a b"}' == lines[0]
    assert {"MODE", "TZ", "PATH", "LANG", "PWD", "TRACEPARENT"} | {
        f"PYASYNQ_{name}" for name in ("TASK_ID", "QUEUE", "ATTEMPT", "DEADLINE", "RESULT")
    } == variables.keys() - {"OLDPWD", "SHLVL", "_"}
    assert ("a", "t", "3", trace) == tuple(
        variables[name] for name in ("PYASYNQ_TASK_ID", "PYASYNQ_QUEUE", "PYASYNQ_ATTEMPT", "TRACEPARENT")
    )
    assert ["0077", "<a b>", "0", "1", "2"] == [
        line for line in lines[1:] if "=" not in line and line != "3"
    ], "no file of the folder, and no descriptor of the service"
    assert not await asyncio.to_thread(os.path.lexists, variables["PWD"])


@pytest.mark.parametrize(
    ("script", "kind", "reason"),
    [
        ("exit 3", Retry, "exit code 3"),
        ("echo no >&2; exit 65", Archive, "exit code 65: no"),
        ("kill -SEGV $$", Retry, "killed by signal SIGSEGV"),
        ("exec /nonexistent", Retry, "exit code 127: "),
    ],
)
@run_async
async def test_a_failed_command_has_a_reason(script: str, kind: type[Any], reason: str) -> None:
    """Exit code or signal, and the last line of its errors."""
    outcome = await run_command_once(shell_command(script))

    assert isinstance(outcome, kind)
    assert str(outcome).startswith(reason)


@run_async
async def test_hostile_params_stay_in_their_arguments(tmp_path: Path) -> None:
    """Whatever a shell would do with them; what does not fit starts nothing."""
    hostile = f"; touch {tmp_path}/x; $(touch {tmp_path}/x) `touch {tmp_path}/x` | & \n > {tmp_path}/x"
    payload = b'{"x": %s}'
    async with preparing_command(["/usr/bin/printf", "%s", "{x}"]) as run:
        assert hostile.encode() == await run(RanAttempt(payload % json.dumps(hostile).encode()))
        refused = [await run(RanAttempt(payload % one)) for one in (b'"-v"', b'"a\\u0000"', b"[1]")]
        nul_id = await run(RanAttempt(payload % b"1", id="a\0b"))
    assert [Archive] * 3 == [type(one) for one in refused]
    assert isinstance(nul_id, Archive)
    assert not await asyncio.to_thread(os.path.lexists, tmp_path / "x")


@pytest.mark.parametrize("limits", [{}, {"files": 64}], ids=["spawned", "forked"])
@run_async
async def test_a_command_inherits_no_settings_of_the_service(limits: dict[str, Any]) -> None:
    """Signals do what they do by default, no program gains rights, and the command leads a session."""
    names = "^(SigBlk|SigIgn|NoNewPrivs):"
    script = f"grep -E '{names}' /proc/self/status; ulimit -c; cut -d' ' -f6 /proc/$$/stat; echo $$"
    output = await run_command_once(shell_command(script), limits=limits)
    *status, core, session, leader = output.decode().splitlines()

    fields = {name: int(number, 16) for name, number in (line.split(":") for line in status)}
    # The C library ignores the signals 32 and 33, which are its own, in all that it spawns.
    fields["SigIgn"] &= ~(0b11 << 31)
    assert {"SigBlk": 0, "SigIgn": 0, "NoNewPrivs": 1} == fields
    assert ("0", leader) == (core, session)


@run_async
async def test_a_spawned_command_that_cannot_start_names_the_reason(tmp_path: Path) -> None:
    """And its keeper goes on."""
    folder, program = tmp_path / "folder", tmp_path / "program"
    folder.mkdir()
    await asyncio.to_thread(shutil.copy, "/bin/true", program)
    async with preparing_command([str(program)], cwd=str(folder), umask="022") as run:
        assert await run(RanAttempt()) is None
        program.write_text("no program")
        # No shell reads a file without "#!".
        broken = str(await run(RanAttempt()))
        program.unlink()
        missing = str(await run(RanAttempt()))
        folder.rmdir()
        homeless = str(await run(RanAttempt()))
    assert [
        "the program could not be started: Exec format error",
        "the program could not be started: No such file or directory",
        "the folder of the command could not be entered: No such file or directory",
    ] == [broken, missing, homeless]


@run_async
async def test_a_result_is_what_the_command_writes_to_its_file() -> None:
    """In place of its output; a link, a pipe or too much of it counts as none, or as wrong."""
    async with preparing_command(shell_command('eval "$(cat)"')) as run:
        scripts = [
            "echo out; printf file >$PYASYNQ_RESULT",
            "echo out; printf new >t; mv t $PYASYNQ_RESULT",
            "echo out; ln -s /etc/passwd $PYASYNQ_RESULT",
            "echo out; mkfifo $PYASYNQ_RESULT",
            "echo out; echo x >t; ln t $PYASYNQ_RESULT",
            "head -c 1000001 /dev/zero >$PYASYNQ_RESULT",
            ":",
        ]
        results = [await run(RanAttempt(one.encode())) for one in scripts]
    assert [b"file", b"new", b"out\n", b"out\n", b"out\n"] == results[:5]
    assert "a result of more than 1.0 MB" in str(results[5])
    assert results[6] is None


@run_async
async def test_output_is_logged_and_progress_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Line by line with the name of the task, and nothing in it reaches a terminal."""
    attempt = RanAttempt()
    with caplog.at_level(logging.INFO, "pyasynq.commands"):
        await run_command_once(
            shell_command(r"printf 'a\033[2J\377\n::progress 3/10 half\n'; echo b >&2"), attempt
        )
    lines = [one.getMessage() for one in caplog.records if one.name == "pyasynq.commands"]

    assert {
        "t/a out: a\N{SYMBOL FOR ESCAPE}[2J\N{REPLACEMENT CHARACTER}",
        "t/a err: b",
    } == set(lines)
    assert [(3, 10, "half")] == attempt.reported


@run_async
async def test_a_keeper_runs_one_command_after_the_other_and_leaks_nothing() -> None:
    """Neither descriptors of the service, nor folders."""
    async with preparing_command(
        shell_command("echo a >b; mkdir c; chmod 0 c; readlink /proc/self; ls -A | wc -l")
    ) as run:
        await run(RanAttempt())
        before = count_descriptors()
        results = [await run(RanAttempt()) for _ in range(10)]
        assert before == count_descriptors()
    assert {b"2"} == {one.split()[1] for one in results}


def count_descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize(
    ("limits", "code", "reason"),
    [
        ({"cpu": 1}, "while True: pass", "killed at its CPU limit of 1 s"),
        ({"file_size": "64K"}, "open('a', 'wb').write(bytes(100_000))", "exit code 1: OSError"),
        ({"files": 16}, "import os; [os.dup(0) for _ in range(20)]", "exit code 1: OSError"),
        (
            {"memory": "200M"},
            "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
            "exit code 1 (near its memory limit of 210 MB): MemoryError",
        ),
    ],
)
@run_async
async def test_limits_hold(limits: dict[str, Any], code: str, reason: str) -> None:
    """And the error names them, where it can be told."""
    outcome = await run_command_once(python_command(code), limits=limits)

    assert isinstance(outcome, Retry)
    assert str(outcome).startswith(reason)


@run_async
async def test_a_file_above_its_limit_is_named() -> None:
    """For a program that does not ignore the signal, as Python does."""
    outcome = await run_command_once(
        ["/usr/bin/dd", "if=/dev/zero", "of=a", "bs=100000", "count=1"], limits={"file_size": "64K"}
    )

    assert str(outcome).startswith("killed at its limit of 66 kB for a file")


@AS_ROOT
@run_async
async def test_a_command_runs_as_its_user() -> None:
    """Without groups of the service, and with a folder of its own."""
    output = await run_command_once(
        shell_command("id -u; id -G; echo x >a && stat -c %U a; cat /proc/self/status | grep NoNewPrivs"),
        user="nobody",
    )
    [uid, groups, owner, privileges] = output.decode().splitlines()

    assert ("65534", "65534", "nobody") == (uid, groups, owner)
    assert privileges.endswith("1")


@pytest.mark.parametrize(
    "writer",
    [
        "yes | head -c 100000000",
        pytest.param("head -c 100000000 /dev/zero", marks=pytest.mark.long),
        pytest.param("head -c 100000000 /dev/urandom >&2", marks=pytest.mark.long),
        pytest.param("dd if=/dev/zero bs=1M count=1000", marks=pytest.mark.long),
    ],
)
@run_async
async def test_a_flood_of_output_costs_no_memory(writer: str) -> None:
    """The beginning and the end are kept, and the rest is counted: this process does not grow by 10 MB."""
    async with preparing_command(shell_command(writer), log_output=False) as run:
        await run(RanAttempt())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await run(RanAttempt())
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 10_000
