"""All that a producer, a worker and a scheduler may ask of Redis, as plans; for the tests about rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyasynq._broker.aggregation_sets import read_set, reclaim_stale_sets, renew_sets
from pyasynq._broker.attempt_counts import count_attempts
from pyasynq._broker.delayed import delete_expired_completed, forward
from pyasynq._broker.dequeue import DequeueRules, DequeueTerms, dequeue, find_dequeued
from pyasynq._broker.doctoring.counters import find_wrong_counters, raise_counter
from pyasynq._broker.doctoring.groups import list_known_groups, look_at_groups, mend_groups
from pyasynq._broker.doctoring.keys import (
    count_archived,
    drop_lapsed_records,
    expire_endless,
    get_database_size,
    get_last_event_time,
    get_record_lapse,
    get_time_to_live,
    has_tasks,
    is_registered,
    list_histories,
    look_at_lock,
    measure_waiting_work,
    register,
    release_lock,
    scan_keys,
    trim_archive,
)
from pyasynq._broker.doctoring.lists import count_in_list
from pyasynq._broker.doctoring.tasks import Settlement, judge, read_tasks, settle_damaged, walk
from pyasynq._broker.doctoring.ticks import find_ticks_after, reset_tick
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.groups import check_groups, list_groups
from pyasynq._broker.inspecting.cluster import redis_info, redis_texts
from pyasynq._broker.inspecting.collection_sizes import CountedPlace, count_collection, count_collections
from pyasynq._broker.inspecting.group_counts import describe_groups
from pyasynq._broker.inspecting.pace import ChunkPace
from pyasynq._broker.inspecting.queue_sweep import find_queues
from pyasynq._broker.inspecting.queues import history, queue_info, queue_memory
from pyasynq._broker.inspecting.reading import replica_state
from pyasynq._broker.inspecting.schedulers import scheduler_entries, scheduler_events
from pyasynq._broker.inspecting.servers import describe_servers
from pyasynq._broker.inspecting.tasks import describe_task, find_tasks, list_tasks
from pyasynq._broker.inspecting.vitals import count_poison, read_last_ticks, read_redis_health, read_vitals
from pyasynq._broker.inspecting.walks import NO_FILTER, Walk, read_starts, walk_tasks
from pyasynq._broker.leases import (
    PoisonTask,
    RecoverTask,
    archive_poison,
    confirm_begin,
    list_expired,
    list_unleased,
    recover,
    renew,
)
from pyasynq._broker.operating.snoozes import list_snoozes
from pyasynq._broker.queue_readings import QueueReader, read_time
from pyasynq._broker.queue_registry import queue_names
from pyasynq._broker.results import write_result
from pyasynq._broker.schedules import (
    begin_entries,
    clear_scheduler_entries,
    forget_entries,
    list_schedulers,
    record_enqueue_event,
    write_scheduler_entries,
)
from pyasynq._broker.servers import clear_server_state, list_server_keys, read_server, write_server_state
from pyasynq._broker.slow_scripts import list_slow_scripts
from pyasynq._broker.stored_limits import get_limits
from pyasynq._broker.task_events import FIRST_MARK, encode_event, publish_events, read_events
from pyasynq._broker.task_types import read_types
from pyasynq._broker.waits.endings import check_task
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.facts import check_health, read_redis_facts
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall, ask
from pyasynq._wire.keys import SERVERS_KEY
from pyasynq.limits import Queue, QueueLimits
from pyasynq.task import TaskState
from tests.contract import settling
from tests.contract.aggregating import LIMITS, STAGED, finish
from tests.contract.enqueueing import composed
from tests.contract.test_schedules import entry, event, fire_tick
from tests.contract.test_servers import server, worker
from tests.factories import LEASE_SCORE, NOW, Tasks, claim, message_bytes, registered

if TYPE_CHECKING:
    import redis

RATED = DequeueTerms(DequeueRules.LIMITED, Queue(rate=1, burst=1).limits)
ORDERED = DequeueTerms(DequeueRules.ORDERED, QueueLimits(ordered=True))
FULL = DequeueTerms(DequeueRules.LIMITED, QueueLimits(max_run=1))
EXPIRED = NOW.seconds - 60
MANY = [f"many{number}" for number in range(20)]
"""Lists of this length are settled in another way if they are in front of many others."""


def replayed(plan: Plan[Any]) -> Plan[Any]:
    """Send each call again as after a lost reply, where that is allowed: scripts then look at more."""
    call = next(plan)
    try:
        while True:
            reply = yield call
            if isinstance(call, ScriptCall) and call.replay is Replay.BY_TOKEN:
                reply = yield call._replace(args=("1", *call.args[1:]))
            call = plan.send(reply)
    except StopIteration as end:
        return end.value


_REPLACE: dict[str, Any] = {"on_duplicate": "replace_payload"}
RULES: list[tuple[str, dict[str, Any]]] = [
    ("older", {"on_conflict": "replace_finished"}),
    ("r0", _REPLACE | {"unique": 60, "unique_key": "r"}),
    ("r1", _REPLACE | {"unique": 61, "unique_key": "r", "process_in": 60}),
    ("r2", _REPLACE | {"unique": 62, "unique_key": "r", "process_in": 0}),
    ("g0", _REPLACE | {"unique": 60, "unique_key": "g", "group": "r"}),
    ("g1", _REPLACE | {"unique": 61, "unique_key": "g", "process_in": 60}),
]
"""Tasks that replace others, or what others carry."""


def producer_work() -> list[Plan[Any]]:
    """Enqueue in all ways."""
    lock: dict[str, Any] = {"unique": 60}
    later: dict[str, Any] = {"process_in": 60}
    group: dict[str, Any] = {"group": "g"}
    ways = [{}, lock, later, lock | later, group, group | lock, group | later, group | lock | later]
    plans: list[Plan[Any]] = [check_health()]
    for number, options in enumerate(ways):
        # Payloads differ so that locks do; a second task of the last payload meets its lock.
        for name, payload in ((f"p{number}", b"%d" % number), (f"q{number}", b"%d" % number)):
            [run] = split_runs([composed(name, payload, **options)])
            plans.append(replayed(registered(enqueue_run(run, now=NOW), run.queue)))
    for name, options in (("front", {}), ("front-unique", lock)):
        [run] = split_runs([composed(name, b"front", front=True, **options)])
        plans.append(replayed(enqueue_run(run, now=NOW)))
    return plans + [
        replayed(enqueue_run(split_runs([composed(name, **options)])[0], now=NOW)) for name, options in RULES
    ]


def prepare_worker(client: redis.Redis) -> None:
    """Put tasks into the places where a worker's work finds them."""
    tasks = Tasks(client)
    tasks.active(*"abcdefgh")
    tasks.active("unique", unique_key="asynq:{default}:unique:x")
    tasks.active("unleased", lease=None)
    tasks.active("expired", "poison", lease=EXPIRED)
    tasks.active(*(f"long{number}" for number in range(100)), *MANY)
    tasks.put(TaskState.ARCHIVED, "old", "older", score=EXPIRED)
    tasks.put(TaskState.SCHEDULED, "due", score=EXPIRED)
    tasks.put(TaskState.SCHEDULED, "to-group", score=EXPIRED, extra={"x:group": "h"})
    tasks.put(TaskState.COMPLETED, "over", score=EXPIRED)
    tasks.put(TaskState.AGGREGATING, "member", group="due", score=EXPIRED)
    tasks.in_set(STAGED.group, STAGED.id, "staged")
    tasks.in_set("stale", "stale-set", "stale", stale_at=EXPIRED)
    client.sadd(tasks.keys.groups, "empty")
    tasks.pending("waiting", "second", "third")
    tasks.pending(*(f"kept{number}" for number in range(20)))
    client.lpush(tasks.keys.pending, "ghost")
    client.zadd(SERVERS_KEY, {"asynq:servers:{host:7:abc}": 2**40})
    client.set("asynq:servers:{host:7:abc}", server().encode())


