"""Tasks that an operator imports: each once, also if it is deleted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyasynq.errors import InvalidOptionError
from pyasynq.operations import MASK, User, parse_task_line
from pyasynq.operations import sync as blocking
from pyasynq.task import Task, TaskState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.factories import Tasks
    from tests.invariants import RedisClient


@pytest.fixture
def operator(redis_url: str) -> Iterator[blocking.Operator]:
    """An operator for someone who may do everything."""
    with blocking.Operator(redis_url, User.with_role("root", "admin")) as operator:
        yield operator


def test_an_import_puts_exported_tasks_back(
    operator: blocking.Operator, redis_client: RedisClient, tasks: Tasks
) -> None:
    """With the same ids and payloads, and a state that follows from their times."""
    tasks.put(TaskState.SCHEDULED, "later", payload=b"\xff", score=4_000_000_000)
    tasks.put(TaskState.ARCHIVED, "failed", payload=b"{}", error_msg="x")
    tasks.put(TaskState.AGGREGATING, "grouped", group="g")
    lines = list(operator.export())
    for state in ("scheduled", "archived"):
        operator.delete_all_tasks("default", state)
    operator.delete_all_tasks("default", "aggregating", group="g")

    parsed = [parse_task_line(line) for line in lines]
    report = operator.import_tasks("default", [task for _, task in parsed], reason="r")

    assert {"default"} == {queue for queue, _ in parsed}
    assert {"enqueued": 3, "existing": 0, "refused": 0} == report.counts
    assert (["later"], ["failed"]) == (tasks.ids("scheduled"), tasks.ids("pending"))
    assert b"\xff" == operator.task("default", "later").payload
    assert "g" == operator.task("default", "grouped").group
    [entry] = [one for one in operator.audit().entries if one.verb == "import_tasks"]
    assert ("3 tasks", report.counts, "r") == (entry.details["tasks"], entry.counts, entry.reason)


def test_a_second_import_does_nothing_even_if_the_tasks_are_gone(
    operator: blocking.Operator, tasks: Tasks
) -> None:
    """So one that broke off can be made again. Tasks that were never imported count as existing as well."""
    tasks.pending("there")
    imported = [Task("t", b"", task_id=name) for name in ("a", "b", "there")]
    assert {"enqueued": 2, "existing": 1, "refused": 0} == operator.import_tasks("default", imported).counts
    operator.delete_task("default", "a")
    assert {"enqueued": 0, "existing": 3, "refused": 0} == operator.import_tasks("default", imported).counts
    assert {"b", "there"} == set(tasks.ids("pending"))


def test_a_task_that_cannot_be_enqueued_does_not_hold_up_the_others(operator: blocking.Operator) -> None:
    """It is named by its position."""
    imported = [
        Task("t", b"", task_id="a"),
        Task("t", b"", task_id="b", max_retry=-1),
        Task("t", b"", task_id="c"),
    ]
    report = operator.import_tasks("default", imported)
    assert (2, [1]) == (report.enqueued, list(report.errors))


def test_a_task_without_an_id_or_with_a_mask_is_refused(operator: blocking.Operator) -> None:
    """The first could be enqueued twice, the second would destroy a secret."""
    with pytest.raises(InvalidOptionError, match="task_id"):
        operator.import_tasks("default", [Task("t")])
    with pytest.raises(InvalidOptionError, match="payload"):
        operator.import_tasks("default", [Task("t", json.dumps([MASK]).encode(), task_id="a")])
    assert [] == operator.queues()
