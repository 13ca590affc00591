"""Asynq's own tools on a database that pyasynq has filled answer as on one that Asynq has filled."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop import go_side
from tests.interop.asynqmon_program import Asynqmon, Reply
from tests.interop.filled import STATES, TASKS, Filled, Pair, filled_pair
from tests.interop.normal import Time, error_text, same
from tests.interop.our_side import task_view as _view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.interop.go_peer import GoPeer

_MOMENTS = {
    "timestamp",
    "start_time",
    "deadline",
    "next_process_at",
    "last_failed_at",
    "completed_at",
}
"""What asynqmon writes as text, or leaves empty."""

_UNORDERED = {"queues": "queue", "groups": "group"}
_ROUTES = (
    "queues",
    "queue_stats",
    "queues/default",
    "queues/größe",
    *(f"queues/default/{state}_tasks" for state in STATES if state != "aggregating"),
    "queues/größe/pending_tasks",
    "queues/default/groups",
    "queues/default/groups/grüppe/aggregating_tasks",
    *(f"queues/{queue}/tasks/{task_id}" for queue, task_id in TASKS),
)


@pytest.fixture(scope="module")
def pair(peer_program: Path, server_url: str) -> Iterator[Pair]:
    """The databases, which these tests only read, except the last one."""
    with filled_pair(peer_program, server_url) as pair:
        yield pair


@pytest.fixture(scope="module")
def boards(pair: Pair, asynqmon: Path) -> Iterator[tuple[Asynqmon, Asynqmon]]:
    """An asynqmon for each."""
    with (
        Asynqmon(asynqmon, pair.go.database.url) as theirs,
        Asynqmon(asynqmon, pair.our.database.url) as ours,
    ):
        yield theirs, ours


def test_asynqmon_finds_a_task_in_every_state(boards: tuple[Asynqmon, Asynqmon]) -> None:
    """So that the comparison that follows is one of something."""
    for board in boards:
        for state, ids in STATES.items():
            place = "groups/grüppe/aggregating" if state == "aggregating" else state
            answer = board.get(f"queues/default/{place}_tasks")
            assert (ids, len(TASKS) - 1) == (
                [one["id"] for one in answer["tasks"]],
                answer["stats"]["size"],
            )


@pytest.mark.parametrize("route", _ROUTES)
def test_asynqmon_answers_as_for_asynq(boards: tuple[Asynqmon, Asynqmon], route: str) -> None:
    """Field by field; moments may differ by what passed between the two fillings."""
    theirs, ours = (_comparable(board.get(route)) for board in boards)
    assert same(theirs, ours), f"Asynq's: {theirs}\npyasynq's: {ours}"


def _of_queues(peer: GoPeer, read: Callable[[str], Any]) -> Any:
    return {queue: read(queue) for queue in sorted(peer.queues())}


def _queue_info(peer: GoPeer, queue: str) -> Any:
    return peer.queue_info(queue=queue)


def _listed(peer: GoPeer, state: str) -> Any:
    group = "grüppe" if state == "aggregating" else ""
    return peer.list_tasks(queue="default", state=state, group=group, page=1, page_size=30)


_COMMANDS: dict[str, Callable[[GoPeer], Any]] = {
    "queue ls": lambda peer: sorted(peer.queues()),
    "stats, queue inspect": lambda peer: _of_queues(peer, partial(_queue_info, peer)),
    "queue history": lambda peer: _of_queues(peer, lambda queue: peer.history(queue=queue, days=10)),
    "group ls": lambda peer: _of_queues(peer, lambda queue: peer.groups(queue=queue)),
    **{f"task ls --state {state}": partial(_listed, state=state) for state in STATES},
    "task inspect": lambda peer: [peer.task_info(queue=queue, id=task_id) for queue, task_id in TASKS],
}
"""What the command `asynq` asks of its library, and prints."""


@pytest.mark.parametrize("command", _COMMANDS)
def test_what_the_command_asynq_reads_is_as_asynq_wrote_it(pair: Pair, command: str) -> None:
    """The command is a printer of these calls, which are the inspector's of Asynq."""
    theirs, ours = (_comparable(_COMMANDS[command](one.go)) for one in (pair.go, pair.our))
    assert theirs
    assert same(theirs, ours), f"Asynq's: {theirs}\npyasynq's: {ours}"


