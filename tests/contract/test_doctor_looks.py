"""How the doctor looks, and what it leaves alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.doctoring.counters import find_wrong_counters, raise_counter
from pyasynq._broker.doctoring.groups import mend_groups
from pyasynq._broker.doctoring.keys import expire_endless, look_at_lock, release_lock
from pyasynq._broker.doctoring.tasks import Settlement, judge, read_tasks, settle_damaged, walk
from pyasynq._broker.doctoring.ticks import reset_tick
from pyasynq._redis.plan import ScriptCall, ask
from pyasynq._wire.messages import SchedulerEntry
from pyasynq.doctor import Doctor, Finding, FindingKind, Severity
from pyasynq.doctor._findings import DESCRIPTIONS
from pyasynq.errors import InvalidOptionError, QueueNotFoundError
from pyasynq.task import TaskState
from tests.contract.damages import LOCK, OVER, PAST, put_server
from tests.contract.test_doctor import doctor_of, examine
from tests.contract.test_invariants import sound
from tests.factories import LEASE_SCORE, NOW, Tasks, message_bytes
from tests.run_async import run_async
from tests.snapshots import snapshot
from tests.waiting import set_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


pytestmark = pytest.mark.usefixtures("no_slow_scripts")
damaged = pytest.mark.usefixtures("damage_allowed")


def kinds(findings: list[Finding]) -> list[tuple[str, FindingKind]]:
    """Return queue and kind of each."""
    return [(one.queue, one.kind) for one in findings]


@damaged
@run_async
async def test_damage_repaired_between_the_two_looks_is_not_a_finding(
    redis_client: RedisClient, redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was a state that somebody was passing through."""
    tasks.pending("a")
    redis_client.rpush(tasks.keys.pending, "ghost")
    async with doctor_of(redis_url) as doctor:
        check, seen = doctor._check, []

        async def check_and_mend(*args: Any) -> Any:
            seen.append(await check(*args))
            redis_client.lrem(tasks.keys.pending, 0, "ghost")
            return seen[-1]

        monkeypatch.setattr(doctor, "_check", check_and_mend)
        assert [] == await doctor.examine()
    assert [FindingKind.GHOST] == [kind for _, kind, _ in seen[0]]
    assert {} == seen[1]


@damaged
def test_a_task_that_has_changed_since_it_was_judged_is_left_alone(
    redis_client: RedisClient, perform: Perform, tasks: Tasks
) -> None:
    """Whatever has changed: its hash, its places, or its lease."""
    changes: list[Callable[[], object]] = [
        lambda: redis_client.hset(tasks.keys.task("a"), "x:attempt", "server/2"),
        lambda: redis_client.hset(tasks.keys.task("a"), "msg", "other"),
        lambda: redis_client.hset(tasks.keys.task("a"), "unique_key", "other"),
        lambda: redis_client.zadd(tasks.keys.retry, {"a": 1}),
        lambda: redis_client.lpush(tasks.keys.active, "a"),
        lambda: redis_client.zadd(tasks.keys.lease, {"a": NOW.seconds}),
        lambda: redis_client.zrem(tasks.keys.lease, "a"),
        lambda: redis_client.delete(tasks.keys.task("a")),
    ]
    for change in changes:
        redis_client.flushall()
        tasks.active("a")
        [facts] = perform(judge("default", {b"a": b""}, now=NOW))
        change()
        before = snapshot(redis_client)
        settlement = Settlement(facts, b"", "archived", tasks.keys.archived)
        assert [] == perform(settle_damaged("default", [settlement], now=NOW))
        assert before == snapshot(redis_client)


