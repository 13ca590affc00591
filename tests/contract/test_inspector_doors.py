"""Every method of the inspector against a real server, asyncio and blocking: words reach the right plan."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import pyasynq.sync.inspector
from pyasynq import inspector, sync
from pyasynq._wire.keys import SCHEDULERS_KEY, scheduler_history_key, scheduler_key
from pyasynq.errors import (
    ClientClosedError,
    InvalidOptionError,
    QueueBusyError,
    QueueNotEmptyError,
    QueueNotFoundError,
    QueueNotPausedError,
    QueuePausedError,
    TaskNotFoundError,
    TaskStateError,
)
from pyasynq.info import BulkResult, CancelStatus, DailyStatistics, GroupInfo
from pyasynq.task import TaskState
from tests.contract.test_inspect_bulk import fill
from tests.contract.test_inspect_schedulers import entry, event
from tests.contract.test_inspector import _Clock, ask  # noqa: F401 - a fixture
from tests.factories import DAY, NOW, Tasks

if TYPE_CHECKING:
    from tests.contract.test_inspector import Ask
    from tests.invariants import RedisClient

NEEDS_QUEUE: dict[str, tuple[Any, ...]] = {
    "queue_info": (),
    "history": (1,),
    "groups": (),
    "group_page": (),
    "queue_memory": (),
    "remove_queue": (),
    "list_tasks": ("pending",),
    "task_info": ("a",),
    "search_tasks": ("pending",),
    "error_report": (),
    "type_report": (),
    "run_task": ("a",),
    "archive_task": ("a",),
    "delete_task": ("a",),
    "update_payload": ("a", b""),
    "update_process_at": ("a", NOW.to_datetime()),
    "run_all": ("retry",),
    "archive_all": ("retry",),
    "delete_all": ("retry",),
    "run_tasks": (["a"],),
    "archive_tasks": (["a"],),
    "delete_tasks": (["a"],),
    "reschedule_tasks": (["a"], NOW.to_datetime()),
    "cancel_tasks": (["a"],),
}
NEEDS_TASK = ("task_info", "run_task", "archive_task", "delete_task", "update_payload", "update_process_at")


@pytest.mark.parametrize("method", NEEDS_QUEUE)
def test_a_method_needs_a_queue_that_exists(ask: Ask, method: str) -> None:  # noqa: F811
    """A misspelt name must not look like an empty queue; a blank one is none."""
    with pytest.raises(QueueNotFoundError, match=r"'nope' does not exist"):
        ask(method, "nope", *NEEDS_QUEUE[method])
    with pytest.raises(InvalidOptionError, match=r"^queue="):
        ask(method, " ", *NEEDS_QUEUE[method])


@pytest.mark.parametrize("method", NEEDS_TASK)
def test_a_method_needs_a_task_that_exists(ask: Ask, tasks: Tasks, method: str) -> None:  # noqa: F811
    """The error names task and queue."""
    tasks.pending("other")
    with pytest.raises(TaskNotFoundError, match=r"id=a in queue 'default'"):
        ask(method, "default", *NEEDS_QUEUE[method])


def test_longer_ids_of_other_clients_are_read_and_changed(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """The bounds are for what is written. (D59)"""
    task_id = "x" * 2_000
    tasks.pending(task_id, type="t" * 2_000, headers={"a": "b" * 70_000})
    assert (task_id, 70_000) == (
        ask("task_info", "default", task_id).id,
        len(ask("task_info", "default", task_id).headers["a"]),
    )
    ask("archive_task", "default", task_id)
    ask("run_task", "default", task_id)
    ask("delete_task", "default", task_id)
    assert [] == tasks.ids("pending")


def test_single_tasks_are_moved_and_changed(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """Each method moves or changes one task by its id."""
    tasks.pending("a", "b", "c")
    assert 0 == ask("archive_task", "default", "a")
    ask("update_payload", "default", "a", b"new", relock=True)
    ask("update_process_at", "default", "a", datetime.fromtimestamp(NOW.seconds + 60, UTC))
    assert {"a": NOW.seconds + 60} == tasks.scores("scheduled")
    ask("run_task", "default", "a")
    ask("delete_task", "default", "b")
    assert ["c", "a"] == tasks.ids("pending")
    assert b"new" == ask("task_info", "default", "a").payload
    with pytest.raises(TaskStateError, match=r"cannot run task 'a'.*: it is pending"):
        ask("run_task", "default", "a")


def test_all_tasks_of_a_state_are_moved(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """Groups are included, and the progress is reported."""
    told: list[tuple[int, int]] = []
    tasks.pending("a", "b")
    tasks.put(TaskState.AGGREGATING, "c", group="g")

    def tell(seen: int, total: int) -> None:
        told.append((seen, total))

    assert BulkResult(2, 0) == ask("archive_all", "default", "pending", progress=tell)
    assert BulkResult(1, 0) == ask("archive_all", "default", "aggregating", group="g", progress=tell)
    assert BulkResult(3, 0) == ask("run_all", "default", "archived", progress=tell)
    assert BulkResult(3, 0) == ask("delete_all", "default", "pending", progress=tell)
    assert [(2, 2), (1, 1), (3, 3), (3, 3)] == told


def test_the_size_and_the_age_of_the_archive_are_settings(redis_url: str, tasks: Tasks) -> None:
    """H12: as those of the server."""
    tasks.put(TaskState.ARCHIVED, "old", score=NOW.seconds - 61)
    tasks.put(TaskState.ARCHIVED, "x", "y", score=NOW.seconds - 59)
    tasks.pending("a")
    with sync.Inspector(redis_url, clock=_Clock(), archive_max_size=2, archive_max_age=60) as door:
        assert 2 == door.archive_task("default", "a")
    assert ["y", "a"] == tasks.ids("archived")
    with pytest.raises(InvalidOptionError, match=r"^archive_max_size=0"):
        sync.Inspector(redis_url, archive_max_size=0)
    with pytest.raises(InvalidOptionError, match=r"^archive_max_age="):
        sync.Inspector(redis_url, archive_max_age=-1)
    with pytest.raises(InvalidOptionError, match=r"^timeout="):
        sync.Inspector(redis_url, timeout=0)


def test_queues_are_paused_and_removed(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """With an error of its own class for each thing that is in the way."""
    tasks.pending("a")
    ask("pause_queue", "default", timedelta(minutes=1))
    assert ask("queue_info", "default").paused_until is not None
    with pytest.raises(QueuePausedError):
        ask("pause_queue", "default")
    ask("unpause_queue", "default")
    with pytest.raises(QueueNotPausedError):
        ask("unpause_queue", "default")
    with pytest.raises(QueueNotEmptyError):
        ask("remove_queue", "default")
    tasks.active("b")
    with pytest.raises(QueueBusyError):
        ask("remove_queue", "default", force=True)
    tasks.client.delete(tasks.keys.active, tasks.keys.lease, tasks.keys.task("b"))
    told: list[tuple[int, int]] = []
    assert 1 == ask("remove_queue", "default", force=True, progress=lambda *seen: told.append(seen))
    assert ([(1, 1)], []) == (told, ask("queues"))


def test_numbers_of_a_queue_are_told(ask: Ask, tasks: Tasks, redis_client: RedisClient) -> None:  # noqa: F811
    """History, groups, memory."""
    tasks.put(TaskState.AGGREGATING, "a", "b", group="g")
    redis_client.set(f"{tasks.keys.processed}:{DAY}", 3, ex=60)
    redis_client.set(tasks.keys.processed, 3)
    today = NOW.to_datetime().date()
    assert [
        DailyStatistics("default", today, 3, 0),
        DailyStatistics("default", today - timedelta(days=1), 0, 0),
    ] == ask("history", "default", 2)
    assert [GroupInfo("g", 2)] == ask("groups", "default")
    assert ask("queue_info", "default").memory_usage is None
    assert ask("queue_info", "default", memory=True).memory_usage == ask("queue_memory", "default") > 0
    for days in (0, 367, True):
        with pytest.raises(InvalidOptionError, match=r"^days="):
            ask("history", "default", days)


def test_tasks_are_looked_through(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """Search, errors, types."""
    tasks.put(TaskState.ARCHIVED, "a", error_msg="user 1", payload=b"x=1")
    tasks.put(TaskState.ARCHIVED, "b", error_msg="user 2")
    page = ask("search_tasks", "default", "archived", payload="x=", error="user", scan=1)
    assert (["a"], 1) == ([task.id for task in page.tasks], page.cursor)
    page = ask("search_tasks", "default", "archived", cursor=page.cursor)
    assert (["b"], None) == ([task.id for task in page.tasks], page.cursor)
    [group] = ask("error_report", "default", scan=10).groups
    assert ("user <n>", 2) == (group.signature, group.count)
    [kind] = ask("type_report", "default", scan=10).types
    assert ("email:deliver", 2) == (kind.type, kind.total)


def test_schedulers_are_shown(ask: Ask, redis_client: RedisClient) -> None:  # noqa: F811
    """Their entries and what these have enqueued."""
    redis_client.zadd(SCHEDULERS_KEY, {scheduler_key("s"): NOW.seconds})
    redis_client.lpush(scheduler_key("s"), entry("e"))
    redis_client.zadd(scheduler_history_key("e"), {event("t1"): 1, event("t2"): 2})
    assert ["e"] == [found.id for found in ask("scheduler_entries")]
    assert ["t1"] == [found.task_id for found in ask("scheduler_events", "e", page=2, page_size=1)]


def test_a_cancel_is_asked_for(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """Everywhere, or in one queue."""
    tasks.active("a")
    for arguments in (("a",), ("a", "default"), ("a", "default", "archive")):
        [result] = ask("cancel", *arguments)
        assert CancelStatus.REQUESTED is result.status


@pytest.mark.parametrize("ended", ["gone", "again"])
def test_a_cancel_can_be_waited_for(redis_url: str, tasks: Tasks, ended: str) -> None:
    """Until the attempt that was asked has ended, with any outcome of its task."""
    tasks.active("a", token="server/1")

    async def cancel() -> Any:
        async with inspector.Inspector(redis_url) as door:
            waiting = asyncio.create_task(door.cancel("a", wait=30))
            async with inspector.Inspector(redis_url) as looking:
                while not tasks.client.exists(tasks.keys.cancellations):
                    await looking.queues()
            if ended == "gone":
                tasks.client.delete(tasks.keys.task("a"), tasks.keys.active, tasks.keys.lease)
            else:
                tasks.client.hset(tasks.keys.task("a"), "x:attempt", "server/2")
            return await waiting

    [result] = asyncio.run(cancel())
    state = None if ended == "gone" else TaskState.ACTIVE
    assert (CancelStatus.ENDED, state) == (result.status, result.state)


def test_a_wait_for_a_cancel_ends(redis_url: str, tasks: Tasks) -> None:
    """The request stays; a task that is not active is not waited for."""
    tasks.active("a")
    tasks.pending("b")
    with sync.Inspector(redis_url) as door:
        assert [CancelStatus.REQUESTED] == [found.status for found in door.cancel("a", wait=0.05)]
        assert [CancelStatus.NOT_ACTIVE] == [found.status for found in door.cancel("b", wait=3600)]


def test_a_long_operation_that_is_cancelled_ends_after_its_call(redis_url: str, tasks: Tasks) -> None:
    """It stops after the call that is under way, and what was done stays done."""
    fill(tasks, "archived", 10_000)

    async def delete() -> None:
        begun = asyncio.Event()
        async with inspector.Inspector(redis_url) as door:
            deleting = asyncio.create_task(
                door.delete_all("default", "archived", progress=lambda *seen: begun.set())
            )
            await begun.wait()
            deleting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await deleting

    asyncio.run(delete())
    assert 6_000 <= len(tasks.ids("archived")) <= 9_000


def test_what_progress_raises_ends_a_long_operation(ask: Ask, tasks: Tasks) -> None:  # noqa: F811
    """It comes out as it was raised."""
    tasks.pending("a")

    def stop(*seen: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        ask("delete_all", "default", "pending", progress=stop)


def test_servers_of_one_queue_are_listed(redis_url: str) -> None:
    """The servers that serve it; without servers the list is empty."""
    with sync.Inspector(redis_url) as door:
        assert [] == door.servers("default") == door.servers()


def test_nothing_waits_in_the_blocking_inspector() -> None:
    """Every method of it is there, with the same arguments, and none is a coroutine."""

    def offers(kind: type) -> dict[str, list[str]]:
        return {
            name.replace("__a", "__"): list(inspect.signature(member).parameters)
            for base in kind.__mro__[:-1]
            for name, member in vars(base).items()
            if inspect.isfunction(member)
        }

    blocking = pyasynq.sync.inspector.Inspector
    assert offers(inspector.Inspector) == offers(blocking)
    assert not any(inspect.iscoroutinefunction(member) for _, member in inspect.getmembers(blocking))


def test_a_closed_inspector_says_so_in_long_operations_too(redis_url: str) -> None:
    """The error is the same as for all other calls of a closed inspector."""
    door = sync.Inspector(redis_url)
    door.close()
    with pytest.raises(ClientClosedError):
        door.delete_all("default", "pending")
