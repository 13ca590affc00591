"""Completion callbacks in Redis: which scripts write the end of a task, and its delivery."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import Callback
from pyasynq._broker.enqueueing.compose import compose
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.inspecting.actions import ArchiveLimits, archive_tasks, delete_tasks, run_tasks
from pyasynq._broker.inspecting.removal import remove_queue
from pyasynq._broker.leases import PoisonTask, archive_poison, quarantine
from pyasynq._broker.operating.acts import ActStep, archive_step, delete_step, set_aside_step, undo_step
from pyasynq._broker.outbox import StoredEnding, deliver_endings, list_endings
from pyasynq._broker.settle import ArchiveTask, settle_archive, settle_done
from pyasynq._wire.endings import decode_ending, encode_callback
from pyasynq._wire.history import encode_attempt
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.task import Task, TaskState
from tests.contract.settling import CUTOFF, DoneTask, archive, complete, done, requeue, retry
from tests.factories import LEASE_SCORE, NOW, TOKEN, Tasks, claim, message_bytes, registered

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

TOLD = Callback("report:ready", "reports", max_retry=3, timeout=20, retention=60)
FINISHED = {"x:finished": encode_callback(TOLD, "email:deliver", "n1")}
LIMITS = ArchiveLimits(9_999, CUTOFF)
HISTORY = encode_attempt("archived", "ValueError: no", server="s", started_at=1.0, ended_at=2.0)


@pytest.fixture(autouse=True)
def marker(redis_client: RedisClient) -> None:
    """Mark the queue as one whose tasks have callbacks, as their enqueue does."""
    redis_client.set(queue_keys("default").callbacks, "1")


@pytest.fixture
def outbox(redis_client: RedisClient) -> Callable[[], list[tuple[str, str, str, str]]]:
    """Return a function that reads id, type, outcome and error of each end in the outbox of `default`."""

    def read() -> list[tuple[str, str, str, str]]:
        entries = redis_client.hvals(queue_keys("default").outbox)
        return sorted(tuple(decode_ending(entry).arguments.values()) for entry in entries)  # type: ignore[misc] # four texts

    return read


def told(task_id: str, outcome: str, error: str = "") -> tuple[str, str, str, str]:
    """Return what the outbox says of a task."""
    return task_id, "email:deliver", outcome, error


def poison(task_id: str) -> Plan[Any]:
    """Archive an active task because workers die with it."""
    task = PoisonTask(task_id, TOKEN, LEASE_SCORE, message_bytes(task_id), NOW.seconds, b"", HISTORY)
    return archive_poison("default", [task], max_size=9, cutoff=CUTOFF, own_slack=None, now=NOW)


def archive_with_error(task_id: str) -> Plan[Any]:
    """Archive an active task with a history entry."""
    task = ArchiveTask(claim(task_id), message_bytes(task_id), NOW.seconds, b"", HISTORY)
    return settle_archive("default", [task], max_size=9, cutoff=CUTOFF, now=NOW)


def revoke(task_id: str) -> Plan[Any]:
    """Delete a task that its handler has cancelled."""
    return settle_done("default", [DoneTask(*claim(task_id), "")], now=NOW, outcome="cancelled")


@pytest.mark.parametrize(
    ("end", "outcome", "error"),
    [
        (lambda: done([claim("a")]), "succeeded", ""),
        (lambda: complete([claim("a")]), "succeeded", ""),
        (lambda: revoke("a"), "cancelled", ""),
        (lambda: archive([claim("a")]), "archived", ""),
        (lambda: archive_with_error("a"), "archived", "ValueError: no"),
        (lambda: poison("a"), "archived", "ValueError: no"),
        (
            lambda: quarantine("default", claim("a"), reason="bad", max_size=9, cutoff=CUTOFF, now=NOW),
            "archived",
            "",
        ),
    ],
    ids=["done", "complete", "revoke", "archive", "archive with error", "poison", "quarantine"],
)
def test_the_script_that_ends_an_attempt_for_good_writes_the_end(
    perform: Perform, tasks: Tasks, outbox: Any, end: Any, outcome: str, error: str
) -> None:
    """In the same call, and only for the task with a callback; the settler gets the entry at once."""
    tasks.active("a", extra=FINISHED)
    tasks.active("b")

    settled = perform(end())

    assert [told("a", outcome, error)] == outbox()
    assert [told("a", outcome, error)] == [
        tuple(decode_ending(one.entry).arguments.values()) for one in settled.endings
    ]
    assert frozenset() == settled.refused


@pytest.mark.parametrize("settle", [done, complete, archive])
def test_an_attempt_that_lost_its_task_tells_nothing(
    perform: Perform, tasks: Tasks, outbox: Any, settle: Any
) -> None:
    """The attempt that has the task tells its end."""
    tasks.active("a", "b", token="other/1", extra=FINISHED)

    settled = perform(settle([claim("a"), claim("b")]))

    assert [] == outbox()
    assert ({"a", "b"}, ()) == (settled.refused, settled.endings)


@pytest.mark.parametrize("settle", [retry, requeue])
def test_a_task_that_will_run_again_has_not_ended(
    perform: Perform, tasks: Tasks, outbox: Any, settle: Any
) -> None:
    """Retries, snoozes and returns to the queue are told to no callback."""
    tasks.active("a", extra=FINISHED)

    perform(settle([claim("a")]))

    assert [] == outbox()
    assert FINISHED["x:finished"] == tasks.fields("a")["x:finished"]


def test_a_settle_that_is_resent_tells_the_end_once(perform: Perform, tasks: Tasks, outbox: Any) -> None:
    """The second run finds the task settled, and writes nothing."""
    tasks.active("a", extra=FINISHED)

    perform(done([claim("a")]))
    again = perform(done([claim("a")]))

    assert [told("a", "succeeded")] == outbox()
    assert () == again.endings


def test_an_outbox_of_a_wrong_type_stops_the_settle_before_it_writes(
    damage_allowed: None, perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """An end and its entry are written together, or neither is."""
    tasks.active("a", extra=FINISHED)
    redis_client.set(tasks.keys.outbox, "text")

    for plan in (done([claim("a")]), complete([claim("a")]), archive([claim("a")]), poison("a")):
        with pytest.raises(Exception, match="WRONGTYPE"):
            perform(plan)

    assert ["a"] == tasks.ids("active")


@pytest.mark.parametrize(
    ("act", "outcome"),
    [
        (lambda ids: archive_tasks("default", ids, limits=LIMITS, now=NOW), "archived"),
        (lambda ids: delete_tasks("default", ids), "deleted"),
        (lambda ids: archive_step(ActStep("o", 1), "default", ids, "", limits=LIMITS, now=NOW), "archived"),
        (lambda ids: delete_step(ActStep("o", 1), "default", ids, ""), "deleted"),
        (lambda ids: set_aside_step(ActStep("o", 1), "default", ids, ""), "deleted"),
    ],
    ids=["archive", "delete", "archive step", "delete step", "set aside"],
)
def test_an_act_by_hand_enqueues_the_callback(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, outbox: Any, act: Any, outcome: str
) -> None:
    """Also in an operation on many tasks; what has ended before is not told again."""
    tasks.put(TaskState.PENDING, "a", extra=FINISHED)
    tasks.pending("b")
    tasks.put(TaskState.COMPLETED, "c", extra=FINISHED)

    perform(act(["a", "b", "c"]))

    assert [] == outbox()
    assert [told("a", outcome)] == read_callbacks(redis_client)


def read_callbacks(redis_client: RedisClient, queue: str = "reports") -> list[tuple[str, ...]]:
    """Return the arguments of the callbacks that wait in a queue."""
    waiting = Tasks(redis_client, queue)
    messages = [decode_task_message(waiting.fields(one)["msg"]) for one in waiting.ids("pending")]
    assert {"report:ready"} >= {message.type for message in messages}
    return [tuple(json.loads(message.payload).values()) for message in messages]


def test_a_callback_has_the_options_of_its_declaration(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """They travel in the hash of the task, since who ends it may not know the app."""
    tasks.active("a", extra=FINISHED)

    settled = perform(done([claim("a")]))
    perform(deliver_endings("default", settled.endings, now=NOW))

    waiting = Tasks(redis_client, "reports")
    [task_id] = waiting.ids("pending")
    message = decode_task_message(waiting.fields(task_id)["msg"])
    assert (3, 20, 60) == (message.retry, message.timeout, message.retention)
    assert "x:finished" not in waiting.fields(task_id)
    assert redis_client.sismember("asynq:queues", "reports")


def test_an_end_that_is_delivered_twice_is_told_once(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Also when the callback has run and is gone: for an hour Redis remembers its id."""
    tasks.active("a", extra=FINISHED)
    settled = perform(done([claim("a")]))
    waiting = Tasks(redis_client, "reports")

    perform(deliver_endings("default", settled.endings, now=NOW))
    perform(delete_tasks("reports", waiting.ids("pending")))
    perform(deliver_endings("default", settled.endings, now=NOW))

    assert [] == waiting.ids("pending")


