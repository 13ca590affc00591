"""Operations on many tasks whose process is killed: another one goes on, with exact counts."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._wire.keys import operation_key, queue_keys
from pyasynq.operations import OperationOptions, OperationState, Targets, User
from pyasynq.operations.sync import Operator
from pyasynq.task import TaskState
from tests.factories import Tasks
from tests.invariants import check_invariants
from tests.snapshots import snapshot
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.invariants import RedisClient

ADMIN = User.with_role("root", "admin")
QUEUES = ("default", "low")
PROGRAM = """
import sys
from pyasynq.operations import User
from pyasynq.operations.sync import Operator

with Operator(sys.argv[1], User.with_role("root", "admin")) as operator:
    operator.run_operation(sys.argv[2], progress=lambda info: print(info.done, flush=True))
"""


def kill_after(redis_url: str, client: RedisClient, operation: str, steps: int) -> None:
    """Run an operation in a process, kill it when it has told of some steps, and let its lease be over."""
    arguments = [sys.executable, "-c", PROGRAM, redis_url, operation]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(steps):
            assert process.stdout.readline()
        process.kill()
        process.wait(PATIENCE)
    client.hset(operation_key(operation), "lease", 0)


def tasks_of(client: RedisClient) -> dict[str, Any]:
    """Return the database without the keys of operations."""
    return {key: value for key, value in snapshot(client).items() if "x:" not in key}


@pytest.mark.long
@pytest.mark.parametrize(
    ("state", "kills"), [(TaskState.PENDING, 1), pytest.param(TaskState.RETRY, 3, marks=pytest.mark.long)]
)
def test_killed_deletions_and_undos_are_exact_and_leave_every_byte(
    redis_url: str, redis_client: RedisClient, state: TaskState, kills: int
) -> None:
    """This many kills on the way there and on the way back; the database is sound after each."""
    number = 1_500
    for queue in QUEUES:
        ids = [f"t{one:04}" for one in range(number)]
        fields: dict[str, Any] = {} if state is TaskState.PENDING else {"error_msg": "why"}
        Tasks(redis_client, queue).put(state, *ids, headers={"a": "b"}, **fields)
        lock = queue_keys(queue).unique("mail", b"{}")
        Tasks(redis_client, queue).put(TaskState.SCHEDULED, "locked", unique_key=lock)
    before = tasks_of(redis_client)
    total = len(QUEUES) * (number + 1)
    with Operator(redis_url, ADMIN) as operator:
        targets = Targets(query="state:pending,retry,scheduled")
        started = operator.start_operation("delete", targets, OperationOptions(), reason="r", confirm=total)
        for _ in range(kills):
            kill_after(redis_url, redis_client, started.operation, steps=2)
            check_invariants(redis_client)
        deleted = operator.run_operation(started.operation)
        assert (OperationState.DONE, total, 0) == (deleted.state, deleted.done, deleted.skipped)
        assert total == deleted.undoable
        assert {"asynq:queues"} == set(tasks_of(redis_client))
        undoing = operator.undo_operation(started.operation)
        for _ in range(kills):
            kill_after(redis_url, redis_client, undoing.operation, steps=2)
            check_invariants(redis_client)
        undone = operator.run_operation(undoing.operation)
        assert (OperationState.DONE, total, 0) == (undone.state, undone.done, undone.skipped)
    assert before == tasks_of(redis_client)


@pytest.mark.parametrize(
    ("state", "kills"), [(TaskState.PENDING, 1), pytest.param(TaskState.RETRY, 4, marks=pytest.mark.long)]
)
def test_a_killed_move_leaves_each_task_in_one_queue(
    redis_url: str, redis_client: RedisClient, state: TaskState, kills: int
) -> None:
    """After a kill in the middle of a step, a task is in one list at most; in the end in the other."""
    number = 600
    mine, others = Tasks(redis_client, "default"), Tasks(redis_client, "other")
    lock = queue_keys("default").unique("mail", b"{}")
    mine.put(state, *(f"t{one:04}" for one in range(number)), headers={"a": "b"}, error_msg="why")
    mine.put(TaskState.SCHEDULED, "locked", unique_key=lock)
    with Operator(redis_url, ADMIN) as operator:
        targets = Targets(query="queue:default state:pending,retry,scheduled")
        options = OperationOptions(queue="other")
        started = operator.start_operation("move", targets, options, reason="r", confirm=number + 1)
        for _ in range(kills):
            kill_after(redis_url, redis_client, started.operation, steps=2)
            here, there = mine.ids(state.value), others.ids(state.value)
            assert set() == set(here) & set(there)
            assert len(there) == len(set(there)) >= 1
        moved = operator.run_operation(started.operation)
    assert (OperationState.DONE, number + 1, 0) == (moved.state, moved.done, moved.skipped)
    assert ([], number) == (mine.ids(state.value), len(set(others.ids(state.value))))
    assert b"locked" == redis_client.get(queue_keys("other").unique("mail", b"{}"))
    assert [] == [key for key in redis_client.scan_iter("asynq:{default}:*") if b":x:step:" not in key]
    check_invariants(redis_client)


@pytest.mark.long
def test_killed_deletions_deep_in_a_long_list_are_exact(redis_url: str, redis_client: RedisClient) -> None:
    """A process goes on from the places that it finds itself, and a third one puts all back in order."""
    tasks = Tasks(redis_client)
    ids = [f"t{one:04}" for one in range(4_500)]
    chosen = [task_id for task_id in ids if task_id[-1] == "7"]
    for task_type, some in (("doomed", chosen), ("kept", sorted({*ids} - {*chosen}))):
        tasks.put(TaskState.PENDING, *some, type=task_type)
    redis_client.delete(tasks.keys.pending)
    redis_client.lpush(tasks.keys.pending, *ids)
    before = tasks_of(redis_client)
    with Operator(redis_url, ADMIN) as operator:
        targets = Targets(query="type:doomed")
        started = operator.start_operation("delete", targets, reason="r", confirm=len(chosen))
        kill_after(redis_url, redis_client, started.operation, steps=2)
        check_invariants(redis_client)
        deleted = operator.run_operation(started.operation)
        assert (OperationState.DONE, 450, 0) == (deleted.state, deleted.done, deleted.skipped)
        assert [task_id for task_id in ids if task_id[-1] != "7"] == tasks.ids("pending")
        undoing = operator.undo_operation(started.operation)
        kill_after(redis_url, redis_client, undoing.operation, steps=2)
        undone = operator.run_operation(undoing.operation)
        assert (OperationState.DONE, 450, 0) == (undone.state, undone.done, undone.skipped)
    assert before == tasks_of(redis_client)
