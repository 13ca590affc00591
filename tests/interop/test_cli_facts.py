"""Each command that Asynq has prints the facts that Asynq's own library tells of the same database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.cli_runner import Cli
from tests.interop.filled import STATES, TASKS, Pair, filled_pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.go_peer import GoPeer

_QUEUES = ("default", "größe")
_COUNTS = (
    *("pending", "active", "scheduled", "retry", "archived", "completed", "aggregating"),
    *("groups", "processed", "failed", "processed_total", "failed_total", "size"),
)


@pytest.fixture(scope="module")
def pair(peer_program: Path, server_url: str) -> Iterator[Pair]:
    """The databases, which these tests only read."""
    with filled_pair(peer_program, server_url) as pair:
        yield pair


@pytest.fixture(params=["go", "our"], ids=["filled by Asynq", "filled by pyasynq"])
def sides(request: pytest.FixtureRequest, pair: Pair) -> tuple[GoPeer, Cli]:
    """Asynq's library and our command line on one database."""
    filled = getattr(pair, request.param)
    return filled.go, Cli(filled.database.url)


def test_the_queues_have_the_counts_of_asynq(sides: tuple[GoPeer, Cli]) -> None:
    """`queue ls`, `queue inspect` and `stats`."""
    go, cli = sides
    assert sorted(go.queues()) == [one["queue"] for one in cli.json("queue", "ls")]
    for command in (("queue", "ls"), ("queue", "inspect", *_QUEUES), ("stats",)):
        for record in cli.json(*command):
            theirs = go.queue_info(queue=record["queue"])
            assert {name: theirs[name] for name in _COUNTS} == {name: record[name] for name in _COUNTS}
            assert theirs["paused"] == (record["state"] == "paused")


def test_stats_in_asynqs_shape_have_asynqs_numbers(sides: tuple[GoPeer, Cli]) -> None:
    """`stats --json`, by the names of Go."""
    go, cli = sides
    content = cli.json("stats", "--format", "asynq")
    for record in content["queues"]:
        theirs = go.queue_info(queue=record["Queue"])
        ours = {name: record["".join(part.title() for part in name.split("_"))] for name in _COUNTS}
        assert {name: theirs[name] for name in _COUNTS} == ours
    total = sum(go.queue_info(queue=name)["pending"] for name in _QUEUES)
    assert total == content["aggregate"]["pending"]


def test_the_history_is_that_of_asynq(sides: tuple[GoPeer, Cli]) -> None:
    """`queue history`, the newest day first."""
    go, cli = sides
    for queue in _QUEUES:
        theirs = [(one["processed"], one["failed"]) for one in go.history(queue=queue, days=10)]
        days = cli.json("queue", "history", queue, "--days", "10")
        assert theirs == [(one["processed"], one["failed"]) for one in days]


@pytest.mark.parametrize("state", STATES)
def test_the_tasks_of_a_state_are_listed_in_asynqs_order(sides: tuple[GoPeer, Cli], state: str) -> None:
    """`task ls`, with id, type, retries and error."""
    go, cli = sides
    group = "grüppe" if state == "aggregating" else ""
    theirs = go.list_tasks(queue="default", state=state, group=group, page=1, page_size=30)
    options = ("-g", group) if group else ()
    listed = cli.json("task", "ls", "-q", "default", "-s", state, *options)
    assert list(map(_facts, theirs)) == list(map(_facts, listed))
    assert STATES[state] == [one["id"] for one in listed]


def test_each_task_is_inspected_with_asynqs_facts(sides: tuple[GoPeer, Cli]) -> None:
    """`task inspect`, also without the queue."""
    go, cli = sides
    for queue, task_id in TASKS:
        theirs = go.task_info(queue=queue, id=task_id)
        assert [_facts(theirs)] == list(map(_facts, cli.json("task", "inspect", task_id, "-q", queue)))


def test_the_groups_are_those_of_asynq(sides: tuple[GoPeer, Cli]) -> None:
    """`group ls`, with sizes."""
    go, cli = sides
    for queue in _QUEUES:
        listed = cli.json("group", "ls", "-q", queue)
        assert go.groups(queue=queue) == {one["group"]: one["size"] for one in listed}


def _facts(info: dict[str, Any]) -> dict[str, Any]:
    """Return what both sides name alike."""
    return {
        name: info[name] for name in ("id", "queue", "type", "state", "retried", "max_retry", "last_error")
    }