def worker_work() -> list[Plan[Any]]:
    """Take, run, settle, recover and clean up; enqueue as handlers do."""
    poison = PoisonTask("poison", "server/1", EXPIRED, message_bytes("poison"), NOW.ceiling, b"")
    groups = [("due", LIMITS), ("empty", LIMITS)]
    settles = [
        settling.done([claim("a")]),
        settling.done([claim("unique")], "asynq:{default}:unique:x"),
        settling.complete([claim("b")], result=b"r"),
        settling.retry([claim("c")], trace=b"t"),
        settling.archive([claim("d")], max_size=1),
        settling.requeue([claim("e")]),
        settling.done([claim(one) for one in MANY]),
    ]
    return [
        *producer_work(),
        read_redis_facts(),
        read_time("default"),
        QueueReader("default").exists(),
        *QueueReader("default").heads(),
        dequeue("default", limit=9, token="t", now=None),
        dequeue("default", limit=9, token="t", terms=RATED, now=NOW),
        dequeue("default", limit=9, token="t", terms=RATED, now=NOW),
        dequeue("default", limit=9, token="t", terms=RATED, now=NOW.plus(-60)),
        dequeue("default", limit=9, token="t", terms=FULL, now=NOW),
        dequeue("default", limit=9, token="t", terms=ORDERED, now=NOW),
        find_dequeued("default", token="t"),
        renew("default", [claim("f"), claim("unleased")], now=NOW),
        confirm_begin("default", "f", claim("f").token),
        write_result("default", "g", "server/1", b"r", lease_score=LEASE_SCORE),
        *map(replayed, settles),
        list_expired("default", now=NOW),
        list_unleased("default"),
        recover("default", [RecoverTask("expired", "server/1", EXPIRED)], now=NOW),
        archive_poison("default", [poison], max_size=1, cutoff=settling.CUTOFF, now=NOW),
        forward("default", now=NOW),
        delete_expired_completed("default", batch=100, now=NOW),
        list_groups("default"),
        check_groups("default", groups, most_sets=3, now=NOW),
        read_set(STAGED),
        renew_sets("default", [STAGED], now=NOW),
        replayed(finish(STAGED, unique=60)),
        reclaim_stale_sets("default", now=NOW),
        write_server_state(server(), [worker("a")], now=NOW),
        list_server_keys(NOW),
        read_server("asynq:servers:{host:7:abc}"),
        clear_server_state("host", 7, "abc"),
        count_attempts("default", {"t": [1]}, now=NOW),
    ]


