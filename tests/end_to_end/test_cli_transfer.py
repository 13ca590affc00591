"""The commands `pyasynq task export` and `task import`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyasynq.task import TaskState
from tests.cli_runner import Cli
from tests.factories import Tasks
from tests.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.invariants import RedisClient

SECRET = "hunter2"


@pytest.fixture
def cli(redis_url: str) -> Cli:
    """The command line on the server of this test."""
    return Cli(redis_url)


def lines(*ids: str, **fields: object) -> str:
    """Return lines of tasks in the queue `mail`."""
    task = {"queue": "mail", "type": "t", "payload": SECRET, **fields}
    return "".join(json.dumps({"id": name, **task}) + "\n" for name in ids)


def test_exported_tasks_are_imported_into_another_queue(
    cli: Cli, tasks: Tasks, redis_client: RedisClient, tmp_path: Path
) -> None:
    """Data on stdout, the number on stderr; a second import finds everything there."""
    tasks.put(TaskState.ARCHIVED, "a", "b", error_msg="timeout")
    tasks.pending("c")
    exported = cli.run("task", "export", "--where", "state:archived")
    assert (0, "2 tasks exported.\n") == (exported.exit_code, exported.stderr)
    assert ["b", "a"] == [json.loads(line)["id"] for line in exported.stdout.splitlines()]
    file = tmp_path / "tasks.jsonl"
    file.write_text(exported.stdout)

    imported = cli.run("task", "import", str(file), "-q", "other", "--yes")
    again = cli.run("task", "import", "-", "-q", "other", "--yes", typed=exported.stdout)

    assert (0, "", "2 tasks are enqueued.\n") == (imported.exit_code, imported.stdout, imported.stderr)
    assert (0, "0 tasks are enqueued, 2 had been there before.\n") == (again.exit_code, again.stderr)
    assert {"a", "b"} == set(Tasks(redis_client, "other").ids("pending"))
    assert 1 == len(cli.run("task", "export", "-q", "default", "--limit", "1").stdout.splitlines())
    assert 2 == cli.run("task", "export").exit_code


def test_one_wrong_line_changes_nothing(cli: Cli, redis_client: RedisClient) -> None:
    """Errors name line and field; the eleventh and later ones are counted."""
    text = lines("a") + "\n" + lines("b", retention="1") + lines(*map(str, range(12)), deadline="soon")
    result = cli.run("task", "import", "-", "--yes", typed=text)
    assert 1 == result.exit_code
    assert "Error: line 3: retention=<str>: must be a number\n" in result.stderr
    assert "Error: line 4: deadline=" in result.stderr
    assert result.stderr.endswith("… and 3 more lines that cannot be read\nNothing was changed.\n")
    assert SECRET not in result.stderr
    assert [] == redis_client.keys("*")


def test_a_dry_run_counts_by_queue_and_type(cli: Cli, redis_client: RedisClient) -> None:
    """An import without a terminal needs --yes."""
    text = lines("a", "b") + lines("c", next_process_at="2036-11-25T14:05:00+00:00")
    counted = cli.run("task", "import", "-", "--dry-run", "-o", "json", typed=text)
    assert [("scheduled", 1), ("pending", 2)] == sorted(
        ((one["state"], one["tasks"]) for one in json.loads(counted.stdout)), reverse=True
    )
    refused = cli.run("task", "import", "-", typed=text)
    assert (4, True) == (refused.exit_code, "give --yes" in refused.stderr)
    assert [] == redis_client.keys("*")
    assert 2 == cli.run("task", "import", "/nonexistent").exit_code


def test_a_task_that_redis_refuses_is_told_by_its_line(cli: Cli) -> None:
    """The others are enqueued."""
    text = lines("a") + lines("b", payload="x" * 20_000_000)
    result = cli.run("task", "import", "-", "--yes", typed=text)
    assert 6 == result.exit_code
    assert "Error: line 2: " in result.stderr
    assert "1 task is enqueued, 1 was refused.\n" in result.stderr


def test_a_terminal_is_asked(redis_url: str, redis_client: RedisClient, tmp_path: Path) -> None:
    """The question names the number of tasks and the Redis."""
    file = tmp_path / "tasks.jsonl"
    file.write_text(lines("a", "b"))
    with Terminal("task", "import", str(file), "--redis", redis_url) as terminal:
        terminal.wait_for("[y/N]")
        assert "Enqueue 2 tasks in " in terminal.text
        terminal.type("y\r")
        assert 0 == terminal.finish()
    assert {"a", "b"} == set(Tasks(redis_client, "mail").ids("pending"))
