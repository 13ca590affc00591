"""Tasks that are looked up by their ids: one call for each queue, and all that `task_info` tells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.inspecting.tasks import describe_task, find_tasks
from pyasynq._wire.history import encode_attempt
from pyasynq.task import TaskState
from tests.contract.test_inspect_by_ids import EVERYWHERE, put_everywhere
from tests.factories import NOW, Tasks
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


def test_tasks_in_all_states_are_found_as_one_by_one(perform: Perform, tasks: Tasks) -> None:
    """With their scores; ids without a task are left out."""
    put_everywhere(tasks)
    found = perform(find_tasks("default", EVERYWHERE, now=NOW))
    assert EVERYWHERE[:-1] == [task.id for task in found]
    assert [perform(describe_task("default", one, now=NOW)) for one in EVERYWHERE[:-1]] == found
    assert [] == perform(find_tasks("nowhere", EVERYWHERE, now=NOW))


def test_all_ids_of_a_queue_are_looked_up_in_one_call(redis_client: RedisClient, tasks: Tasks) -> None:
    """250 ids, and about 1 MB of messages, end a call."""
    tasks.put(TaskState.ARCHIVED, *"ab")
    perform = BlockingPerformer(redis_client)
    ids = ["a", *(f"none-{number}" for number in range(248)), "b"]
    assert ["a", "b"] == [task.id for task in perform(find_tasks("default", ids, now=NOW))]
    assert 1 == len(perform.calls)
    assert ["b"] == [task.id for task in perform(find_tasks("default", [*ids[1:], "x", "y"], now=NOW))]
    assert 3 == len(perform.calls)
    assert [] == perform(find_tasks("default", [], now=NOW))
    assert 3 == len(perform.calls)


@pytest.mark.parametrize(("size", "calls"), [(240_000, 1), (400_000, 2), (1_100_000, 4)])
def test_large_tasks_end_a_call(redis_client: RedisClient, tasks: Tasks, size: int, calls: int) -> None:
    """Message, result and traceback count."""
    tasks.put(TaskState.ARCHIVED, *"abcd", payload=bytes(size // 4))
    for task_id in "abcd":
        redis_client.hset(
            tasks.keys.task(task_id), mapping={"result": bytes(size // 4), "x:trace": "t" * (size // 2)}
        )
    perform = BlockingPerformer(redis_client)
    assert list("abcd") == [task.id for task in perform(find_tasks("default", list("abcd"), now=NOW))]
    assert calls == len(perform.calls)


@pytest.mark.parametrize(("less", "calls"), [(0, 2), (1, 1)])
def test_a_call_ends_when_its_bytes_are_reached(
    redis_client: RedisClient, tasks: Tasks, less: int, calls: int
) -> None:
    """Fails if the limit is one byte higher or lower."""
    tasks.put(TaskState.ARCHIVED, *"ab")
    size = len(tasks.fields("a")["msg"])
    redis_client.hset(tasks.keys.task("a"), "result", bytes(1_000_000 - size - less))
    perform = BlockingPerformer(redis_client)
    assert ["a", "b"] == [task.id for task in perform(find_tasks("default", ["a", "b"], now=NOW))]
    assert calls == len(perform.calls)


def test_the_history_of_a_task_is_found_with_it(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer reads the attempts, or reads them as another field."""
    attempt = encode_attempt("failed", "why", server="s", started_at=None, ended_at=NOW.seconds)
    tasks.put(TaskState.RETRY, "a", extra={"x:attempts": b"[%b]" % attempt})
    [found] = perform(find_tasks("default", ["a"], now=NOW))
    assert found.attempts
    assert perform(describe_task("default", "a", now=NOW)) == found


@pytest.mark.usefixtures("damage_allowed")
def test_what_cannot_be_read_is_left_out(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """A broken message, an unknown state, and a hash without a state."""
    tasks.put(TaskState.ARCHIVED, *"abcd")
    redis_client.hset(tasks.keys.task("a"), "msg", b"\xff")
    redis_client.hset(tasks.keys.task("b"), "state", "ice")
    redis_client.hdel(tasks.keys.task("c"), "state")
    assert ["d"] == [task.id for task in perform(find_tasks("default", list("abcd"), now=NOW))]
