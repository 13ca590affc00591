"""Firing ticks, and the records of schedulers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.schedules import (
    EntryTicks,
    Fired,
    begin_entries,
    clear_scheduler_entries,
    clear_scheduler_history,
    fire,
    forget_entries,
    list_enqueue_events,
    list_schedulers,
    record_enqueue_event,
    write_scheduler_entries,
)
from pyasynq._wire.messages import SchedulerEnqueueEvent, SchedulerEntry
from pyasynq.errors import DuplicateTaskError, RedisReplyError
from pyasynq.task import EnqueueResult, EnqueueStatus, TaskState
from tests.contract.enqueueing import composed
from tests.factories import NOW, PENDING_SINCE, Tasks, registered
from tests.fix_broker import BlockingPerformer
from tests.waiting import set_to

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

MOMENT = datetime(2033, 5, 18, 3, 33, 20, 500_000, tzinfo=UTC)
SCHEDULER, HISTORY = "asynq:schedulers:{s}", "asynq:scheduler_history:e"
TICKS = "asynq:{default}:x:ticks"


def entry(entry_id: str, **changes: Any) -> SchedulerEntry:
    """Return an entry as schedulers show it."""
    values: dict[str, Any] = {
        "id": entry_id,
        "spec": "@every 30s",
        "task_type": "t",
        "task_payload": b"p",
        "enqueue_options": ('Queue("low")',),
        "next_enqueue_time": MOMENT,
        "prev_enqueue_time": None,
    }
    return SchedulerEntry(**(values | changes))


def event(task_id: str = "x", second: int = 0) -> SchedulerEnqueueEvent:
    """Return an enqueue, this many seconds after the first."""
    return SchedulerEnqueueEvent(task_id=task_id, enqueue_time=MOMENT + timedelta(seconds=second))


def fire_tick(
    tick: int = 100,
    task_id: str = "a",
    *,
    entry_id: str = "e",
    **options: Any,
) -> Plan[Fired]:
    """Fire a tick whose task has that id and options."""
    task = composed(task_id, **options)
    return registered(fire(task, entry_id=entry_id, tick=tick, now=NOW), task.settings.queue)


def status(fired: Fired) -> str | None:
    """Return the word for the outcome of a task; None for a tick that was fired before."""
    return None if fired.result is None else fired.result.status.value


def test_h18_a_tick_enqueues_its_task(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """As a client would, and the tick is remembered in the slot of the queue."""
    assert Fired(EnqueueResult(EnqueueStatus.ENQUEUED, "a", "default"), 100) == perform(fire_tick())
    assert ["a"] == tasks.ids("pending")
    fields = tasks.fields("a")
    assert (b"pending", PENDING_SINCE) == (fields["state"], fields["pending_since"])
    assert {"msg", "state", "pending_since"} == fields.keys()
    assert composed("a").encoded == fields["msg"]
    assert {b"e": b"100"} == redis_client.hgetall(TICKS)
    assert {b"default"} == redis_client.smembers("asynq:queues")


def test_h18_a_tick_whose_lock_is_not_a_string_is_not_lost(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """The script is broken off before it has written anything: the tick is fired when the key is mended."""
    lock = composed("a", unique=30).lock
    redis_client.rpush(lock, "x")
    with pytest.raises(RedisReplyError, match="WRONGTYPE"):
        perform(fire_tick(unique=30))
    assert 0 == redis_client.exists(TICKS)
    redis_client.delete(lock)
    assert "enqueued" == status(perform(fire_tick(unique=30)))
    assert ["a"] == tasks.ids("pending")


@pytest.mark.parametrize("tick", [100, 99])
def test_h18_a_tick_is_fired_once_also_after_its_task_is_done(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, tick: int
) -> None:
    """The second scheduler, with the same tick or an earlier one, enqueues nothing."""
    perform(fire_tick(100))
    redis_client.delete(tasks.keys.task("a"), tasks.keys.pending)
    assert Fired(None, 100) == perform(fire_tick(tick, "b"))
    assert [] == tasks.ids("pending")
    assert {b"e": b"100"} == redis_client.hgetall(TICKS)


def test_h18_a_later_tick_is_fired(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """Numbers are compared, not texts."""
    perform(fire_tick(99))
    assert 100 == perform(fire_tick(100, "b")).last
    assert ["a", "b"] == tasks.ids("pending")
    assert {b"e": b"100"} == redis_client.hgetall(TICKS)


def test_h18_entries_have_ticks_of_their_own(perform: Perform, tasks: Tasks) -> None:
    """Two entries may tick at the same time."""
    perform(fire_tick(entry_id="e"))
    perform(fire_tick(task_id="b", entry_id="f"))
    assert ["a", "b"] == tasks.ids("pending")


def test_h18_a_tick_may_enqueue_a_task_for_later(perform: Perform, tasks: Tasks) -> None:
    """Its process time counts from when the tick is fired."""
    assert "enqueued" == status(perform(fire_tick(process_in=60)))
    assert {"a": NOW.plus(60).ceiling} == tasks.scores("scheduled")
    assert {"msg": composed("a", process_in=60).encoded, "state": b"scheduled"} == tasks.fields("a")
    assert [] == tasks.ids("pending")


def test_h18_a_tick_may_enqueue_a_member_of_a_group(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Which the aggregator finds, since the group is listed."""
    assert "enqueued" == status(perform(fire_tick(group="g")))
    assert [(b"a", NOW.ceiling)] == redis_client.zrange(tasks.keys.group("g"), 0, -1, withscores=True)
    assert {b"g"} == redis_client.smembers(tasks.keys.groups)
    sent = composed("a", group="g").encoded
    assert {"msg": sent, "state": b"aggregating", "group": b"g"} == tasks.fields("a")