def test_both_inspectors_say_the_same_of_both_databases(pair: Pair) -> None:
    """The output about each task, each list, and each queue."""
    for one in (pair.go, pair.our):
        for queue, task_id in TASKS:
            theirs = go_side.task_view(one.go.task_info(queue=queue, id=task_id))
            # Asynq looks at leases for lists only.
            theirs["is_orphaned"] = task_id == "orphan"
            ours = _view(one.our.task_info(queue, task_id))
            assert same(_comparable(theirs), _comparable(ours)), (theirs, ours)
        for state, ids in STATES.items():
            group = "grüppe" if state == "aggregating" else ""
            listed = one.our.list_tasks("default", state, group=group)
            assert ids == [info.id for info in listed]
            pages = [go_side.task_view(info) for info in _listed(one.go, state)], list(map(_view, listed))
            assert same(*map(_comparable, pages)), pages
        _compare_queues(one)


def _compare_queues(one: Filled) -> None:
    assert ["default", "größe"] == sorted(one.our.queues())
    for queue in ("default", "größe"):
        theirs, ours = one.go.queue_info(queue=queue), one.our.queue_info(queue, memory=True)
        for name in theirs.keys() - {"latency", "timestamp", "memory_usage"}:
            assert theirs[name] == getattr(ours, name), name
        assert abs(theirs["latency"] - ours.latency.total_seconds()) < 1
    assert ["orphan"] == [info.id for info in one.our.list_tasks("default", "active") if info.is_orphaned]


def test_asynqmon_acts_on_what_pyasynq_wrote(pair: Pair, boards: tuple[Asynqmon, Asynqmon]) -> None:
    """Run, archive, delete, cancel, pause, resume, remove; the same on both."""
    for filled, board in zip((pair.go, pair.our), boards, strict=True):
        tasks = "queues/default"
        for request in (
            ("POST", f"{tasks}/scheduled_tasks/later:run"),
            ("POST", f"{tasks}/archived_tasks/given-up:run"),
            ("POST", f"{tasks}/retry_tasks/failed:archive"),
            ("DELETE", f"{tasks}/completed_tasks/answered"),
            ("POST", f"{tasks}/active_tasks/running:cancel"),
            ("POST", f"{tasks}:pause"),
            ("POST", "queues/größe:resume"),
        ):
            assert Reply(204, None) == board.ask(*request), request
        archived = board.ask("POST", f"{tasks}/groups/grüppe/aggregating_tasks:archive_all")
        assert Reply(200, {"archived": 2}) == archived
        info = filled.our.queue_info("default")
        assert (5, 3, 1, 0, 1, True) == (
            info.pending,
            info.archived,
            info.scheduled,
            info.completed,
            info.aggregating,
            info.paused,
        )
        assert not filled.our.queue_info("größe").paused
        not_empty = board.ask("DELETE", "queues/größe")
        assert (400, True) == (not_empty.status, "not empty" in not_empty.body)
        assert Reply(204, None) == board.ask("DELETE", "queues/größe/pending_tasks/held-up")
        assert Reply(204, None) == board.ask("DELETE", "queues/größe")
        assert ["default"] == filled.our.queues()


def _comparable(value: Any) -> Any:
    """Return what is to be the same; moments as such."""
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: _comparable_field(name, one) for name, one in value.items() if name != "display_latency"}


def _comparable_field(name: str, value: Any) -> Any:
    if name in _MOMENTS and isinstance(value, str) and value not in {"", "-"}:
        return Time(datetime.fromisoformat(value).timestamp())
    if (name in _MOMENTS or name in {"latency", "ttl_seconds"}) and isinstance(value, int | float):
        return Time(value)
    match name:
        case "latency_msec":
            return Time(value / 1000)
        case "memory_usage_bytes" | "memory_usage":
            return value > 0
        case "error_message" | "last_error":
            return error_text(value)
        case "queues" | "groups" if isinstance(value, list):
            value = sorted(value, key=lambda one: one[_UNORDERED[name]])
    return _comparable(value)
