"""Values in Redis from other programs stop no script: the keys next to them are processed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import redis

from pyasynq import App, TaskState, testing
from pyasynq._broker.cancellation import request_cancelation
from pyasynq._broker.dequeue import DequeueRules, DequeueTerms, dequeue, find_dequeued
from pyasynq._broker.inspecting.queues import count_tasks
from pyasynq._broker.leases import RecoverTask, list_expired, list_unleased, recover
from pyasynq._broker.locks import HeldLock, renew_locks
from pyasynq._broker.schedules import begin_entries, forget_entries
from pyasynq.limits import Queue
from tests.contract import settling
from tests.contract.test_schedules import fire_tick
from tests.factories import NOW, TOKEN, claim, message_bytes

if TYPE_CHECKING:
    from tests.factories import Tasks
    from tests.fix_broker import Perform

pytestmark = pytest.mark.usefixtures("damage_allowed")
HOSTILE = pytest.mark.parametrize("hostile", [b"many", b"\xff", b""])


@HOSTILE
def test_a_count_of_crashes_that_is_not_a_number_does_not_hide_an_expired_task(
    perform: Perform, tasks: Tasks, hostile: bytes
) -> None:
    """Its task is listed too, without crashes: a list that ended there would stop all recovery."""
    tasks.active("damaged", lease=NOW.seconds - 60, extra={"x:crashes": hostile, "x:lapses": hostile})
    tasks.active("sound", lease=NOW.seconds - 50)
    tasks.active("bare", lease=None, extra={"x:crashes": hostile, "x:lapses": hostile})
    expired: Any = perform(list_expired("default", now=NOW))
    assert [("damaged", 0), ("sound", 0)] == [(task.id, task.crashes) for task in expired]
    assert ["bare"] == [task.id for task in perform(list_unleased("default"))]
    assert {"damaged", "sound", "bare"} == {one.id for one in perform(find_dequeued("default", token=TOKEN))}


@HOSTILE
def test_a_task_whose_count_of_crashes_is_not_a_number_is_recovered_with_one(
    perform: Perform, tasks: Tasks, hostile: bytes
) -> None:
    """So are those that are recovered by the same call."""
    lease = NOW.seconds - 60
    tasks.active("damaged", lease=lease, extra={"x:crashes": hostile})
    tasks.active("sound", lease=lease, crashes=1)
    seen = [RecoverTask(name, TOKEN, lease) for name in ("damaged", "sound")]
    recovered = perform(recover("default", seen, now=NOW))
    assert {("damaged", 1), ("sound", 2)} == {tuple(one) for one in recovered}
    assert [b"1", b"2"] == [tasks.fields(name)["x:crashes"] for name in ("damaged", "sound")]


@HOSTILE
def test_the_tick_of_an_entry_that_is_not_a_number_is_fired(
    perform: Perform, redis_client: redis.Redis, hostile: bytes
) -> None:
    """The entry is treated as one that has never fired."""
    redis_client.hset("asynq:{default}:x:ticks", mapping={"e": hostile, "e:since": hostile})
    assert [(None, 0)] == perform(begin_entries("default", ["e"])).ticks
    assert 100 == perform(fire_tick(100, "one", entry_id="e")).last
    assert b"100" == redis_client.hget("asynq:{default}:x:ticks", "e")


def test_ticks_that_are_not_numbers_are_forgotten(perform: Perform, redis_client: redis.Redis) -> None:
    """They are older than everything."""
    redis_client.hset("asynq:{default}:x:ticks", mapping={"old": "x", "new": "150", "new:since": ""})
    perform(forget_entries("default", before=100, keep=[]))
    assert {b"new", b"new:since"} == set(redis_client.hkeys("asynq:{default}:x:ticks"))


@HOSTILE
def test_stored_limits_that_are_not_numbers_are_none(
    perform: Perform, redis_client: redis.Redis, tasks: Tasks, hostile: bytes
) -> None:
    """The limits of the server apply, and buckets start full again."""
    tasks.pending("one", "two")
    redis_client.hset(
        "asynq:{default}:x:limits", mapping={"rate": hostile, "period": hostile, "concurrency": "5"}
    )
    redis_client.hset("asynq:{default}:x:bucket", mapping={"full_at": hostile, "turn": hostile})
    terms = DequeueTerms(DequeueRules.LIMITED, Queue(rate=1, burst=1).limits)
    taken = perform(dequeue("default", limit=9, token="t/1", terms=terms, now=NOW))
    assert ["one"] == [task.id for task in taken.tasks]
    again = perform(dequeue("default", limit=9, token="t/2", terms=terms, now=NOW))
    assert [] == again.tasks


def test_a_turn_that_is_not_a_number_is_given_again(
    perform: Perform, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """To the first that waits for a token."""
    tasks.pending("one", "two")
    terms = DequeueTerms(DequeueRules.LIMITED, Queue(rate=1, burst=1).limits)
    perform(dequeue("default", limit=1, token="t/1", terms=terms, now=NOW))
    redis_client.hset("asynq:{default}:x:bucket", "turn", "soon")
    waits = perform(dequeue("default", limit=1, token="t/2", terms=terms, now=NOW)).wait
    assert 0 < waits <= 2


def test_requests_to_cancel_that_cannot_be_read_are_cleared_away(
    perform: Perform, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """The next request removes the entries that cannot be read."""
    tasks.active("one")
    redis_client.hset("asynq:{default}:x:cancel", "damaged", "now!")
    perform(request_cancelation("one", "default", "retry", now=NOW))
    assert [b"one"] == redis_client.hkeys("asynq:{default}:x:cancel")


@HOSTILE
def test_a_total_that_is_not_a_number_starts_again(
    perform: Perform, redis_client: redis.Redis, tasks: Tasks, hostile: bytes
) -> None:
    """The task is settled."""
    tasks.active("one")
    redis_client.set("asynq:{default}:processed", hostile)
    perform(settling.done([claim("one")]))
    assert 1 == tasks.counts()["processed"]


@HOSTILE
def test_a_pending_time_that_is_not_a_number_gives_no_latency(
    perform: Perform, redis_client: redis.Redis, tasks: Tasks, hostile: bytes
) -> None:
    """The queue is described, only its latency is missing."""
    tasks.pending("one")
    redis_client.hset("asynq:{default}:t:one", "pending_since", hostile)
    assert 0 == perform(count_tasks("default", NOW)).latency


def test_a_lock_rule_of_very_many_digits_is_the_longest_there_is(
    perform: Perform, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """Redis refuses a longer one with an error, which would end the script."""
    lock = "asynq:{default}:unique:x"
    tasks.active("one", unique_key=lock, extra={"x:unique_ttl": "9" * 400})
    perform(renew_locks("default", [HeldLock("one", lock)], lease_seconds=30))
    assert redis_client.ttl(lock) > 10**11


def test_a_lock_rule_without_a_lock_hides_no_task(perform: Perform, tasks: Tasks) -> None:
    """On a cluster the empty key is in another slot than the queue."""
    tasks.put(TaskState.PENDING, "one", extra={"x:unique_ttl": "60"})
    taken = perform(dequeue("default", limit=1, token=TOKEN, now=NOW))
    assert ["one"] == [task.id for task in taken.tasks]


@pytest.mark.parametrize("crashed", [False, True])
def test_a_task_whose_id_is_not_utf8_is_quarantined_and_the_others_run(*, crashed: bool) -> None:
    """Whether a worker takes it, or finds it with a dead one."""
    app = App("redis://nowhere.invalid")
    ran: list[str] = []

    @app.task("sound")
    def sound() -> None:
        ran.append("sound")

    with testing.use(app) as kit, redis.Redis.from_url(kit.url) as client:
        message = message_bytes("x", type="sound")
        client.hset(b"asynq:{default}:t:\xff", mapping={"msg": message, "state": "pending"})
        client.lpush("asynq:{default}:pending", b"\xff")
        sound.enqueue_sync()
        if crashed:
            kit.crash_worker(tasks=2)
        kit.advance_sync(minutes=1)
        assert ["sound"] == ran
        assert [b"\xff"] == client.zrange("asynq:{default}:archived", 0, -1)
        [shown] = kit.inspector.list_tasks("default", TaskState.ARCHIVED)
        assert r"\xff" == shown.id