def test_h18_a_member_of_a_group_may_be_for_later(perform: Perform, tasks: Tasks) -> None:
    """It joins when it is due."""
    assert "enqueued" == status(perform(fire_tick(group="g", process_in=60)))
    assert {"a": NOW.plus(60).ceiling} == tasks.scores("scheduled")
    sent = composed("a", group="g", process_in=60).encoded
    assert {"msg": sent, "state": b"scheduled", "x:group": b"g"} == tasks.fields("a")


@pytest.mark.parametrize("options", [{}, {"process_in": 60}, {"group": "g"}])
def test_h18_a_unique_task_takes_its_lock_with_the_tick(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, options: dict[str, Any]
) -> None:
    """The limits apply to pending and to scheduled tasks."""
    wanted = composed("a", unique=30, **options)
    assert "enqueued" == status(perform(fire_tick(unique=30, **options)))
    lock = wanted.lock
    assert lock.encode() == tasks.fields("a")["unique_key"]
    assert (b"a", set_to(wanted.lock_ttl)) == (redis_client.get(lock), redis_client.ttl(lock))


@pytest.mark.parametrize("options", [{}, {"process_in": 60}])
def test_h18_a_tick_whose_lock_is_held_counts_as_fired(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, options: dict[str, Any]
) -> None:
    """Otherwise the other schedulers would go on trying until the lock is free."""
    perform(fire_tick(unique=30))
    assert "duplicate" == status(perform(fire_tick(101, "b", unique=30, **options)))
    assert {b"e": b"101"} == redis_client.hgetall(TICKS)
    assert (["a"], []) == (tasks.ids("pending"), tasks.ids("scheduled"))
    assert {} == tasks.fields("b")


@pytest.mark.parametrize("options", [{}, {"process_in": 60}, {"unique": 30}, {"group": "g"}])
def test_h18_a_tick_whose_task_id_exists_counts_as_fired(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, options: dict[str, Any]
) -> None:
    """The task that is there is left alone, and no lock is left behind."""
    tasks.pending("a")
    before = tasks.fields("a")
    assert "conflict" == status(perform(fire_tick(**options)))
    assert before == tasks.fields("a")
    assert (["a"], []) == (tasks.ids("pending"), tasks.ids("scheduled"))
    assert {b"e": b"100"} == redis_client.hgetall(TICKS)
    assert 0 == redis_client.exists(composed("a", unique=30).lock)


@pytest.mark.parametrize("options", [{}, {"process_in": 60}, {"unique": 30}, {"group": "g"}])
def test_w25_a_tick_that_is_sent_again_is_its_own(
    redis_client: RedisClient, tasks: Tasks, options: dict[str, Any]
) -> None:
    """After a lost reply a task stored exactly as it was sent counts as enqueued, once."""
    perform = BlockingPerformer(redis_client, replay=True)
    assert "enqueued" == status(perform(fire_tick(**options)))
    found = tasks.ids("pending") + tasks.ids("scheduled")
    assert ["a"] == (found or [task.decode() for task in redis_client.zrange(tasks.keys.group("g"), 0, -1)])


