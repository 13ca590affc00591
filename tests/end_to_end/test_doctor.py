"""The doctor on a busy system, and its command."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pyasynq._broker.scripts import DOCTOR_JUDGE
from pyasynq.cli import main
from pyasynq.doctor._repairs import Repairs
from tests.chaos.doctor import live
from tests.invariants import check_invariants
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from tests.factories import Tasks
    from tests.invariants import RedisClient

LOCK = "asynq:{default}:unique:x"


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Run `pyasynq doctor` in this process; return exit code, standard output and standard error."""
    result = CliRunner().invoke(main, ["doctor", "--pause", "0", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_busy_healthy_system_gives_no_findings(
    redis_client: RedisClient, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """For four seconds at least; `python -m tests.chaos.doctor` does it for a minute."""
    caplog.set_level(logging.CRITICAL, "pyasynq")
    done, found = asyncio.run(live(redis_url, 4))
    assert [] == found
    assert done.is_enough
    check_invariants(redis_client, ids_return=True)
    redis_client.flushall()


@pytest.fixture
def sick(redis_client: RedisClient, tasks: Tasks, damage_allowed: None, no_slow_scripts: None) -> RedisClient:
    """A database with a ghost, a stranded group and a name of an empty one."""
    tasks.pending("a")
    redis_client.lpush(tasks.keys.pending, *(f"ghost{number}" for number in range(7)))
    redis_client.sadd(tasks.keys.groups, "empty")
    return redis_client


def test_findings_are_explained_and_nothing_is_changed(
    sick: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """Exit code 1, for cron."""
    code, out, err = invoke("--redis", redis_url)
    assert (1, "") == (code, err)
    assert "Queue default\n  error: ghost (7)\n    These ids are in a queue, but no task" in out
    assert "ghost0, " in out
    assert "and 2 more" in out
    assert "    --fix: drops the ids and what is left of their hashes.\n" in out
    assert "  notice: empty_group\n" in out
    assert 8 == sick.llen(tasks.keys.pending)


def test_json_is_an_object_with_a_list_of_findings(sick: RedisClient, redis_url: str) -> None:
    """With queue, kind, severity, subjects, explanation, repair, and what was repaired."""
    code, out, err = invoke("--redis", redis_url, "--json", "--fix", "--yes")
    assert (0, "") == (code, err)
    content = json.loads(out)
    assert {"findings", "skipped"} == content.keys()
    ghost, empty = content["findings"]
    fields = {"queue", "kind", "severity", "subjects", "explanation", "repair", "repaired"}
    assert fields == ghost.keys()
    assert ("default", "ghost", "error") == (ghost["queue"], ghost["kind"], ghost["severity"])
    assert sorted(ghost["subjects"]) == sorted(ghost["repaired"])
    assert ["asynq:{default}:g:empty"] == empty["repaired"]
    check_invariants(sick)


def test_fix_repairs_and_says_what_it_did(sick: RedisClient, redis_url: str) -> None:
    """Exit code 0 when all is repaired; then there is nothing to find."""
    code, out, _ = invoke("--redis", redis_url, "--fix", "--yes", "--queue", "default")
    assert 0 == code
    assert "Repaired 7 of 7: ghost in queue default.\n" in out
    check_invariants(sick)
    assert (0, "No findings.\n", "") == invoke("--redis", redis_url)


def test_notices_alone_do_not_fail_the_command(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """Exit code 0: workers of Go leave such things behind when all is well."""
    redis_client.sadd(tasks.keys.groups, "empty")
    redis_client.sadd("asynq:queues", "default")
    code, out, _ = invoke("--redis", redis_url, "--queue", "default")
    assert 0 == code
    assert "notice: empty_group" in out


def test_ctrl_c_ends_an_examination_with_exit_code_130(
    sick: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """Nothing is reported, since nothing has been looked at twice; no traceback, and nothing was changed."""
    before = snapshot(sick)
    command = [sys.executable, "-m", "pyasynq.cli", "doctor", "--redis", redis_url, "--pause", "3600"]
    with (
        sick.monitor() as monitor,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
    ):
        # The judging of suspicious tasks is what comes last before the pause.
        judge = DOCTOR_JUDGE.flagged.sha, DOCTOR_JUDGE.plain.sha
        next(call for call in monitor.listen() if any(sha in call["command"] for sha in judge))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (130, "") == (process.returncode, out)
    assert "Stopped; what was repaired so far stays repaired.\n" == err
    assert before == snapshot(sick)


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_ends_a_repair_and_what_was_repaired_is_told(
    sick: RedisClient, redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    """As the list it would have told at the end, without the findings that were not come to."""
    repair = Repairs.repair

    async def repair_and_press(self: Repairs, *arguments: Any) -> Any:
        done = await repair(self, *arguments)
        signal.raise_signal(signal.SIGINT)
        return done

    monkeypatch.setattr(Repairs, "repair", repair_and_press)
    options = ["--json"] if as_json else []
    code, out, err = invoke("--redis", redis_url, "--fix", "--yes", *options)
    assert (130, "Stopped; what was repaired so far stays repaired.\n") == (code, err)
    if as_json:
        assert [("empty_group", 1)] == [
            (one["kind"], len(one["repaired"])) for one in json.loads(out)["findings"]
        ]
    else:
        assert out.endswith("\nRepaired 1 of 1: empty_group in queue default.\n")
    assert set() == tasks.groups()
    assert 8 == sick.llen(tasks.keys.pending)


@pytest.mark.long
def test_what_cannot_be_checked_is_exit_code_5() -> None:
    """The message names the address and the cause."""
    code, out, err = invoke("--redis", "redis://127.0.0.1:1/0")
    assert (5, "") == (code, out)
    assert "Error: could not check:" in err
    assert "127.0.0.1:1" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--yes"], "--yes answers the question of --fix; give both"),
        (["--fix"], "--fix asks before it writes, and there is no terminal to answer at; give --yes too"),
        (["--archive-max-size", "0"], "0 is not in the range x>=1"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], message: str) -> None:
    """Before anything is asked of Redis."""
    code, _, err = invoke("--redis", "redis://127.0.0.1:1/0", *arguments)
    assert 2 == code
    assert message in " ".join(err.split())
