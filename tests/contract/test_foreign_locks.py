"""H9: a lock's name outside the queue, or a key that is not a string, is not touched.

A cluster breaks off a script that touches a key of another slot, and every Redis one that takes a list for a
string: behind the first writes that would lose a task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pyasynq._broker.aggregation_sets import quarantine_member
from pyasynq._broker.delayed import delete_expired_completed
from pyasynq._broker.dequeue import dequeue
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.inspecting.actions import ArchiveLimits, archive_tasks, delete_tasks, run_tasks
from pyasynq._broker.inspecting.updates import update_payload, update_process_at
from pyasynq._broker.leases import PoisonTask, RecoverTask, archive_poison, recover
from pyasynq._broker.locks import HeldLock, renew_locks
from pyasynq._broker.settle import (
    ArchiveTask,
    CompleteTask,
    RetryTask,
    settle_archive,
    settle_complete,
    settle_retry,
    trim_rest,
)
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.task import TaskState
from tests.contract.aggregating import STAGED, finish
from tests.contract.enqueueing import composed
from tests.contract.settling import CUTOFF, EXPIRES_AT, RETENTION, done
from tests.contract.test_full_redis import settle_by_doctor
from tests.factories import LEASE_SCORE, NOW, TOKEN, Tasks, claim, message_bytes, registered
from tests.snapshots import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

KEYS = queue_keys("default")
TASK = KEYS.task("a")
A_LIST = f"{KEYS.prefix}x:list"
HOLDS = 3_600
"""Seconds that `Tasks` gives a lock; the rules here ask for more, so that one that is renewed shows it."""

no_lock = pytest.mark.parametrize("name", ["foo", "asynq:{other}:unique:x", A_LIST])


class Deed(NamedTuple):
    """A change to a task in a state; the plan gets the name of the task's lock.

    `rule` is what the hash says about the lock.
    """

    state: str
    plan: Callable[[str], Plan[Any]]
    rule: str = "6000"


def complete(name: str) -> Plan[Any]:
    """Settle the attempt of a task that is finished and kept."""
    message = message_bytes("a", unique_key=name, completed_at=NOW.seconds, retention=RETENTION)
    return settle_complete("default", [CompleteTask(claim("a"), name, message, EXPIRES_AT, None)], now=NOW)


def retry(name: str) -> Plan[Any]:
    """Settle the attempt of a task that is to be tried again."""
    task = RetryTask(claim("a"), b"", NOW.seconds + 90, True, b"", unique_key=name)
    return settle_retry("default", [task], now=NOW)


def archive(_: str) -> Plan[Any]:
    """Settle the attempt of a task that failed for good."""
    task = ArchiveTask(claim("a"), b"", NOW.ceiling, b"")
    return settle_archive("default", [task], max_size=9_999, cutoff=CUTOFF, now=NOW)


def poison(_: str) -> Plan[Any]:
    """Archive the task of a dead worker."""
    task = PoisonTask("a", TOKEN, LEASE_SCORE, b"", NOW.ceiling, b"")
    return archive_poison("default", [task], max_size=9_999, cutoff=CUTOFF, own_slack=None, now=NOW)


def replace(_: str) -> Plan[Any]:
    """Enqueue a task with the same id."""
    [run] = split_runs([composed("a", on_conflict="replace_finished")])
    return registered(enqueue_run(run, now=NOW), run.queue)


def quarantine(_: str) -> Plan[Any]:
    """Archive a member of an aggregation set."""
    return quarantine_member(STAGED, "a", reason="x", max_size=9_999, cutoff=CUTOFF, now=NOW)


DEEDS = {
    "taken": Deed("pending", lambda _: dequeue("default", limit=1, token=TOKEN, now=NOW)),
    "started": Deed("pending", lambda _: dequeue("default", limit=1, token=TOKEN, now=NOW), "6000 start"),
    "renewed": Deed("active", lambda name: renew_locks("default", [HeldLock("a", name)])),
    "done": Deed("active", lambda name: done([claim("a")], name)),
    "completed": Deed("active", complete),
    "retried": Deed("active", retry),
    "archived": Deed("active", archive, "6000 finish"),
    "poison": Deed("active", poison, "6000 finish"),
    "recovered": Deed(
        "active",
        lambda _: recover("default", [RecoverTask("a", TOKEN, LEASE_SCORE)], own_slack=None, now=NOW),
    ),
    "trimmed": Deed("archived", lambda _: trim_rest(KEYS, (0, 1), max_size=0, cutoff=CUTOFF)),
    "expired": Deed("completed", lambda _: delete_expired_completed("default", batch=9, now=NOW)),
    "deleted": Deed("scheduled", lambda _: delete_tasks("default", ["a"])),
    "deleted by the doctor": Deed("pending", lambda _: settle_by_doctor(b"a", "", "")),
    "archived by hand": Deed(
        "scheduled",
        lambda _: archive_tasks("default", ["a"], limits=ArchiveLimits(9_999, CUTOFF), now=NOW),
        "6000 finish",
    ),
    "run by hand": Deed("retry", lambda _: run_tasks("default", ["a"], now=NOW)),
    "rescheduled": Deed(
        "scheduled", lambda _: update_process_at("default", "a", NOW.plus(500).to_datetime(), now=NOW)
    ),
    "changed": Deed("scheduled", lambda _: update_payload("default", "a", b"new", relock=True)),
    "replaced": Deed("archived", replace),
    "aggregated": Deed("in set", lambda name: finish(STAGED, locks=[("a", name)])),
    "quarantined": Deed("in set", quarantine, "6000 finish"),
}


def put(tasks: Tasks, deed: Deed, name: str) -> None:
    """Put the task `a` where the deed finds it; message and hash name this lock, whose key holds `a`."""
    extra = {"x:unique_ttl": deed.rule} if name else {}
    if deed.state == "active":
        tasks.active("a", unique_key=name, extra=extra)
    elif deed.state == "in set":
        tasks.in_set(STAGED.group, STAGED.id, "a", unique_key=name, extra=extra)
    else:
        finished = {"completed_at": NOW.seconds - RETENTION, "retention": RETENTION}
        times: Any = finished if deed.state == "completed" else {}
        tasks.put(TaskState(deed.state), "a", unique_key=name, extra=extra, **times)
    make_a_list(tasks.client, name)


def make_a_list(client: RedisClient, name: str) -> None:
    """Let the name that stands for one be that of a list."""
    if name == A_LIST:
        client.delete(name)
        client.rpush(name, "a")
        client.expire(name, HOLDS)


def outcome(perform: Perform, tasks: Tasks, deed: Deed, name: str) -> dict[str, Any]:
    """Return the result of the change to a task with this lock, except the lock and its names."""
    tasks.client.flushall()
    put(tasks, deed, name)
    before = snapshot(tasks.client)
    perform(deed.plan(name))
    after = snapshot(tasks.client)
    if name:
        assert before.pop(name) == after.pop(name)
        assert HOLDS - 60 < tasks.client.ttl(name) <= HOLDS
    assert before != after or deed is DEEDS["renewed"]
    if TASK in after:
        _, fields = after[TASK]
        named = fields.pop(b"unique_key", b"")
        # A new payload gives every name inside the queue up for its own.
        assert named in {b"", name.encode()} or name == A_LIST
        fields.pop(b"x:unique_ttl", None)
        fields[b"msg"] = decode_task_message(fields[b"msg"])
        fields[b"msg"].unique_key = ""
    return after


@no_lock
@pytest.mark.parametrize("deed", DEEDS.values(), ids=list(DEEDS))
def test_h09_a_task_that_names_no_lock_of_its_queue_is_one_without_a_lock(
    perform: Perform, tasks: Tasks, deed: Deed, name: str
) -> None:
    """It goes where such a one goes, on a cluster too, and what it names stays as it is."""
    assert outcome(perform, tasks, deed, "") == outcome(perform, tasks, deed, name)


@no_lock
def test_h09_a_key_named_only_by_a_message_stays_unless_it_is_a_lock_of_its_queue(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, name: str
) -> None:
    """A Go client leaves the field out for tasks of groups."""
    tasks.put(TaskState.AGGREGATING, "a", group="g", unique_key=name)
    make_a_list(redis_client, name)
    redis_client.hdel(TASK, "unique_key")
    assert 1 == perform(delete_tasks("default", ["a"])).done
    assert [False, True] == [bool(redis_client.exists(key)) for key in (TASK, name)]
