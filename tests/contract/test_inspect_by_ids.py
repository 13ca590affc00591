"""Operations on several tasks by their ids, each with a result of its own."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import sync
from pyasynq.errors import ArchiveFullError, InvalidOptionError
from pyasynq.info import CancelStatus, Refusal, TaskResult
from pyasynq.task import TaskState
from tests.contract.test_inspect_actions import aggregate
from tests.contract.test_inspect_bulk import fill
from tests.contract.test_inspector import _Clock, ask  # noqa: F401 - a fixture
from tests.factories import NOW, Tasks

if TYPE_CHECKING:
    from tests.contract.test_inspector import Ask

VERBS: dict[str, tuple[Any, ...]] = {
    "run_tasks": (),
    "archive_tasks": (),
    "delete_tasks": (),
    "reschedule_tasks": (NOW.plus(600).to_datetime(),),
}
EVERYWHERE = ["pending", "active", "scheduled", "retry", "archived", "completed", "grouped", "staged", "gone"]
REFUSED: dict[str, dict[str, str]] = {
    "run_tasks": {"pending": "pending", "active": "active"},
    "archive_tasks": {"archived": "archived", "active": "active"},
    "delete_tasks": {"active": "active"},
    "reschedule_tasks": {
        "pending": "pending",
        "active": "active",
        "completed": "completed",
        "grouped": "aggregating",
        "staged": "aggregating",
    },
}


def put_everywhere(tasks: Tasks) -> None:
    """Put a task into each state; its id is the name of the state."""
    tasks.pending("pending")
    tasks.active("active")
    for state in (TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED):
        tasks.put(state, state.value)
    tasks.put(TaskState.COMPLETED, "completed", completed_at=NOW.seconds - 60, retention=60)
    aggregate(tasks, "staged")
    tasks.put(TaskState.AGGREGATING, "grouped", group="h")


@pytest.mark.parametrize("verb", VERBS)
def test_each_task_has_a_result(ask: Ask, tasks: Tasks, verb: str) -> None:  # noqa: F811
    """Done, or refused with the reason; one refusal stops no other task."""
    put_everywhere(tasks)
    expected = {name: TaskResult(name) for name in EVERYWHERE}
    expected["gone"] = TaskResult("gone", Refusal.MISSING)
    expected["staged"] = TaskResult("staged", Refusal.AGGREGATED, TaskState.AGGREGATING)
    for name, state in REFUSED[verb].items():
        expected[name] = TaskResult(name, Refusal.STATE, TaskState(state))

    results = ask(verb, "default", EVERYWHERE, *VERBS[verb])

    assert list(expected.values()) == list(results)
    assert [result for result in expected.values() if result.refused] == list(results.refused)
    assert len(EVERYWHERE) - len(results.refused) == results.done


def test_results_say_why_in_words() -> None:
    """The text of a result is a phrase that people can read."""
    assert "done" == str(TaskResult("a"))
    assert "it is active" == str(TaskResult("a", Refusal.STATE, TaskState.ACTIVE))
    assert "there is no such task" == str(TaskResult("a", Refusal.MISSING))
    assert "it is being aggregated" == str(TaskResult("a", Refusal.AGGREGATED))


def test_an_id_that_is_given_twice_has_one_result(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """The second one is not a refusal."""
    tasks.put(TaskState.RETRY, "a")
    assert [TaskResult("a")] == list(ask("run_tasks", "default", ["a", "a"]))
    assert [] == list(ask("run_tasks", "default", []))


@pytest.mark.parametrize("verb", [*VERBS, "cancel_tasks"])
@pytest.mark.parametrize("ids", ["abc", b"abc", ["a", 3]])
def test_ids_are_several_texts(ask: Ask, verb: str, ids: Any) -> None:  # noqa: F811
    """A text alone would be taken for its letters."""
    with pytest.raises(InvalidOptionError, match=r"^ids="):
        ask(verb, "default", ids, *VERBS.get(verb, ()))


def test_more_than_a_thousand_ids_go_in_several_calls(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """All are dealt with, and results come in the order of the ids."""
    fill(tasks, "archived", 2_500)
    ids = tasks.ids("archived")

    results = ask("delete_tasks", "default", [*ids, "gone"])

    assert (2_500, [*ids, "gone"]) == (results.done, [result.task_id for result in results])
    assert [] == tasks.ids("archived")


def test_an_archive_without_room_refuses_unless_it_may_trim(redis_url: str, tasks: Tasks) -> None:
    """Nothing is changed then; with `trim` the oldest go, and the result says how many."""
    tasks.put(TaskState.ARCHIVED, "old", "older")
    tasks.pending("a", "b")
    with sync.Inspector(redis_url, clock=_Clock(), archive_max_size=3) as door:
        with pytest.raises(ArchiveFullError, match="1"):
            door.archive_tasks("default", ["a", "b"])
        assert ["a", "b"] == tasks.ids("pending")
        results = door.archive_tasks("default", ["a", "b"], trim=True)

    assert (2, 1) == (results.done, results.trimmed)
    assert 3 == len(tasks.ids("archived"))


def test_tasks_are_spread_over_a_time(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """At even distances, in the order of the ids."""
    tasks.put(TaskState.RETRY, "a", "b")
    tasks.put(TaskState.ARCHIVED, "c", "d")
    at = NOW.plus(100).to_datetime()

    ask("reschedule_tasks", "default", list("dcba"), at, spread=timedelta(hours=1))

    first = NOW.plus(100).ceiling
    assert {"b": first + 1_800, "a": first + 2_700} == tasks.scores("retry")
    assert {"d": first, "c": first + 900} == tasks.scores("scheduled")


def test_a_time_that_no_task_can_have_is_refused(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """Before anything is changed."""
    tasks.put(TaskState.RETRY, "a")
    with pytest.raises(InvalidOptionError, match=r"^process_at="):
        ask("reschedule_tasks", "default", ["a"], NOW.to_datetime().replace(tzinfo=None))
    with pytest.raises(InvalidOptionError, match=r"^spread="):
        ask("reschedule_tasks", "default", ["a"], NOW.to_datetime(), spread=-1)


def test_each_cancellation_has_a_result(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """Written down for a pyasynq worker, called out to one in Go, refused for what does not run."""
    tasks.active("ours", token="server/1")
    tasks.active("theirs", token="")
    tasks.pending("waiting")

    results = ask("cancel_tasks", "default", ["ours", "theirs", "waiting", "gone"], "archive")

    assert [
        TaskResult("ours", None, TaskState.ACTIVE, CancelStatus.REQUESTED),
        TaskResult("theirs", None, TaskState.ACTIVE, CancelStatus.SENT),
        TaskResult("waiting", Refusal.STATE, TaskState.PENDING, CancelStatus.NOT_ACTIVE),
        TaskResult("gone", Refusal.MISSING),
    ] == list(results)
    assert [b"ours"] == tasks.client.hkeys(tasks.keys.cancellations)
    with pytest.raises(InvalidOptionError, match=r"^outcome="):
        ask("cancel_tasks", "default", ["ours"], "burn")