def test_a_task_that_ends_again_is_told_again(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """An archived task that was run by hand has two ends, with two addresses."""
    tasks.active("a", extra=FINISHED)
    first = perform(archive([claim("a")]))
    perform(run_tasks("default", ["a"], now=NOW))
    perform(archive_tasks("default", ["a"], limits=LIMITS, now=NOW))

    perform(deliver_endings("default", first.endings, now=NOW))

    assert [told("a", "archived")] * 2 == read_callbacks(redis_client)


def test_a_task_with_the_id_of_an_earlier_one_is_told_too(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Each enqueue has a random number of its own in the field."""
    callback = Callback("report:ready", "reports")
    for _ in range(2):
        task = Task("email:deliver", b"{}", task_id="a", on_finished=callback)
        [run] = split_runs([compose(task, {}, now=NOW)])
        perform(registered(enqueue_run(run, now=NOW), "default"))
        perform(delete_tasks("default", ["a"]))

    assert [told("a", "deleted")] * 2 == read_callbacks(redis_client)


def test_a_deletion_that_is_undone_can_end_again(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """The callback hears of the deletion, and later of the real end."""
    tasks.put(TaskState.PENDING, "a", extra=FINISHED)

    perform(set_aside_step(ActStep("o", 1), "default", ["a"], ""))
    perform(undo_step(ActStep("u", 1), "default", ["a"], "o"))
    perform(delete_tasks("default", ["a"]))

    assert [told("a", "deleted")] * 2 == read_callbacks(redis_client)


def test_the_removal_of_a_queue_tells_the_ends_of_its_tasks(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """After the removal: a callback may belong into this very queue, which it makes again."""
    tasks.put(TaskState.PENDING, "a", extra=FINISHED)
    tasks.put(TaskState.COMPLETED, "c", extra=FINISHED)

    assert 2 == perform(remove_queue("default", force=True, progress=None))

    assert [told("a", "deleted")] == read_callbacks(redis_client)
    assert not redis_client.exists(tasks.keys.outbox)


def test_old_ends_are_found_by_their_age(perform: Perform, redis_client: RedisClient, tasks: Tasks) -> None:
    """New ones are left to the server that settled the task."""
    tasks.active("a", extra=FINISHED)
    perform(done([claim("a")]))

    assert [] == perform(list_endings("default", seconds=60))
    assert 1 == len(perform(list_endings("default", seconds=0)))


def test_an_entry_that_cannot_be_decoded_stays(
    damage_allowed: None, perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """It stops no other; the doctor reports it."""
    tasks.active("a", extra=FINISHED)
    perform(done([claim("a")]))
    bad = {b"1": b"", b"2": b"7:enqueue,", b"3": b"999999999999:x,", b"4": b"9:workflows,1:1,", b"5": b"1:a;"}
    redis_client.hset(tasks.keys.outbox, mapping=bad)

    found = perform(list_endings("default", seconds=0))
    delivered = perform(deliver_endings("default", found, now=NOW))

    assert (6, 1) == (len(found), delivered)
    assert bad.keys() == redis_client.hgetall(tasks.keys.outbox).keys()
    assert 0 == perform(deliver_endings("default", [StoredEnding(b"1", b"")], now=NOW))