def test_w25_a_tick_sent_again_is_not_taken_for_that_of_another(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """Another scheduler fired it: with a task of another content, or in another call of the same task."""
    perform(fire_tick(payload=b"theirs"))
    again = BlockingPerformer(redis_client, replay=True)
    assert Fired(None, 100) == again(fire_tick())
    perform(fire_tick(101, "b"))
    assert Fired(None, 101) == again(fire_tick(100))
    assert ["a", "b"] == tasks.ids("pending")


def test_a_tick_that_is_not_sent_again_is_never_its_own(perform: Perform) -> None:
    """Two schedulers may make the same message of a tick; one of them has fired it."""
    perform(fire_tick())
    assert Fired(None, 100) == perform(fire_tick())


def test_h18_an_entry_counts_from_when_it_was_first_seen(perform: Perform, redis_client: RedisClient) -> None:
    """So that all schedulers, also those that start later, agree on the ticks of `@every`."""
    perform(fire_tick(150, entry_id="f"))
    begun = perform(begin_entries("default", ["e", "f"], now=NOW))
    assert [EntryTicks(None, NOW.seconds), EntryTicks(150, NOW.seconds)] == begun.ticks
    assert NOW == begun.redis_now
    begun = perform(begin_entries("default", ["f", "e"], now=NOW.plus(60)))
    assert [EntryTicks(150, NOW.seconds), EntryTicks(None, NOW.seconds)] == begun.ticks
    since = str(NOW.seconds).encode()
    assert {b"e:since": since, b"f:since": since, b"f": b"150"} == redis_client.hgetall(TICKS)


def test_more_entries_than_one_call_takes_begin(perform: Perform) -> None:
    """A call takes a thousand."""
    begun = perform(begin_entries("default", [f"{number}" for number in range(1_001)], now=NOW))
    assert [EntryTicks(None, NOW.seconds)] * 1_001 == begun.ticks


def test_without_a_time_the_clock_of_redis_counts(perform: Perform, redis_client: RedisClient) -> None:
    """Schedulers on hosts with wrong clocks agree."""
    before = redis_client.time()[0]
    begun = perform(begin_entries("default", ["e"]))
    assert before <= begun.redis_now.seconds <= redis_client.time()[0]
    assert begun.redis_now.seconds == begun.ticks[0].since


def test_entries_without_ticks_for_long_are_forgotten(perform: Perform, redis_client: RedisClient) -> None:
    """Unless a scheduler has them, had a tick of them, or saw them first, since then."""
    known = {"old": 9, "old:since": 8, "new:since": 10, "ticked": 10, "ticked:since": 1, "rare:since": 1}
    redis_client.hset(TICKS, mapping=known | {"never:since": 9})
    assert 2 == perform(forget_entries("default", before=10, keep={"rare"}))
    assert {b"new:since", b"ticked", b"ticked:since", b"rare:since"} == set(redis_client.hkeys(TICKS))


def test_w26_many_entries_are_forgotten_in_several_calls(perform: Perform, redis_client: RedisClient) -> None:
    """However many there are."""
    redis_client.hset(TICKS, mapping={f"{number}": 1 for number in range(3_000)})
    assert 3_000 == perform(forget_entries("default", before=10, keep=()))
    assert 0 == redis_client.exists(TICKS)


def test_a_scheduler_shows_its_entries(perform: Perform, redis_client: RedisClient) -> None:
    """Pushed from the left, so stored in reverse, as Asynq does."""
    perform(write_scheduler_entries("s", [entry("a"), entry("b")], now=NOW))
    assert [entry("b").encode(), entry("a").encode()] == redis_client.lrange(SCHEDULER, 0, -1)
    assert set_to(20) == redis_client.ttl(SCHEDULER)
    lapses = redis_client.zrange("asynq:schedulers", 0, -1, withscores=True)
    assert [(SCHEDULER.encode(), NOW.ceiling + 20)] == lapses


def test_a_heartbeat_replaces_the_entries(perform: Perform, redis_client: RedisClient) -> None:
    """However many there were."""
    perform(write_scheduler_entries("s", [entry("a"), entry("b")], now=NOW))
    perform(write_scheduler_entries("s", [entry("c")], ttl=5, now=NOW))
    assert [entry("c").encode()] == redis_client.lrange(SCHEDULER, 0, -1)
    assert set_to(5) == redis_client.ttl(SCHEDULER)
    perform(write_scheduler_entries("s", [], now=NOW))
    assert 0 == redis_client.exists(SCHEDULER)
    assert 1 == redis_client.zcard("asynq:schedulers")


def test_more_entries_than_one_call_takes_are_shown(perform: Perform, redis_client: RedisClient) -> None:
    """The entries come in order, even if a call is sent twice."""
    entries = [entry(f"{number}") for number in range(2_001)]
    perform(write_scheduler_entries("s", entries, now=NOW))
    BlockingPerformer(redis_client, replay=True)(write_scheduler_entries("s", entries, now=NOW))
    [record] = perform(list_schedulers(NOW))
    assert entries == record.entries


def test_schedulers_are_listed_until_they_lapse(perform: Perform, redis_client: RedisClient) -> None:
    """Records that cannot be decoded are left out."""
    perform(write_scheduler_entries("s", [entry("a"), entry("b")], now=NOW))
    perform(write_scheduler_entries("t", [entry("c")], now=NOW.plus(-60)))
    redis_client.lpush(SCHEDULER, b"", b"\xff")
    [record] = perform(list_schedulers(NOW))
    assert ("s", [entry("a"), entry("b")]) == record


def test_a_scheduler_that_closes_is_gone(perform: Perform, redis_client: RedisClient) -> None:
    """At once."""
    perform(write_scheduler_entries("s", [entry("a")], now=NOW))
    perform(clear_scheduler_entries("s"))
    assert [] == redis_client.keys("*")


def test_enqueues_are_remembered_the_newest_first(perform: Perform, redis_client: RedisClient) -> None:
    """Times are whole seconds, as in Asynq."""
    for second, task_id in enumerate("abc"):
        perform(record_enqueue_event("e", event(task_id, second)))
    second = int(MOMENT.timestamp())
    scores = dict(redis_client.zrange(HISTORY, 0, -1, withscores=True))
    assert {event(task_id, n).encode(): second + n for n, task_id in enumerate("abc")} == scores
    assert [event("c", 2), event("b", 1)] == perform(list_enqueue_events("e", 0, 1))
    assert [event("a", 0)] == perform(list_enqueue_events("e", 2, 9))


def test_w26_a_history_has_an_end(perform: Perform, redis_client: RedisClient) -> None:
    """Ninety days after its last enqueue, or when it is cleared."""
    perform(record_enqueue_event("e", event()))
    assert set_to(90 * 86_400) == redis_client.ttl(HISTORY)
    perform(record_enqueue_event("e", event("y"), ttl=100))
    assert set_to(100) == redis_client.ttl(HISTORY)
    perform(clear_scheduler_history("e"))
    assert [] == redis_client.keys("*")


def test_a_history_keeps_a_thousand_enqueues(perform: Perform, redis_client: RedisClient) -> None:
    """The newest; an event that is sent twice pushes out only one."""
    redis_client.zadd(HISTORY, {f"{number}": number for number in range(999)})
    perform(record_enqueue_event("e", event("a")))
    assert 1_000 == redis_client.zcard(HISTORY)
    BlockingPerformer(redis_client, replay=True)(record_enqueue_event("e", event("b")))
    assert 1_000 == redis_client.zcard(HISTORY)
    assert b"1" == redis_client.zrange(HISTORY, 0, 0)[0]
    assert [event("b"), event("a")] == perform(list_enqueue_events("e", 0, 1))


def test_an_event_needs_a_time() -> None:
    """It is the event's score."""
    nothing = SchedulerEnqueueEvent(task_id="x", enqueue_time=None)
    with pytest.raises(ValueError, match="no time"):
        next(record_enqueue_event("e", nothing))


@pytest.mark.parametrize(
    ("rule", "word", "task_id"),
    [("ignore", "ignored", "b"), ("return_existing", "existing", "a"), ("replace_payload", "replaced", "a")],
)
def test_a_tick_obeys_the_rules_of_its_task(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, rule: str, word: str, task_id: str
) -> None:
    """The tick counts as fired with any outcome; the rest is as for a client."""
    options: dict[str, Any] = {"unique": 30, "unique_key": "k", "on_duplicate": rule}
    assert "enqueued" == status(perform(fire_tick(**options)))
    fired = perform(fire_tick(101, "b", **options, headers={"tick": "101"}))
    assert fired.result is not None
    assert (word, task_id, None) == (fired.result.status.value, fired.result.task_id, fired.result.error)
    assert {b"e": b"101"} == redis_client.hgetall(TICKS)
    assert ["a"] == tasks.ids("pending")
    assert (rule == "replace_payload") == (b"101" in tasks.fields("a")["msg"])


@pytest.mark.parametrize(
    ("rule", "word"), [("raise", "duplicate"), ("replace_payload", "duplicate"), ("ignore", "ignored")]
)
def test_a_tick_whose_lock_is_held_by_a_running_task(
    perform: Perform, tasks: Tasks, rule: str, word: str
) -> None:
    """The error names the holder."""
    options: dict[str, Any] = {"unique": 30, "unique_key": "k"}
    tasks.active("a", unique_key=tasks.keys.own_unique("k"))
    fired = perform(fire_tick(100, "b", **options, on_duplicate=rule))
    assert word == status(fired)
    assert fired.result is not None
    if isinstance(fired.result.error, DuplicateTaskError):
        assert "a" == fired.result.error.holder
        assert (rule == "replace_payload") == ("not one of its type that waits" in str(fired.result.error))


def test_h10_a_tick_may_replace_a_finished_task(perform: Perform, tasks: Tasks) -> None:
    """The tick has a task id of its own, so it can meet a finished task with this id."""
    tasks.put(TaskState.ARCHIVED, "a")
    assert "conflict" == status(perform(fire_tick(100, "a")))
    assert "enqueued" == status(perform(fire_tick(101, "a", on_conflict="replace_finished")))
    assert (["a"], []) == (tasks.ids("pending"), tasks.ids("archived"))


def test_a_last_tick_in_the_future_does_not_keep_a_tick_from_being_fired(
    perform: Perform, redis_client: RedisClient, tasks: Tasks
) -> None:
    """It is replaced, so that the next scheduler knows that this tick was fired. (D12)"""
    tick = NOW.seconds
    redis_client.hset(TICKS, "e", tick + 301)
    assert ("enqueued", tick) == (status(fired := perform(fire_tick(tick))), fired.last)
    assert Fired(None, tick) == perform(fire_tick(tick, "b"))
    assert ["a"] == tasks.ids("pending")


@pytest.mark.parametrize(("tick", "ahead"), [(0, 300), (900, 0), (900, 300)])
def test_a_last_tick_up_to_five_minutes_after_now_or_the_tick_is_believed(
    perform: Perform, redis_client: RedisClient, tasks: Tasks, tick: int, ahead: int
) -> None:
    """After a fail-over the clock of Redis may be behind, and the estimate of a scheduler ahead of it.

    Defect D12.
    """
    last = NOW.seconds + tick + ahead
    redis_client.hset(TICKS, "e", last)
    assert Fired(None, last) == perform(fire_tick(NOW.seconds + tick))
    assert [] == tasks.ids("pending")


def test_a_new_entry_takes_over_the_ticks_of_the_one_that_it_replaces(
    perform: Perform, redis_client: RedisClient
) -> None:
    """Fails if the script no longer calls HSET.

    The old ones stay, for schedulers that still have the old entry. (D60)
    """
    old = {"old": 20, "old:since": 7}
    redis_client.hset(TICKS, mapping=old)
    begun = perform(begin_entries("default", ["new"], predecessors={"new": "old"}, now=NOW))
    assert [EntryTicks(20, 7)] == begun.ticks
    expected = {**old, "new": 20, "new:since": 7}
    assert expected == {field.decode(): int(tick) for field, tick in redis_client.hgetall(TICKS).items()}


def test_an_entry_that_is_known_keeps_its_own_ticks(perform: Perform, redis_client: RedisClient) -> None:
    """Another scheduler has begun it before. (D60)"""
    redis_client.hset(TICKS, mapping={"old": 20, "old:since": 7, "new:since": 9, "late": 11})
    predecessors = {"new": "old", "late": "old"}
    begun = perform(begin_entries("default", ["new", "late"], predecessors=predecessors, now=NOW))
    assert [EntryTicks(None, 9), EntryTicks(11, NOW.seconds)] == begun.ticks


def test_an_entry_whose_predecessor_is_unknown_counts_from_now(perform: Perform) -> None:
    """Such an entry starts like one without a predecessor. (D60)"""
    begun = perform(begin_entries("default", ["new"], predecessors={"new": "old"}, now=NOW))
    assert [EntryTicks(None, NOW.seconds)] == begun.ticks
    assert [EntryTicks(None, NOW.seconds)] == perform(
        begin_entries("default", ["new"], now=NOW.plus(9))
    ).ticks


def test_a_predecessor_that_was_never_fired_hands_on_its_beginning(
    perform: Perform, redis_client: RedisClient
) -> None:
    """The new entry gets the time at which the old one was first seen, and has no last tick. (D60)"""
    redis_client.hset(TICKS, "old:since", 7)
    begun = perform(begin_entries("default", ["new"], predecessors={"new": "old"}, now=NOW))
    assert [EntryTicks(None, 7)] == begun.ticks
    assert not redis_client.hexists(TICKS, "new")
