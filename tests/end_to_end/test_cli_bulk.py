"""Search, commands with --where, operations and undo, without and with a terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import pytest

from pyasynq._face_records.operations import EXPLANATION, OPERATIONS, PREVIEW
from pyasynq._face_records.tasks import TASKS
from pyasynq.sync import Inspector
from pyasynq.task import TaskState
from tests.cli_runner import Cli
from tests.factories import Tasks
from tests.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.invariants import RedisClient


@pytest.fixture
def cli(redis_url: str) -> Cli:
    """The command line on the server of this test."""
    return Cli(redis_url)


@pytest.fixture
def inspector(redis_url: str) -> Iterator[Inspector]:
    """An inspector that looks behind the command line."""
    with Inspector(redis_url) as inspector:
        yield inspector


def archived(tasks: Tasks, number: int, error: str = "timeout") -> list[str]:
    """Put archived tasks of type `mail` into the queue."""
    ids = [f"z{at:04}" for at in range(number)]
    tasks.put(TaskState.ARCHIVED, *ids, type="mail", error_msg=error)
    return ids


def test_a_search_finds_counts_and_explains(cli: Cli, tasks: Tasks, redis_client: RedisClient) -> None:
    """Words of a query are arguments, or one argument; how far the search went is on stderr."""
    archived(tasks, 3)
    Tasks(redis_client, "other").pending("p")

    found = cli.json("search", "state:archived", "error:timeout")
    jsonschema.validate(found, TASKS.schema())
    assert ["z0002", "z0001", "z0000"] == [one["id"] for one in found]
    first = cli.run("search", "state:archived", "--limit", "2", "-o", "name")
    assert ("z0002\nz0001\n", True) == (
        first.stdout,
        first.stderr.startswith("2 matches in 2 of 3 looked at."),
    )
    cursor = first.stderr.rpartition("--cursor ")[2].strip()
    assert "z0000\n" == cli.run("search", "state:archived", "--cursor", cursor, "-o", "name").stdout
    assert "p\n" == cli.run("search", "id:p,z0000", "-q", "other", "-o", "name").stdout
    counts = cli.json("search", "id:p,z0000", "--count")
    jsonschema.validate(counts, PREVIEW.schema())
    assert {("default", "archived", 1), ("other", "pending", 1)} == {
        (one["queue"], one["state"], one["tasks"]) for one in counts
    }
    [explained] = cli.json("search", "state:archived", "--explain")
    jsonschema.validate([explained], EXPLANATION.schema())
    assert 3 == explained["positions"]
    assert cli.run("search", "state:archived", "--explain").stdout.startswith("Looks at 3 tasks in 1 coll")


def test_a_query_that_cannot_be_read_shows_where(cli: Cli) -> None:
    """The error names the part of the query that cannot be read."""
    result = cli.run("search", "stat:archived")
    assert 1 == result.exit_code
    assert "stat" in result.stderr
    assert "query" == json.loads(cli.run("search", "stat:archived", "--json").stderr)["error"]["code"]


def test_a_dry_run_counts_and_changes_nothing(cli: Cli, tasks: Tasks, inspector: Inspector) -> None:
    """Tasks in states in which the act is impossible are left out and told."""
    ids = archived(tasks, 2)
    tasks.pending("p")
    counted = cli.run("task", "run", "--where", "error:timeout OR state:pending", "--dry-run", "--json")
    assert [{"queue": "default", "type": "mail", "state": "archived", "tasks": 2}] == json.loads(
        counted.stdout
    )
    named = cli.run("task", "run", *ids, "p", "--dry-run")
    assert "2 tasks.\nLeft out, because of their state: 1 pending.\n" == named.stderr
    assert 2 == inspector.queue_info("default").archived


def test_without_a_terminal_a_query_needs_yes_and_for_many_tasks_a_reason(
    cli: Cli, tasks: Tasks, inspector: Inspector
) -> None:
    """A script must say that it is sure, and why."""
    archived(tasks, 101)
    query = ("task", "run", "--where", "state:archived")
    unsure = cli.run(*query)
    assert (4, True) == (unsure.exit_code, "Run 101 tasks in " in unsure.stderr)
    silent = cli.run(*query, "--yes")
    assert (2, True) == (silent.exit_code, "Run 101 tasks: say why with --reason" in silent.stderr)
    assert 101 == inspector.queue_info("default").archived
    done = cli.run(*query, "--yes", "--reason", "provider is back")
    assert (0, "101 tasks are pending now.\n") == (done.exit_code, done.stderr)
    assert 101 == inspector.queue_info("default").pending


def test_a_deletion_by_query_is_undone(cli: Cli, tasks: Tasks, inspector: Inspector) -> None:
    """By its id, or as the last one of this user; once."""
    archived(tasks, 3)
    deleted = cli.run("task", "rm", "--where", "error:timeout", "--yes", "--reason", "typo", "--json")
    [operation] = json.loads(deleted.stdout)
    jsonschema.validate([operation], OPERATIONS.schema())
    assert (0, "delete", "done", 3) == (
        deleted.exit_code,
        *(operation[name] for name in ("act", "state", "done")),
    )
    assert f"Undo with  pyasynq undo {operation['operation']}, for 1 day" in deleted.stderr
    assert 0 == inspector.queue_info("default").archived
    undone = cli.run("undo", "--yes")
    assert (0, True) == (undone.exit_code, "3 tasks are put back.\n" in undone.stderr)
    assert 3 == inspector.queue_info("default").archived
    again = cli.run("undo", "--yes")
    assert (1, True) == (again.exit_code, "you have deleted nothing within a day" in again.stderr)


def test_no_match_is_a_sentence_and_an_error_on_request(cli: Cli, tasks: Tasks) -> None:
    """The exit code is 0, and 3 with --fail-empty."""
    archived(tasks, 1)
    query = ("task", "run", "--where", "error:nothing", "--yes")
    result = cli.run(*query)
    assert (0, "No task matches error:nothing; 1 task looked at.\n") == (result.exit_code, result.stderr)
    assert 3 == cli.run(*query, "--fail-empty").exit_code


def test_a_task_that_is_missing_makes_the_rest_a_part(cli: Cli, tasks: Tasks) -> None:
    """Each is named; all missing is a failure."""
    archived(tasks, 1)
    assert 6 == cli.run("task", "run", "z0000", "nope").exit_code
    assert 1 == cli.run("task", "run", "nope").exit_code
    wrong = cli.run("task", "run", "z0000", "-q", "nix")
    assert (1, "Error: queue 'nix' does not exist\n") == (wrong.exit_code, wrong.stderr)


@pytest.mark.parametrize(
    ("arguments", "state"),
    [
        (("runall", "-s", "archived"), "pending"),
        (("archiveall", "-s", "retry"), "archived"),
        (("deleteall", "-s", "retry", "--reason", "old"), None),
    ],
)
def test_the_commands_of_asynq_for_a_whole_state_act_in_one_queue(
    cli: Cli, tasks: Tasks, redis_client: RedisClient, arguments: tuple[str, ...], state: str | None
) -> None:
    """`task runall`, `archiveall` and `deleteall`."""
    before = TaskState(arguments[2])
    tasks.put(before, "a", "b", error_msg="x")
    other = Tasks(redis_client, "other")
    other.put(before, "c", error_msg="x")
    result = cli.run("task", arguments[0], "-q", "default", *arguments[1:], "--yes")
    assert 0 == result.exit_code, result.stderr
    assert ["c"] == other.ids(before.value)
    assert [] == tasks.ids(before.value)
    if state is not None:
        assert {"a", "b"} == set(tasks.ids(state))


def test_tasks_are_rescheduled_edited_and_copied(cli: Cli, tasks: Tasks, inspector: Inspector) -> None:
    """By id and by query; a spread lays their times evenly."""
    tasks.put(TaskState.RETRY, "a", "b", error_msg="x", retry=3)
    assert 0 == cli.run("task", "edit", "--where", "state:retry", "--retry", "9", "--yes").exit_code
    assert 9 == inspector.task_info("default", "a").max_retry
    assert 0 == cli.run("task", "reschedule", "a", "--in", "2h").exit_code
    assert 0 == cli.run("task", "run", "--where", "id:a,b", "--spread", "10m", "--yes").exit_code
    first, second = (inspector.task_info("default", name).next_process_at for name in "ab")
    assert first is not None
    assert second is not None
    assert 300 == (second - first).total_seconds()
    assert 0 == cli.run("task", "copy", "a", "--yes").exit_code
    assert 1 == inspector.queue_info("default").pending


def test_an_operation_is_listed_viewed_paused_and_stopped(cli: Cli, tasks: Tasks) -> None:
    """An operation that has ended can only be looked at."""
    archived(tasks, 2)
    done = cli.run("task", "run", "--where", "state:archived", "--yes", "-o", "name").stdout.strip()
    assert [done] == [one["operation"] for one in cli.json("op", "ls")]
    shown = cli.run("op", "view", done).stdout
    assert "2: 2 done, 0 left as they were, 0 to go" in shown
    refused = cli.run("op", "stop", done)
    assert (1, True) == (refused.exit_code, "must be running or paused, and is done" in refused.stderr)
    assert (0, "2 tasks are pending now.\n") == (
        (resumed := cli.run("op", "resume", done)).exit_code,
        resumed.stderr,
    )


@pytest.mark.long
def test_a_terminal_is_asked_for_the_number_and_the_reason(
    redis_url: str, tasks: Tasks, inspector: Inspector
) -> None:
    """The question names the number and Redis; another number changes nothing."""
    archived(tasks, 1_001)
    arguments = ("task", "rm", "--where", "state:archived", "--redis", redis_url)
    with Terminal(*arguments) as terminal:
        terminal.wait_for("Type the number of tasks:")
        assert "Delete 1,001 tasks in " in terminal.text
        terminal.type("1000\r")
        assert 4 == terminal.finish()
        assert "That is not 1,001.\nNothing was changed.\n" in terminal.text
    with Terminal(*arguments) as terminal:
        terminal.wait_for("Type the number of tasks:")
        terminal.type("1,001\r")
        terminal.wait_for("Why?")
        terminal.type("too old\r")
        assert 0 == terminal.finish()
    assert 0 == inspector.queue_info("default").archived


def test_ctrl_c_at_a_question_changes_nothing(redis_url: str, tasks: Tasks, inspector: Inspector) -> None:
    """One is enough, although an event loop runs."""
    archived(tasks, 2)
    with Terminal("task", "run", "--where", "state:archived", "--redis", redis_url) as terminal:
        terminal.wait_for("[y/N]")
        terminal.type("\x03")
        assert 130 == terminal.finish()
        assert "Interrupted." in terminal.text
    assert 2 == inspector.queue_info("default").archived


def test_ctrl_c_pauses_an_operation_and_says_how_to_go_on(
    cli: Cli, redis_url: str, tasks: Tasks, inspector: Inspector
) -> None:
    """The step that is under way is finished, so that the numbers are exact."""
    archived(tasks, 60)
    arguments = ("task", "run", "--where", "state:archived", "--yes", "--rate", "10", "--redis", redis_url)
    with Terminal(*arguments) as terminal:
        terminal.wait_for("Running")
        terminal.type("\x03")
        assert 130 == terminal.finish()
        [operation] = cli.json("op", "ls")
        assert ("paused", f"pyasynq op resume {operation['operation']}" in terminal.text) == (
            operation["state"],
            True,
        )
    assert operation["done"] == inspector.queue_info("default").pending
    cli.run("op", "stop", operation["operation"])


def test_tasks_are_moved_to_another_queue(cli: Cli, tasks: Tasks, redis_client: RedisClient) -> None:
    """A query selects the tasks, and each keeps its state."""
    tasks.put(TaskState.ARCHIVED, "a", "b", error_msg="x")
    moved = cli.run("task", "move", "--where", "id:a", "--to", "other", "--yes")
    assert (0, "1 task is moved.\n") == (moved.exit_code, moved.stderr)
    assert (["b"], ["a"]) == (tasks.ids("archived"), Tasks(redis_client, "other").ids("archived"))