def waiter_work() -> list[Plan[Any]]:
    """Look at tasks that end and that do not, as waits do, and ask to be told of changes."""
    arm = CommandCall(("EXISTS", "asynq:{default}:t:a"), "asynq:{default}:t:a", Replay.SAFE)
    return [
        check_task("default", "over", briefly=False, clock=SYSTEM_CLOCK),
        check_task("default", "a", briefly=True, clock=SYSTEM_CLOCK),
        ask(arm),
    ]


def publisher_work() -> list[Plan[Any]]:
    """Publish an event."""
    return [publish_events("default", [encode_event("started", "default", NOW)], max_length=10)]


def follower_work() -> list[Plan[Any]]:
    """Find the queues, and read their events."""
    return [queue_names(), read_events("default", None), read_events("default", FIRST_MARK)]


def viewer_work() -> list[Plan[Any]]:
    """Look at everything that an inspector shows, and change nothing."""
    queue, states = "default", ("pending", "active", "archived", "aggregating")
    walked = [Walk(queue, state, "", "", 1, 10, NO_FILTER) for state in states]

    def turn_page(walk: Walk) -> Plan[Any]:
        starts = yield from read_starts()
        page = yield from walk_tasks(walk, now=NOW, pace=ChunkPace(), starts=starts)
        yield from walk_tasks(walk._replace(cursor=page.cursor), now=NOW, pace=ChunkPace(), starts=starts)

    return [
        find_queues(None),
        find_queues([queue]),
        queue_info(queue, now=NOW, memory=True),
        queue_memory(queue),
        history(queue, 1, now=NOW),
        describe_groups(queue),
        *map(turn_page, walked),
        *(count_collection(queue, TaskState(state), "", NO_FILTER, now=NOW) for state in states),
        count_collections(queue, [CountedPlace(TaskState(state)) for state in states], now=NOW),
        list_tasks(queue, "pending", group="", page=1, page_size=9, now=NOW),
        describe_task(queue, "waiting", now=NOW),
        find_tasks(queue, ["waiting"], now=NOW),
        describe_servers(None, now=None),
        scheduler_entries(),
        scheduler_events("e", page=1, page_size=9),
        read_types(NOW),
        redis_info(of_cluster=False),
        redis_texts(of_cluster=False),
        replica_state(None, now=NOW),
        read_vitals(queue, groups=50, now=NOW),
        count_poison(queue, scan=10, most=5),
        read_last_ticks(queue),
        read_redis_health(None),
        list_snoozes(NOW),
        *follower_work(),
    ]