def test_all_that_there_is_to_say_about_a_task_is_said(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Where it is, what its lease is, and what its hash holds."""
    tasks.active("active")
    tasks.active("over", lease=NOW.seconds)
    tasks.in_set("g", "1", "staged")
    suspects = {b"active": b"", b"over": b"", b"staged": b"", b"gone": b""}
    active, over, staged, gone = perform(judge("default", suspects, now=NOW))
    assert (b"asynq:{default}:active",) == active.places == over.places
    assert ("held", "over", "", "") == (active.lease, over.lease, staged.lease, gone.lease)
    assert (b"asynq:{default}:g:g:1",) == staged.places
    assert (True, False) == (staged.has_hash, gone.has_hash)
    assert (b"server/1", "active") == (active.attempt, active.state)


def test_a_task_is_settled_once_in_its_first_place(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """It keeps the first of several places in the list; the new lease holds for 30 s."""
    tasks.pending("a", "b", "c")
    redis_client.lpush(tasks.keys.pending, "a")
    tasks.put(TaskState.RETRY, "r")
    tasks.active("older")
    facts = perform(judge("default", {b"a": b"", b"r": b"", b"b": b""}, now=NOW))
    settlements = [
        Settlement(facts[0], b"", "pending", tasks.keys.pending),
        Settlement(facts[1], b"", "active", tasks.keys.active),
        Settlement(facts[2], b"", "scheduled", tasks.keys.scheduled, 7),
    ]
    assert [b"a", b"r", b"b"] == perform(settle_damaged("default", settlements, now=NOW))
    assert ["a", "c"] == tasks.ids("pending")
    assert ["older", "r"] == tasks.ids("active")
    assert {"r": LEASE_SCORE, "older": LEASE_SCORE} == tasks.scores("lease")
    assert {"b": 7} == tasks.scores("scheduled")


def test_what_is_put_somewhere_without_a_score_gets_that_of_the_present(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """As a whole second; a pending one is pending from now, unless it knows since when."""
    tasks.active("a", "b")
    facts = perform(judge("default", {b"a": b"", b"b": b""}, now=NOW))
    settlements = [
        Settlement(facts[0], b"", "retry", tasks.keys.retry),
        Settlement(facts[1], b"", "pending", tasks.keys.pending, reason="why"),
    ]
    perform(settle_damaged("default", settlements, now=NOW))
    assert {"a": NOW.ceiling} == tasks.scores("retry")
    assert b"2000000000250000000" == tasks.fields("b")["pending_since"]
    assert b"why" == tasks.fields("b")["x:trace"]
    assert "x:trace" not in tasks.fields("a")
    assert {} == tasks.scores("lease")


def test_pages_of_a_collection_are_walked_one_after_another(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Ids are only told where they cannot be asked for one by one."""
    tasks.pending("a", "b")
    tasks.put(TaskState.RETRY, "r")
    tasks.put(TaskState.AGGREGATING, "m", group="g")
    assert (2, [b"b", b"a"], []) == perform(walk("default", tasks.keys.pending, "pending", 0))
    assert (1, [b"a"], []) == perform(walk("default", tasks.keys.pending, "pending", 1))
    assert (1, [], []) == perform(walk("default", tasks.keys.retry, "retry", 0))
    assert (1, [b"m"], []) == perform(walk("default", tasks.keys.group("g"), "aggregating", 0, group="g"))
    assert (0, [], []) == perform(walk("default", tasks.keys.active, "active", 0))


def test_large_messages_are_read_a_few_at_a_time(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """No reply is much larger than 4 MB."""
    tasks.pending("a", "b", "c", payload=b"x" * 2_100_000)
    facts = perform(read_tasks("default", [b"a", b"b", b"c", b"gone"]))
    assert [b"a", b"b", b"c", b"gone"] == [one.id for one in facts]
    assert [True, True, True, False] == [len(one.message) > 2_000_000 for one in facts]


def test_one_message_is_read_however_large_and_others_as_far_as_they_fit(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Up to and with the last byte."""
    tasks.pending("a", "b", "c")
    call = next(read_tasks("default", [b"a", b"b", b"c"]))
    assert isinstance(call, ScriptCall)
    size = len(tasks.fields("a")["msg"])
    for most, expected in ((size - 1, 1), (2 * size - 1, 1), (2 * size, 2), (3 * size, 3)):
        args = (*call.args[:2], most, *call.args[3:])
        assert expected == perform(ask(call._replace(args=args)))[0]


def test_tasks_in_sorted_sets_are_told_from_those_that_are_not(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """Ids in lists are not reported."""
    states = (TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED)
    for state in states:
        tasks.put(state, state.value)
    tasks.put(TaskState.COMPLETED, "completed", completed_at=NOW.seconds - 60, retention=60)
    tasks.put(TaskState.AGGREGATING, "aggregating", group="g")
    tasks.in_set("h", "1", "staged")
    tasks.pending("pending")
    ids = ["scheduled", "retry", "archived", "completed", "aggregating", "staged", "pending"]
    facts = perform(read_tasks("default", [task_id.encode() for task_id in ids]))
    assert [True, True, True, True, True, False, False] == [bool(one.score) for one in facts]


@damaged
def test_a_large_set_goes_back_into_its_group_in_several_calls(
    redis_client: RedisClient, perform: Perform, tasks: Tasks
) -> None:
    """With its members' scores; a second group is also listed."""
    key = tasks.keys.aggregation_set("g", "1")
    redis_client.zadd(key, {f"{number}": number for number in range(2_500)})
    redis_client.zadd(tasks.keys.group("other"), {"a": 1})
    groups = {key.encode(): b"g", tasks.keys.group("other").encode(): b"other"}
    perform(mend_groups("default", groups))
    assert {f"{number}": number for number in range(2_500)} == tasks.members("g")
    assert {"g", "other"} == tasks.groups()
    assert not redis_client.exists(key)


@damaged
def test_listed_groups_and_sets_are_left_alone(
    redis_client: RedisClient, perform: Perform, tasks: Tasks
) -> None:
    """And so is the group whose name begins like a key of another queue."""
    sound(redis_client, tasks)
    redis_client.zadd(tasks.keys.aggregation_sets, {"asynq:{lowqueu}:g:h": 1})
    redis_client.sadd(tasks.keys.groups, "h")
    before = snapshot(redis_client)
    perform(mend_groups("default", {b"asynq:{default}:g:g": b"g", b"asynq:{default}:g:h:1": b"h"}))
    assert before == snapshot(redis_client)
    perform(mend_groups("default", {b"asynq:{lowqueu}:g:h": b""}))
    assert {"g", "h"} == tasks.groups()
    assert {"h:1": NOW.ceiling + 120} == tasks.sets()


def test_a_lock_that_has_changed_since_the_look_is_left_alone(
    redis_client: RedisClient, perform: Perform, tasks: Tasks
) -> None:
    """Another owner, another message or another state of its task."""
    changes: list[Callable[[], object]] = [
        lambda: redis_client.set(LOCK, "other", ex=60),
        lambda: redis_client.hset(tasks.keys.task("a"), "state", "archived"),
        lambda: redis_client.hset(tasks.keys.task("a"), "msg", "other"),
        lambda: redis_client.delete(LOCK),
    ]
    for change in changes:
        redis_client.flushall()
        tasks.put(TaskState.COMPLETED, "a", completed_at=1, retention=1, unique_key=LOCK)
        facts = perform(look_at_lock("default", LOCK.encode()))
        change()
        before = snapshot(redis_client)
        assert not perform(release_lock("default", facts))
        assert before == snapshot(redis_client)
    redis_client.flushall()


def test_only_what_never_ends_is_given_an_end(
    redis_client: RedisClient, perform: Perform, tasks: Tasks
) -> None:
    """A lock that ends keeps its time, and so does a counter."""
    tasks.pending("a", unique_key=LOCK)
    assert set_to(3_600) == redis_client.ttl(LOCK)
    facts = perform(look_at_lock("default", LOCK.encode()))
    assert (b"a", "pending") == (facts.owner, facts.state)
    assert not perform(release_lock("default", facts, seconds=60))
    assert not perform(expire_endless(LOCK.encode(), seconds=60))
    assert not perform(expire_endless(b"asynq:{default}:none", seconds=60))
    redis_client.persist(LOCK)
    assert perform(release_lock("default", facts, seconds=60))
    assert set_to(60) == redis_client.ttl(LOCK)


def test_a_tick_that_has_changed_is_not_reset(redis_client: RedisClient, perform: Perform) -> None:
    """A scheduler has fired one since it was looked at. (D12)"""
    redis_client.hset("asynq:{default}:x:ticks", "e", 9)
    assert not perform(reset_tick("default", b"e", b"10", 5))
    assert not perform(reset_tick("default", b"gone", b"9", 5))
    assert {b"e": b"9"} == redis_client.hgetall("asynq:{default}:x:ticks")


@damaged
@run_async
async def test_locks_without_a_task_are_left_alone_unless_asked_for(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """Locks of `until="expiry"` are left on purpose."""
    tasks.pending("a")
    redis_client.set(LOCK, "gone", ex=60)
    redis_client.set(f"{LOCK}2", "a", ex=60)
    assert [] == await examine(redis_url, unowned_locks=False)
    assert [("default", FindingKind.LEAKED_LOCK)] == kinds(await examine(redis_url))


@damaged
@run_async
async def test_an_archive_is_trimmed_only_by_those_who_say_what_it_keeps(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """Servers may have been told to keep more than Asynq does."""
    tasks.put(TaskState.ARCHIVED, "a", "b")
    findings = await examine(redis_url, archive_max_size=1)
    async with doctor_of(redis_url) as doctor:
        [finding] = await doctor.repair(findings)
    assert () == finding.repaired
    assert not finding.is_repaired
    assert ["a", "b"] == tasks.ids("archived")


@damaged
@run_async
async def test_only_the_named_queues_are_examined(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """With named queues, the doctor examines no other queue and no server."""
    redis_client.rpush(tasks.keys.pending, "ghost")
    redis_client.rpush("asynq:{low}:pending", "ghost")
    redis_client.zadd("asynq:servers", {"asynq:servers:{host:8:dead}": OVER})
    redis_client.sadd("asynq:queues", "default", "low")
    assert [("low", FindingKind.GHOST)] == kinds(await examine(redis_url, queues=["low"]))
    found = kinds(await examine(redis_url))
    dead, ghost = FindingKind.DEAD_SERVER, FindingKind.GHOST
    assert [("", dead), ("default", ghost), ("low", ghost)] == found


@run_async
async def test_a_queue_that_is_unknown_is_an_error(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """A misspelt name must not look like good health; one without tasks may."""
    redis_client.sadd("asynq:queues", "idle")
    assert [] == await examine(redis_url, queues=["idle"])
    with pytest.raises(QueueNotFoundError, match="defualt"):
        await examine(redis_url, queues=["idle", "defualt"])


@run_async
async def test_progress_is_told_up_to_the_last_key(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """Total of all keys in the database, ours or not."""
    tasks.pending("a")
    redis_client.set("other", 1)
    told: list[tuple[int, int]] = []
    async with doctor_of(redis_url) as doctor:
        await doctor.examine(progress=lambda done, total: told.append((done, total)))
    assert (4, 4) == told[-1]


def test_a_doctor_that_was_never_closed_is_warned_about(redis_client: RedisClient, redis_url: str) -> None:
    """Once it has connections."""

    async def forget() -> None:
        doctor = Doctor(redis_url)
        await doctor.examine()
        with pytest.warns(ResourceWarning, match="unclosed <pyasynq.doctor.Doctor of Redis at"):
            del doctor

    asyncio.run(forget())


@damaged
@run_async
async def test_an_id_that_is_not_text_is_found_and_dropped(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """It is shown with backslashes."""
    tasks.pending("a")
    redis_client.rpush(tasks.keys.pending, b"\xff")
    async with doctor_of(redis_url) as doctor:
        [finding] = await doctor.repair(await doctor.examine())
    assert (("\\xff",), ("\\xff",)) == (finding.subjects, finding.repaired)
    assert ["a"] == tasks.ids("pending")


@run_async
async def test_a_redis_that_evicts_is_a_finding(redis_client: RedisClient, redis_url: str) -> None:
    """Nothing can be repaired about it from here."""
    redis_client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        [finding] = await examine(redis_url)
    finally:
        redis_client.config_set("maxmemory-policy", "noeviction")
    assert ("", FindingKind.EVICTION) == (finding.queue, finding.kind)
    assert ("maxmemory-policy allkeys-lru",) == finding.subjects
    assert (Severity.ERROR, False) == (finding.severity, finding.is_repairable)


@run_async
async def test_a_script_that_blocked_redis_is_a_finding(redis_client: RedisClient, redis_url: str) -> None:
    """For an hour after it ran; scripts of other programs are none of ours."""
    wait = "local sum = 0 for number = 1, 30000000 do sum = sum + number end"
    redis_client.config_set("slowlog-log-slower-than", 10_000)
    redis_client.eval(wait, 1, "others")
    redis_client.eval(wait, 1, "asynq:{default}:pending")
    async with doctor_of(redis_url) as doctor:
        [finding] = [one for one in await doctor.examine() if one.kind is FindingKind.SLOW_SCRIPT]
    redis_client.slowlog_reset()
    assert 1 == sum("of another peer" in subject for subject in finding.subjects)


@pytest.mark.parametrize("number", [1_000, 2_000])
@run_async
async def test_exactly_a_thousand_active_tasks_can_be_examined(
    redis_url: str, tasks: Tasks, number: int
) -> None:
    """The page after the last one is empty. (D23)"""
    tasks.active(*(f"t{at}" for at in range(number)))
    assert [] == await examine(redis_url)


@damaged
@pytest.mark.parametrize(
    ("key", "subject"),
    [
        ("asynq:{low}:pending", "low"),
        ("asynq:{low}:scheduled", "low"),
        ("asynq:{low}:groups", "low"),
        ("asynq:{low}:t:x", "low"),
        ("asynq:{low}:g:x", "low"),
        ("asynq:{low}:x:limits", "low"),
        ("asynq:{low}:x:verdicts", "low"),
        ("asynq:{low}:x:objectives", "low"),
        ("asynq:{low}:unique:x", "low"),
        ("asynq:{low}:processed", "low"),
        ("asynq:servers", ""),
        ("asynq:servers:{host:7:abc}", ""),
        ("asynq:scheduler_history:e", ""),
        ("asynq:x:types", ""),
        ("asynq:x:views", ""),
        ("asynq:x:conf", ""),
        ("asynq:x:conf:resize", ""),
        ("asynq:x:apikeys", ""),
        ("asynq:x:bucket:k", ""),
        ("asynq:x:gate:{a.example}", ""),
        ("asynq:x:leaseworkers", ""),
        ("asynq:x:deliveries", ""),
        ("asynq:x:doors", ""),
        ("asynq:x:commands", ""),
        ("asynq:x:list:{f:0}", ""),
        ("asynq:x:list:{f:0}:workers", ""),
        ("asynq:x:list:{f:0}:leases", ""),
        ("asynq:x:list:{f:0}:alive:w", ""),
        ("asynq:x:list:{f:0}:held:w", ""),
        ("asynq:x:snoozed", ""),
        ("asynq:x:signedout", ""),
        ("asynq:x:op:o", ""),
        ("asynq:{low}:x:gone:o", "low"),
        ("asynq:{low}:x:gone:o:i", "low"),
    ],
)
@run_async
async def test_a_key_of_a_wrong_type_is_a_finding_and_all_else_is_examined(
    redis_client: RedisClient, redis_url: str, tasks: Tasks, key: str, subject: str
) -> None:
    """Here a ghost in another queue. (D23)"""
    redis_client.rpush(tasks.keys.pending, "ghost")
    Tasks(redis_client, "low").pending("sound")
    put_server(redis_client)
    redis_client.delete(key)
    kind = "hset" if key.endswith(("x:verdicts", "processed", ":unique:x")) else "xadd"
    redis_client.hset(key, "a", "b") if kind == "hset" else redis_client.xadd(key, {"a": "b"})
    async with doctor_of(redis_url) as doctor:
        findings = [one for one in await doctor.examine() if one.kind is not FindingKind.SLOW_SCRIPT]
    [wrong] = [one for one in findings if one.kind is FindingKind.WRONG_TYPE]
    assert (subject, (key,)) == (wrong.queue, wrong.subjects)
    assert ("hash" if kind == "hset" else "stream") in wrong.explanation
    assert [("default", FindingKind.GHOST)] == [
        (one.queue, one.kind) for one in findings if one.kind is FindingKind.GHOST
    ]


@damaged
@run_async
async def test_the_list_of_queues_may_have_a_wrong_type(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """It is found; the queues cannot be judged without it. (D23)"""
    tasks.pending("a")
    redis_client.delete("asynq:queues")
    redis_client.set("asynq:queues", "oops")
    async with doctor_of(redis_url) as doctor:
        findings = await doctor.examine()
        assert [("", FindingKind.WRONG_TYPE)] == kinds(findings)
        assert any("queue default" in what for what in doctor.skipped)


@damaged
@run_async
async def test_a_waiting_queue_without_a_live_server_is_a_finding_unless_it_is_paused(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """A lease that lasts for hours says nothing: its worker need not take more tasks. (D23)"""
    unserved = [("default", FindingKind.UNSERVED_QUEUE)]
    tasks.put(TaskState.RETRY, "r", score=PAST)
    assert unserved == kinds(await examine(redis_url))
    redis_client.set(tasks.keys.paused, 1)
    assert [] == await examine(redis_url)
    redis_client.delete(tasks.keys.paused)
    tasks.active("a")
    assert unserved == kinds(await examine(redis_url))
    put_server(redis_client)
    assert [] == await examine(redis_url)


@damaged
@run_async
async def test_an_examination_can_be_cancelled(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """It ends after the call that is under way, here in the pause."""
    redis_client.rpush(tasks.keys.pending, "ghost")
    async with Doctor(redis_url, pause=3600) as doctor:
        seen = asyncio.Event()
        work = asyncio.create_task(doctor.examine(progress=lambda done, total: seen.set()))
        await seen.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work


@run_async
async def test_settings_that_cannot_be_are_refused(redis_url: str) -> None:
    """The error names the setting and the remedy."""
    with pytest.raises(InvalidOptionError, match="archive_max_size"):
        Doctor(redis_url, archive_max_size=0)
    with pytest.raises(InvalidOptionError, match="pause"):
        Doctor(redis_url, pause=-1)


@damaged
@run_async
async def test_the_history_of_a_live_entry_is_left_alone(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """And that of a scheduler which has fired and has not yet announced itself; and one that ends."""
    entry = SchedulerEntry(
        id="live",
        spec="@every 1h",
        task_type="t",
        task_payload=b"",
        enqueue_options=(),
        next_enqueue_time=None,
        prev_enqueue_time=None,
    )
    redis_client.rpush("asynq:schedulers:{s}", entry.encode(), b"\xff")
    redis_client.expire("asynq:schedulers:{s}", 60)
    redis_client.zadd("asynq:scheduler_history:live", {"event": OVER})
    redis_client.zadd("asynq:scheduler_history:new", {"event": redis_client.time()[0] - 10})
    redis_client.zadd("asynq:scheduler_history:ends", {"event": OVER})
    redis_client.expire("asynq:scheduler_history:ends", 60)
    assert [] == await examine(redis_url)
    redis_client.delete("asynq:schedulers:{s}")
    [finding] = await examine(redis_url)
    assert (FindingKind.OLD_HISTORY, ("asynq:scheduler_history:live",)) == (finding.kind, finding.subjects)


def test_counters_that_agree_are_left_alone(
    redis_client: RedisClient, perform: Perform, tasks: Tasks
) -> None:
    """So are those of a day whose other counter has expired already, and new ones without a total."""
    processed, failed = tasks.keys.processed, tasks.keys.failed
    days = [f"{processed}:2033-05-17", f"{failed}:2033-05-17", f"{failed}:2033-05-18"]
    redis_client.mset({processed: 5, failed: 5, days[0]: 3, days[1]: 3, days[2]: 2})
    assert {} == perform(find_wrong_counters("default", [day.encode() for day in days]))
    assert {} == perform(find_wrong_counters("unknown", []))
    redis_client.flushall()


@damaged
def test_counters_are_raised_by_what_others_prove_and_no_further(
    redis_client: RedisClient, perform: Perform, tasks: Tasks
) -> None:
    """A repaired counter also proves others; counters of a day keep their end, and are not made again."""
    processed, failed = tasks.keys.processed, tasks.keys.failed
    day = f"{processed}:2033-05-17"
    redis_client.mset({day: 1, f"{failed}:2033-05-17": 4, f"{processed}:2033-05-18": "x"})
    wrong = perform(find_wrong_counters("default", [day.encode(), f"{processed}:2033-05-18".encode()]))
    assert {
        day.encode(): 4,
        f"{processed}:2033-05-18".encode(): None,
        processed.encode(): 4,
        failed.encode(): 4,
    } == wrong
    redis_client.expire(day, 50)
    assert perform(raise_counter("default", day.encode(), 4))
    assert (b"4", set_to(51)) == (redis_client.get(day), redis_client.ttl(day))
    assert not perform(raise_counter("default", day.encode(), 3))
    assert not perform(raise_counter("default", day.encode(), 4))
    assert not perform(raise_counter("default", b"asynq:{default}:processed:2033-05-19", 1))
    assert not perform(raise_counter("default", day.encode(), None))
    assert perform(raise_counter("default", processed.encode(), 2**60))
    assert (b"%d" % 2**60, -1) == (redis_client.get(processed), redis_client.ttl(processed))
    assert perform(raise_counter("default", f"{processed}:2033-05-18".encode(), None))
    assert not redis_client.exists(f"{processed}:2033-05-18")


@damaged
@run_async
async def test_what_a_worker_runs_is_not_rewritten(
    redis_client: RedisClient, redis_url: str, tasks: Tasks
) -> None:
    """The worker writes its own message when it ends; then it is found again."""
    tasks.active("a", retried=9, retry=3)
    tasks.active("b")
    redis_client.hset(tasks.keys.task("b"), "msg", message_bytes("other"))
    before = snapshot(redis_client)
    async with doctor_of(redis_url) as doctor:
        [finding] = await doctor.repair(await doctor.examine())
    assert (FindingKind.FOREIGN_MESSAGE, ("b",), ()) == (finding.kind, finding.subjects, finding.repaired)
    assert before == snapshot(redis_client)
    redis_client.zadd(tasks.keys.lease, {"a": OVER})
    assert FindingKind.WRONG_RETRIES in {one.kind for one in await examine(redis_url)}


def test_every_kind_is_described() -> None:
    """In one sentence each; only what nothing can be done about has no repair."""
    assert set(FindingKind) == set(DESCRIPTIONS)
    assert all(text.explanation and not text.explanation.endswith(".") for text in DESCRIPTIONS.values())
