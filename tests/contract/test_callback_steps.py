"""Completion callbacks of each way in which a task can end, with the process killed after each call."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import Callback
from pyasynq._broker.doctoring.tasks import Settlement, judge, settle_damaged
from pyasynq._broker.inspecting.actions import ArchiveLimits, archive_tasks, delete_tasks
from pyasynq._broker.inspecting.removal import remove_queue
from pyasynq._broker.leases import PoisonTask, archive_poison, quarantine
from pyasynq._broker.operating.acts import ActStep, archive_step, delete_step, set_aside_step
from pyasynq._broker.outbox import deliver_endings, list_endings
from pyasynq._broker.settle import settle_done
from pyasynq._wire.endings import encode_callback
from pyasynq._wire.keys import ALL_QUEUES, queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.task import TaskState
from tests.cluster_client import ClusterClient
from tests.contract.settling import CUTOFF, DoneTask, archive, complete, done
from tests.factories import LEASE_SCORE, NOW, TOKEN, Tasks, claim, message_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.settle import Settled
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

    End = Callable[[str], Plan[Any]]

LIMITS = ArchiveLimits(9_999, CUTOFF)


def settled(settle: Callable[[str], Plan[Settled]]) -> End:
    """Return what a server does at the end of an attempt: settle it, then enqueue the callback."""

    def end(task_id: str) -> Plan[None]:
        outcome = yield from settle(task_id)
        yield from deliver_endings("default", outcome.endings, now=NOW)

    return end


def poison(task_id: str) -> Plan[Settled]:
    """Archive a task whose workers die with it, as the recovering server does."""
    task = PoisonTask(task_id, TOKEN, LEASE_SCORE, message_bytes(task_id), NOW.seconds, b"")
    return archive_poison("default", [task], max_size=999, cutoff=CUTOFF, own_slack=None, now=NOW)


def archive_undecodable(task_id: str) -> Plan[Settled]:
    """Archive a task whose message cannot be decoded."""
    return quarantine("default", claim(task_id), reason="bad", max_size=999, cutoff=CUTOFF, now=NOW)


def cancel(task_id: str) -> Plan[Settled]:
    """Delete a task that its handler has cancelled."""
    return settle_done("default", [DoneTask(*claim(task_id), "")], now=NOW, outcome="cancelled")


def settle_by_doctor(task_id: str, state: str) -> Plan[None]:
    """Archive a task, or delete it if the state is empty, as the doctor does with some damaged ones."""
    keys = queue_keys("default")
    [facts] = yield from judge("default", {task_id.encode(): b""}, now=NOW)
    place = keys.archived if state else ""
    settlement = Settlement(facts, b"", state, place, reason="damaged")
    yield from settle_damaged("default", [settlement], now=NOW)


def step(task_id: str) -> ActStep:
    """Return the only step of an operation on one task."""
    return ActStep(f"operation-{task_id}", 1)


BY_SERVERS: dict[str, tuple[End, str]] = {
    "done": (settled(lambda one: done([claim(one)])), "succeeded"),
    "complete": (settled(lambda one: complete([claim(one)])), "succeeded"),
    "archive": (settled(lambda one: archive([claim(one)])), "archived"),
    "cancel": (settled(cancel), "cancelled"),
    "poison": (settled(poison), "archived"),
    "undecodable": (settled(archive_undecodable), "archived"),
}
BY_HAND: dict[str, tuple[End, str]] = {
    "archive by hand": (lambda one: archive_tasks("default", [one], limits=LIMITS, now=NOW), "archived"),
    "delete by hand": (lambda one: delete_tasks("default", [one]), "deleted"),
    "archiving operation": (
        lambda one: archive_step(step(one), "default", [one], "", limits=LIMITS, now=NOW),
        "archived",
    ),
    "deleting operation": (lambda one: delete_step(step(one), "default", [one], ""), "deleted"),
    "operation that can be undone": (lambda one: set_aside_step(step(one), "default", [one], ""), "deleted"),
    "doctor that archives": (lambda one: settle_by_doctor(one, "archived"), "archived"),
    "doctor that deletes": (lambda one: settle_by_doctor(one, ""), "deleted"),
    "removal of the queue": (lambda one: remove_queue("default", force=True, progress=None), "deleted"),
}


def cut_off(plan: Plan[Any], calls: int) -> Plan[bool]:
    """Make the first calls of a plan, as a process that is then killed; return whether there were no more."""
    answer: Any = None
    for _ in range(calls):
        try:
            call = plan.send(answer)
        except StopIteration:
            return True
        answer = yield call
    return False


def relay() -> Plan[int]:
    """Deliver what is left in the outbox, as the next server of the queue does."""
    return (yield from deliver_endings("default", (yield from list_endings("default", seconds=0)), now=NOW))


def has_ended(tasks: Tasks, task_id: str) -> bool:
    """Return whether a task is gone, archived or completed."""
    return tasks.fields(task_id).get("state", b"archived") in {b"archived", b"completed"}


def read_callbacks(client: RedisClient) -> dict[str, list[str]]:
    """Return the outcomes that the callbacks in `reports` tell of each task."""
    waiting = Tasks(client, "reports")
    found: dict[str, list[str]] = {}
    for one in waiting.ids("pending"):
        arguments = json.loads(decode_task_message(waiting.fields(one)["msg"]).payload)
        found.setdefault(arguments["id"], []).append(arguments["outcome"])
    return found


def check_each_step(
    perform: Perform, client: RedisClient, end: End, outcome: str, put: Callable[[str], None]
) -> None:
    """End a task each time, killed one call later; at the end each callback must wait exactly once."""
    tasks = Tasks(client)
    expected: dict[str, list[str]] = {}
    for calls in itertools.count():
        task_id = f"task-{calls}"
        put(task_id)
        client.set(tasks.keys.callbacks, "1")
        was_complete = perform(cut_off(end(task_id), calls))
        if not has_ended(tasks, task_id):
            assert expected == read_callbacks(client)
            perform(end(task_id))
        perform(relay())
        expected[task_id] = [outcome]
        assert expected == read_callbacks(client), calls
        assert not client.exists(tasks.keys.outbox)
        assert client.sismember(ALL_QUEUES, "reports")
        client.srem(ALL_QUEUES, "reports")
        if was_complete:
            break
    client.sadd(ALL_QUEUES, "reports")
    # The end, the callback, the name of its queue and the entry in the outbox are four calls.
    assert len(expected) > 4


@pytest.fixture
def finished(redis_client: RedisClient) -> dict[str, bytes]:
    """Return the field of a task with a callback, whose queue is on another node of a cluster."""
    if isinstance(redis_client, ClusterClient):
        nodes = [redis_client.find_node(queue_keys(queue).pending) for queue in ("default", "reports")]
        assert nodes[0] is not nodes[1]
    return {"x:finished": encode_callback(Callback("report:ready", "reports"), "email:deliver", "n1")}


@pytest.mark.parametrize("row", BY_SERVERS)
def test_the_end_of_an_attempt_is_told_once_though_the_server_is_killed_at_any_step(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, finished: dict[str, bytes], row: str
) -> None:
    """Before the end nothing is told; after it the next server of the queue tells what is left."""
    end, outcome = BY_SERVERS[row]
    check_each_step(perform, redis_client, end, outcome, lambda one: tasks.active(one, extra=finished))


@pytest.mark.parametrize("row", BY_HAND)
def test_an_end_by_hand_is_told_once_though_its_process_is_killed_at_any_step(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, finished: dict[str, bytes], row: str
) -> None:
    """The inspector and operations enqueue callbacks themselves, and the servers of the queue the rest.

    So do servers with those of tasks that the doctor ends.
    """
    end, outcome = BY_HAND[row]

    def put(task_id: str) -> None:
        tasks.put(TaskState.PENDING, task_id, extra=finished)

    check_each_step(perform, redis_client, end, outcome, put)