def doctor_work() -> list[Plan[Any]]:
    """Look at everything, and repair in all ways."""
    queue = "default"
    waiting, group, locks = b"asynq:{default}:pending", b"asynq:{default}:g:due", b"asynq:{default}:unique:x"

    def settle(task_id: bytes, state: str, place: str) -> Plan[Any]:
        [facts] = yield from judge(queue, {task_id: b""})
        settlement = Settlement(facts, b"", state, f"asynq:{{default}}:{place}", group=b"g", reason="why")
        yield from settle_damaged(queue, [settlement])

    def release() -> Plan[Any]:
        yield from release_lock(queue, (yield from look_at_lock(queue, locks)))

    def mend() -> Plan[Any]:
        yield from mend_groups(queue, {group: b"due", b"asynq:{default}:g:empty": b"empty"})
        yield CommandCall(("SREM", "asynq:{default}:groups", "due"), "asynq:{default}:groups", Replay.SAFE)
        yield from mend_groups(queue, {group: b"due"})

    plans: list[Plan[Any]] = [
        get_database_size(),
        scan_keys(b"0", "asynq:*"),
        queue_names(),
        read_redis_facts(),
        list_slow_scripts(NOW, milliseconds=50, seconds=60),
        list_server_keys(NOW),
        read_server("asynq:servers:{host:7:abc}"),
        get_record_lapse("asynq:servers:{host:7:abc}"),
        read_tasks(queue, [b"a", b"due"]),
        walk(queue, waiting, "pending", 0),
        walk(queue, "asynq:{default}:active", "active", 0),
        walk(queue, "asynq:{default}:retry", "retry", 0),
        list_known_groups(queue),
        look_at_groups(queue, [group]),
        has_tasks(queue),
        is_registered(queue),
        count_archived(queue),
        measure_waiting_work(queue, NOW),
        measure_waiting_work(queue, NOW.plus(60)),
        get_limits(queue),
        get_time_to_live(locks),
        settle(b"a", "pending", "pending"),
        settle(b"waiting", "archived", "archived"),
        settle(b"second", "", ""),
        settle(b"unleased", "active", "active"),
        settle(b"b", "aggregating", "g:g"),
        release(),
        mend(),
        expire_endless(locks, seconds=60),
        find_ticks_after(queue, 1),
        reset_tick(queue, b"entry", b"1", 2),
        find_wrong_counters(queue, [b"asynq:{default}:processed:2033-05-18"]),
        raise_counter(queue, b"asynq:{default}:processed", 10**6),
        raise_counter(queue, b"asynq:{default}:paused", None),
        list_histories("asynq:schedulers:{s}"),
        get_last_event_time(b"asynq:scheduler_history:e"),
        count_in_list("asynq:{default}:pending", [b"a"]),
        expire_endless(waiting, seconds=60),
        register(queue),
        trim_archive(queue, max_size=0),
        drop_lapsed_records("asynq:servers"),
    ]
    return plans


def scheduler_work() -> list[Plan[Any]]:
    """Fire ticks in all ways, and keep records."""
    options: list[dict[str, Any]] = [{}, {"process_in": 60}, {"group": "g"}, {"unique": 60}]
    ticks = [replayed(fire_tick(100 + at, f"s{at}", **some)) for at, some in enumerate(options)]
    ticks += [replayed(fire_tick(200 + at, name, **some)) for at, (name, some) in enumerate(RULES)]
    return [
        check_health(),
        read_redis_facts(),
        begin_entries("default", ["e", "gone"]),
        *ticks,
        # Another entry, whose lock is held.
        replayed(fire_tick(100, "s9", entry_id="other", unique=60)),
        forget_entries("default", before=NOW.seconds * 2, keep=["e"]),
        write_scheduler_entries("s", [entry("e")], now=NOW),
        list_schedulers(NOW),
        record_enqueue_event("e", event()),
        clear_scheduler_entries("s"),
    ]
