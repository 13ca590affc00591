"""The inspector's walks and look-ups, blocking and asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.servers import write_server_state
from pyasynq._wire.messages import ServerInfo, WorkerInfo
from pyasynq.errors import InvalidOptionError
from pyasynq.info import CollectionCount, ScanFilter
from pyasynq.task import TaskState
from tests.contract.test_inspector import ask
from tests.factories import NOW

if TYPE_CHECKING:
    from tests.contract.test_inspector import Ask
    from tests.factories import Tasks
    from tests.fix_broker import Perform

__all__ = ["ask"]

UNFILTERED = ScanFilter()


def test_pages_go_on_by_their_cursors(ask: Ask, tasks: Tasks) -> None:
    """Until the cursor is empty."""
    tasks.pending(*"abc")
    first = ask("walk_tasks", "default", "pending", page_size=2)
    second = ask("walk_tasks", "default", "pending", page_size=2, cursor=first.cursor)
    assert ("cb", "a", "") == (
        "".join(task.id for task in first.tasks),
        "".join(task.id for task in second.tasks),
        second.cursor,
    )


def test_active_tasks_come_by_the_start_that_their_server_tells(
    ask: Ask, tasks: Tasks, perform: Perform
) -> None:
    """The newest first."""
    tasks.active(*"ab")
    server = ServerInfo(
        host="h",
        pid=1,
        server_id="s",
        concurrency=2,
        queues={"default": 1},
        strict_priority=False,
        status="active",
        start_time=NOW.to_datetime(),
        active_worker_count=2,
    )
    workers = [
        WorkerInfo(
            host="h",
            pid=1,
            server_id="s",
            task_id=task_id,
            task_type="t",
            task_payload=b"",
            queue="default",
            start_time=NOW.plus(-age).to_datetime(),
            deadline=None,
        )
        for task_id, age in (("a", 5), ("b", 10))
    ]
    perform(write_server_state(server, workers))
    assert ["a", "b"] == [task.id for task in ask("walk_tasks", "default", "active").tasks]


def test_tasks_are_looked_up_by_their_ids_in_all_queues(ask: Ask, tasks: Tasks) -> None:
    """Ids that are not there are left out; without ids or queues there is nothing to look up."""
    tasks.pending("a", "b")
    assert ["a", "b"] == [task.id for task in ask("find_tasks", ["a", "x", "b", "a"])]
    assert ["a"] == [task.id for task in ask("find_tasks", ["a"], queues=["default", "other"])]
    assert [] == ask("find_tasks", ["a"], queues=[])
    assert [] == ask("find_tasks", [])


def test_collections_are_counted_within_scores(ask: Ask, tasks: Tasks) -> None:
    """In lists and groups, which have none, all tasks are counted."""
    tasks.pending("a", "b")
    for number in range(5):
        tasks.put(TaskState.ARCHIVED, f"{number}", score=1_000 + number)
        tasks.put(TaskState.AGGREGATING, f"g{number}", group=f"{number % 2}")
    counts = ask(
        "count_collections",
        [
            ("default", TaskState.PENDING, "", UNFILTERED),
            ("default", TaskState.ARCHIVED, "", UNFILTERED),
            ("default", TaskState.ARCHIVED, "", ScanFilter(1_001, 1_003)),
            ("default", TaskState.ARCHIVED, "", ScanFilter(high=1_000)),
            ("default", TaskState.ARCHIVED, "", ScanFilter(low=1_004)),
            ("default", TaskState.AGGREGATING, "", UNFILTERED),
            ("other", TaskState.PENDING, "", UNFILTERED),
            ("default", TaskState.AGGREGATING, "1", UNFILTERED),
            ("default", TaskState.AGGREGATING, "1", ScanFilter(high=0)),
            ("other", TaskState.AGGREGATING, "", UNFILTERED),
            ("other", TaskState.RETRY, "", ScanFilter(1)),
        ],
    )
    expected = [(2, 2), (5, 5), (5, 3), (5, 1), (5, 1), (5, 5), (0, 0), (2, 2), (2, 0), (0, 0), (0, 0)]
    assert [CollectionCount(*pair) for pair in expected] == counts


@pytest.mark.parametrize("state", ["pending", "archived"])
def test_pages_by_position_can_begin_at_the_newest(ask: Ask, tasks: Tasks, state: str) -> None:
    """In the reverse order, the last page with what is left."""
    for number, task_id in enumerate("abcde"):
        tasks.put(TaskState(state), task_id, score=NOW.seconds + number)
    pages = [
        "".join(task.id for task in ask("list_tasks", "default", state, page, 2, newest_first=True))
        for page in (1, 2, 3, 4)
    ]
    assert ["ed", "cb", "a", ""] == pages
    with pytest.raises(InvalidOptionError):
        ask("list_tasks", "default", state, newest_first="yes")
