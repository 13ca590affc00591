"""The commands that show what goes on: top, latency, marks, saved views, history, schedules."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from pyasynq._face_records.api_keys import API_KEYS
from pyasynq._face_records.saved_views import SAVED_VIEWS
from pyasynq._face_records.statistics import LATENCY, MARKS, SERIES
from pyasynq.cli.stats import TOTALS_HISTORY
from pyasynq.cli.top import TOP_QUEUES, TOP_TYPES
from pyasynq.task import Task, TaskState
from tests.cli_runner import Cli
from tests.contract.test_statistics import SLOW_BEATS, end_as_it_says, ended
from tests.factories import Tasks
from tests.fix_engine import serving
from tests.ports import free_port
from tests.run_async import run_async
from tests.terminal import Terminal

if TYPE_CHECKING:
    from tests.invariants import RedisClient


@pytest.fixture
def cli(redis_url: str) -> Cli:
    """The command line on the server of this test."""
    return Cli(redis_url)


def test_top_is_redrawn_obeys_keys_and_leaves_the_terminal_as_it_was(
    redis_url: str, tasks: Tasks, redis_client: RedisClient
) -> None:
    """In the alternate screen, with the cursor hidden meanwhile."""
    tasks.pending("a", "b")
    Tasks(redis_client, "other").pending("c")
    with Terminal("top", "--redis", redis_url, lines=12) as terminal:
        terminal.wait_for("by pending")
        lines = terminal.text.splitlines()
        assert ["default", "other"] == [line.split()[0] for line in lines[4:6]]
        assert "2 queues: 3 pending" in lines[1]
        terminal.type("r")
        terminal.wait_for("by pending, reversed")
        assert ["other", "default"] == [line.split()[0] for line in terminal.text.splitlines()[4:6]]
        terminal.type("s")
        terminal.wait_for("by latency")
        terminal.type("t")
        terminal.wait_for("Nothing runs, and no worker counts its attempts.")
        terminal.type("p")
        terminal.wait_for("paused")
        terminal.type("q")
        assert 0 == terminal.finish()
        assert terminal.raw.startswith(b"\x1b[?1049h\x1b[?25l")
        assert terminal.raw.endswith(b"\x1b[?25h\x1b[?1049l")


def test_top_without_a_terminal_prints_once(cli: Cli, tasks: Tasks) -> None:
    """So that it can be piped; an unknown field is wrong usage."""
    tasks.pending("a")
    listed = cli.json("top")
    jsonschema.validate(listed, TOP_QUEUES.schema())
    assert [("default", 1)] == [(one["queue"], one["pending"]) for one in listed]
    jsonschema.validate(cli.json("top", "--types"), TOP_TYPES.schema())
    assert 2 == cli.run("top", "--sort", "pendng").exit_code


def test_top_of_a_redis_that_is_away_leaves_the_terminal_alone() -> None:
    """The error is a sentence, as that of other commands."""
    with Terminal("top", "--redis", f"redis://127.0.0.1:{free_port()}") as terminal:
        assert 5 == terminal.finish()
        assert b"\x1b[?1049h" not in terminal.raw
        assert "cannot be reached" in terminal.text


@run_async
async def test_latencies_are_those_that_workers_count(redis_url: str) -> None:
    """Latencies are shown by queue and type, as a series, and as bars."""
    async with serving(redis_url, end_as_it_says, settings=SLOW_BEATS) as running:
        for payload in (b"", b"", b"archive"):
            await running.client.enqueue(Task("work", payload))
        await ended(running, 3)
    cli = Cli(redis_url)
    [found] = await asyncio.to_thread(cli.json, "latency")
    jsonschema.validate([found], LATENCY.schema())
    assert ("default", "work", 3, 1) == tuple(found[name] for name in ("queue", "type", "attempts", "failed"))
    assert found["run_p99"] > 0
    series = await asyncio.to_thread(cli.json, "latency", "default", "--series", "--type", "work")
    jsonschema.validate(series, SERIES.schema())
    assert 3 == sum(one["attempts"] for one in series)
    assert [] == await asyncio.to_thread(cli.json, "latency", "--type", "none")
    drawn = await asyncio.to_thread(cli.run, "latency", "--histogram")
    assert drawn.stdout.startswith("3 attempts in all queues\n\nWaited\n")
    assert "█" in drawn.stdout


def test_a_mark_is_set_listed_and_removed(cli: Cli) -> None:
    """It names the user."""
    [made] = json.loads(cli.run("mark", "deploy \x1b[2J", "--json").stdout)
    listed = cli.json("mark", "--list")
    jsonschema.validate(listed, MARKS.schema())
    assert [made] == listed
    assert "deploy ␛[2J" in cli.run("mark", "--list").stdout
    assert 0 == cli.run("mark", "--remove", made["id"]).exit_code
    again = cli.run("mark", "--remove", made["id"])
    assert (1, True) == (again.exit_code, "there is no mark" in again.stderr)
    assert 2 == cli.run("mark").exit_code
    assert 2 == cli.run("mark", "text", "--list").exit_code


def test_a_view_is_saved_run_and_removed(cli: Cli, tasks: Tasks) -> None:
    """Its query is read when it is saved; a misspelt name is told the nearest one."""
    tasks.put(TaskState.ARCHIVED, "z", error_msg="timeout")
    assert 0 == cli.run("view", "save", "timeouts", "error:timeout", "--share").exit_code
    listed = cli.json("view", "ls")
    jsonschema.validate(listed, SAVED_VIEWS.schema())
    assert [("timeouts", True)] == [(one["name"], one["shared"]) for one in listed]
    assert "z\n" == cli.run("view", "run", "timeouts", "-o", "name").stdout
    assert 1 == cli.run("view", "save", "wrong", "erro:timeout").exit_code
    assert "did you mean 'timeouts'" in cli.run("view", "run", "timeout").stderr
    assert 0 == cli.run("view", "rm", "timeouts").exit_code
    assert [] == cli.json("view", "ls")


def test_a_key_is_made_rotated_and_deleted(cli: Cli) -> None:
    """Only the key itself is on stdout, so a shell can take it; the list has no secret."""
    made = cli.run("key", "make", "billing", "--scope", "tasks:write", "--queue", "bill*", "--expires", "90d")
    [listed] = cli.json("key", "ls")
    jsonschema.validate([listed], API_KEYS.schema())
    rotated = json.loads(cli.run("key", "rotate", listed["id"], "-o", "json").stdout)

    assert made.stdout.startswith(f"pq_{listed['id']}_")
    assert ("billing", ["tasks:write"], ["bill*"]) == (listed["name"], listed["scopes"], listed["queues"])
    assert (listed["id"], False) == (rotated["id"], rotated["key"] == made.stdout.strip())
    assert made.stdout.split("_")[2] not in json.dumps(cli.json("key", "ls"))
    assert [2] == [one["secrets"] for one in cli.json("key", "ls")]
    assert 0 == cli.run("key", "rm", listed["id"]).exit_code
    assert [] == cli.json("key", "ls")
    assert 1 == cli.run("key", "rotate", listed["id"]).exit_code


def test_a_key_is_made_with_a_rate(cli: Cli) -> None:
    """The list shows it, and a rotation keeps it; a wrong one makes no key."""
    wrong = cli.run("key", "make", "shop", "--scope", "work", "--rate", "50")
    assert (1, True) == (wrong.exit_code, "write 50/s, 100/m" in wrong.stderr)
    assert "rate" in wrong.stderr
    assert [] == cli.json("key", "ls")
    assert 0 == cli.run("key", "make", "shop", "--scope", "work", "--rate", "50/s+10").exit_code
    [listed] = cli.json("key", "ls")
    jsonschema.validate([listed], API_KEYS.schema())
    cli.run("key", "rotate", listed["id"])
    assert ["50/s+10"] == [one["rate"] for one in cli.json("key", "ls")]
    assert "50/s+10" in cli.run("key", "ls").stdout


def test_the_days_of_all_queues_are_added_up(cli: Cli, tasks: Tasks) -> None:
    """The newest day first."""
    tasks.pending("a")
    days = cli.json("stats", "--history", "--days", "3")
    jsonschema.validate(days, TOTALS_HISTORY.schema())
    assert 3 == len(days)
    assert sorted((one["day"] for one in days), reverse=True) == [one["day"] for one in days]


def test_an_entry_that_does_not_exist_cannot_be_paused_or_run(cli: Cli) -> None:
    """Each verb of schedules says so."""
    for verb in ("pause", "resume", "run"):
        result = cli.run("cron", verb, "nope")
        assert (1, True) == (result.exit_code, "nope" in result.stderr), verb


def test_versions_are_for_people_and_for_programs() -> None:
    """`version` needs no Redis."""
    shown = Cli("").run("version").stdout
    versions = json.loads(Cli("").run("version", "--json").stdout)
    assert shown.startswith(f"pyasynq {versions['pyasynq']}\n")
    assert f"python {versions['python']}" in shown
