"""A Redis at `maxmemory` that does not evict: what drains it goes on, what fills it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.aggregation_sets import quarantine_member, read_set, release_sets, renew_sets
from pyasynq._broker.cancellation import request_cancelation
from pyasynq._broker.delayed import delete_expired_completed, forward
from pyasynq._broker.dequeue import DequeueRules, DequeueTerms, dequeue, find_dequeued
from pyasynq._broker.doctoring.counters import raise_counter
from pyasynq._broker.doctoring.groups import look_at_groups, mend_groups
from pyasynq._broker.doctoring.keys import expire_endless, look_at_lock, release_lock
from pyasynq._broker.doctoring.tasks import Settlement, judge, read_tasks, settle_damaged, walk
from pyasynq._broker.doctoring.ticks import reset_tick
from pyasynq._broker.doctoring.types import find_wrong_types
from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs
from pyasynq._broker.find_attempt import find_attempt
from pyasynq._broker.groups import check_groups, list_groups
from pyasynq._broker.inspecting.actions import ArchiveLimits, archive_tasks, delete_tasks, run_tasks
from pyasynq._broker.inspecting.bulk import delete_all
from pyasynq._broker.inspecting.collection_sizes import CountedPlace, count_collections
from pyasynq._broker.inspecting.group_counts import forget_empty_groups, read_group_sizes
from pyasynq._broker.inspecting.pace import ChunkPace
from pyasynq._broker.inspecting.queues import count_tasks, pause_queue, unpause_queue
from pyasynq._broker.inspecting.removal import list_grouped, remove_queue
from pyasynq._broker.inspecting.tasks import get_task, scan_tasks
from pyasynq._broker.inspecting.updates import update_payload, update_process_at
from pyasynq._broker.inspecting.vitals import count_poison, read_vitals
from pyasynq._broker.inspecting.walks import Walk, walk_tasks
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
from pyasynq._broker.locks import HeldLock, renew_locks
from pyasynq._broker.operating import worker_lists
from pyasynq._broker.operating.api_keys import spend_request
from pyasynq._broker.operating.host_gates import close_gate, enter_gate, renew_slots
from pyasynq._broker.operating.operations import advance_operation, set_operation_state, take_operation
from pyasynq._broker.results import write_result
from pyasynq._broker.schedules import (
    clear_scheduler_entries,
    forget_entries,
    list_schedulers,
    pause_queue_entry,
    record_enqueue_event,
    write_scheduler_entries,
)
from pyasynq._broker.semaphore import acquire_token, release_token
from pyasynq._broker.server_requests import ask_server
from pyasynq._broker.servers import clear_server_state, list_servers, write_server_state
from pyasynq._broker.stored_limits import set_limits
from pyasynq._redis.plan import CommandCall, Replay
from pyasynq._wire.keys import host_slots_scope, operation_key, semaphore_key, shard_keys
from pyasynq.errors import RedisOutOfMemoryError
from pyasynq.info import ServerAction
from pyasynq.limits import UNLIMITED, QueueLimits
from pyasynq.task import TaskState
from tests.contract.aggregating import LIMITS, STAGED, finish
from tests.contract.enqueueing import composed
from tests.contract.settling import CUTOFF, archive, complete, done, requeue, retry
from tests.contract.test_schedules import entry, event, fire_tick
from tests.contract.test_servers import server, worker
from tests.factories import LEASE_SCORE, NOW, TOKEN, Tasks, claim
from tests.fix_broker import BlockingPerformer, Perform
from tests.redis_6 import is_redis_6

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyasynq._redis.plan import Plan
    from tests.invariants import RedisClient

EXPIRED = NOW.seconds - 60
ARCHIVE = ArchiveLimits(9_999, CUTOFF)
LOCK = "asynq:{default}:unique:email:deliver:x"


@pytest.fixture
def full(redis_client: RedisClient) -> Iterator[Callable[[], None]]:
    """Makes Redis full when it is called; it has room again at the end of the test."""
    policy = redis_client.config_get("maxmemory-policy")
    redis_client.config_set("maxmemory-policy", "noeviction")
    yield lambda: redis_client.config_set("maxmemory", 1)
    redis_client.config_set("maxmemory", 0)
    redis_client.config_set("maxmemory-policy", policy["maxmemory-policy"])


@pytest.fixture(params=[True, False], ids=["flags", "redis_6_2"])
def perform_when_full(redis_client: RedisClient, request: pytest.FixtureRequest) -> Perform:
    """Performs plans with the scripts' form for Redis 7, and with that for 6.2.

    Redis 7 has the rule of 6.2 for it: a script without flags may write after a write that frees memory.
    """
    if request.param and is_redis_6(redis_client):
        pytest.skip("only on servers that read the flags line of scripts")
    return BlockingPerformer(redis_client, flags=request.param)


def prepare(tasks: Tasks) -> None:
    """One task for each plan, before Redis is full."""
    tasks.pending("waiting")
    Tasks(tasks.client, "slow").pending("first", "second", "third")
    tasks.active("a", "b", retention=60)
    tasks.active("dead", lease=EXPIRED)
    tasks.active("running", unique_key=f"{LOCK}-running")
    tasks.put(TaskState.SCHEDULED, "due")
    tasks.put(TaskState.RETRY, "grouped", group="g")
    tasks.put(TaskState.COMPLETED, "old", completed_at=NOW.seconds - 60, retention=60)
    tasks.put(TaskState.ARCHIVED, "x")
    tasks.put(TaskState.SCHEDULED, "later", score=NOW.seconds + 60, unique_key=f"{LOCK}-later")
    own_lock = tasks.keys.own_unique("k")
    tasks.put(TaskState.SCHEDULED, "holder", score=NOW.seconds + 60, unique_key=own_lock, type="digest")
    tasks.client.sadd("asynq:queues", "empty")
    tasks.client.set("asynq:{low}:paused", 1)
    tasks.client.zadd("asynq:sema:api", {"b": LEASE_SCORE, "lapsed": EXPIRED})
    tasks.client.zadd(semaphore_key(host_slots_scope("full")), {"a": LEASE_SCORE})
    tasks.client.hset(tasks.keys.ticks, mapping={"gone": 9, "gone:since": 8})
    tasks.put(TaskState.AGGREGATING, "member", group="h", score=1)
    tasks.in_set(STAGED.group, STAGED.id, "staged")
    lists = shard_keys("f", 0)
    tasks.client.rpush(lists.entries, b'{"token":"t"}')
    tasks.client.hset(lists.leases, "t", "lease")
    tasks.client.rpush(lists.replies, b"reply", b"x" * 4_000_001)
    tasks.client.sadd(lists.workers, "dead")
    operation = {"state": "running", "owner": "dead", "lease": EXPIRED, "fence": 3}
    tasks.client.hset(operation_key("op"), mapping=operation)
    tasks.client.expire(operation_key("op"), 60)


ORDERED = DequeueTerms(DequeueRules.ORDERED, QueueLimits(ordered=True))
RATED = DequeueTerms(DequeueRules.LIMITED, QueueLimits(max_run=9, rate=0.001, burst=1))


def take_without_tokens() -> Plan[Any]:
    """Ask a queue for a task that the rate keeps back, which notes the caller's turn."""
    yield from dequeue("slow", limit=1, token=TOKEN, terms=RATED, now=NOW)
    return (yield from dequeue("slow", limit=1, token=TOKEN, terms=RATED, now=NOW))


def take_by_a_clock_set_back() -> Plan[Any]:
    """Ask a queue whose tokens are complete later than they can be, which is corrected."""
    yield from dequeue("slow", limit=1, token=TOKEN, terms=RATED, now=NOW)
    return (yield from dequeue("slow", limit=1, token=TOKEN, terms=RATED, now=NOW.plus(-60)))


def spend_by_a_clock_set_back() -> Plan[Any]:
    """Send requests with a key whose bucket is full later than it can be, which is corrected."""
    yield from spend_request("k", (1.0, 60.0, 1), NOW)
    return (yield from spend_request("k", (1.0, 60.0, 1), NOW.plus(-60)))


def enter_by_a_clock_set_back() -> Plan[Any]:
    """Call a host whose bucket is full later than it can be, which is corrected."""
    yield from enter_gate("h", ["a"], limits=(1.0, 60.0, 1), now=NOW)
    return (yield from enter_gate("h", ["b"], limits=(1.0, 60.0, 1), now=NOW.plus(-60)))


def settle_by_doctor(task_id: bytes, state: str, place: str) -> Plan[Any]:
    """Judge a task and put it elsewhere, as the doctor does."""
    [facts] = yield from judge("default", {task_id: b""}, now=NOW)
    group = b"g" if state == "aggregating" else b""
    settlement = Settlement(facts, b"", state, f"asynq:{{default}}:{place}", group=group, reason="why")
    return (yield from settle_damaged("default", [settlement], now=NOW))


def mend_by_doctor() -> Plan[None]:
    """Forget a group and a set, and bring both back as the doctor does."""
    groups, sets = "asynq:{default}:groups", "asynq:{default}:aggregation_sets"
    yield CommandCall(("SREM", groups, "h"), groups, Replay.SAFE)
    yield CommandCall(("ZREM", sets, STAGED.key), sets, Replay.SAFE)
    members = {b"asynq:{default}:g:h": b"h", STAGED.key.encode(): STAGED.group.encode()}
    yield from mend_groups("default", members)


def release_by_doctor(seconds: int | None) -> Plan[Any]:
    """Look at a lock and release it, or give it an end, as the doctor does."""
    facts = yield from look_at_lock("default", f"{LOCK}-later".encode())
    return (yield from release_lock("default", facts, seconds=seconds))


def poison() -> Plan[Any]:
    """Archive the task whose worker died."""
    task = PoisonTask("dead", TOKEN, EXPIRED, b"", NOW.ceiling, b"trace")
    return archive_poison("default", [task], max_size=9_999, cutoff=CUTOFF, now=NOW)


def walk_inspected(state: str) -> Plan[Any]:
    """Walk through the tasks of a state."""
    return walk_tasks(Walk("default", state), now=NOW, pace=ChunkPace(), starts={})


def count_all_states() -> Plan[Any]:
    """Count the tasks of each state."""
    return count_collections("default", [CountedPlace(state) for state in TaskState], now=NOW)


DRAINING: dict[str, Callable[[], Plan[Any]]] = {
    "dequeue": lambda: dequeue("default", limit=5, token=TOKEN, now=NOW),
    "dequeue_limited": lambda: dequeue("default", limit=5, token=TOKEN, terms=RATED, now=NOW),
    "dequeue_without_tokens": take_without_tokens,
    "dequeue_ordered": lambda: dequeue("default", limit=5, token=TOKEN, terms=ORDERED, now=NOW),
    "dequeue_by_a_clock_set_back": take_by_a_clock_set_back,
    "spend_request": lambda: spend_request("k", (1.0, 60.0, 2), NOW),
    "spend_by_a_clock_set_back": spend_by_a_clock_set_back,
    "enter_gate_with_slots": lambda: enter_gate("h", ["a"], concurrency=1, now=NOW),
    "enter_gate_with_tokens": lambda: enter_gate("h", ["a"], limits=(1.0, 60.0, 2), now=NOW),
    "enter_gate_by_a_clock_set_back": enter_by_a_clock_set_back,
    "close_gate": lambda: close_gate("h", 1_000, NOW),
    "renew_slots": lambda: renew_slots("full", ["a"], NOW),
    "find_dequeued": lambda: find_dequeued("default", token=TOKEN),
    "find_attempt": lambda: find_attempt("default", "a", token=TOKEN, lease_end=LEASE_SCORE, now=NOW),
    "done": lambda: done([claim("a")]),
    "complete": lambda: complete([claim("a")], result=b"x"),
    "retry": lambda: retry([claim("a")], trace=b"x"),
    "archive": lambda: archive([claim("a")], trace=b"x"),
    "requeue": lambda: requeue([claim("a")]),
    "begin": lambda: confirm_begin("default", "a", TOKEN),
    "renew": lambda: renew("default", [claim("a"), claim("b")], now=NOW.plus(5)),
    "renew_locks": lambda: renew_locks(
        "default", [HeldLock("running", f"{LOCK}-running")], lease_seconds=3600
    ),
    "list_expired": lambda: list_expired("default", now=NOW),
    "list_unleased": lambda: list_unleased("default"),
    "recover": lambda: recover("default", [RecoverTask("dead", TOKEN, EXPIRED)], now=NOW),
    "poison": poison,
    "forward": lambda: forward("default", now=NOW),
    "list_groups": lambda: list_groups("default"),
    "check_groups": lambda: check_groups(
        "default", [("h", LIMITS)], most_sets=1, now=NOW, new_id=lambda: "set"
    ),
    "read_set": lambda: read_set(STAGED),
    "renew_sets": lambda: renew_sets("default", [STAGED], now=NOW.plus(5)),
    "release_sets": lambda: release_sets("default", [STAGED], now=NOW),
    "finish_set": lambda: finish(STAGED, unique=60, locks=[("staged", "asynq:{default}:unique:x")]),
    "finish_set_by_rules": lambda: finish(
        STAGED, payload=b"x" * 100, unique=60, unique_key="k", on_duplicate="replace_payload"
    ),
    "quarantine": lambda: quarantine_member(
        STAGED, "staged", reason="bytes", max_size=9_999, cutoff=CUTOFF, now=NOW
    ),
    "delete_expired": lambda: delete_expired_completed("default", batch=10, now=NOW),
    "write_result": lambda: write_result("default", "a", TOKEN, b"result", lease_score=LEASE_SCORE),
    "write_server_state": lambda: write_server_state(server(), [worker("a")], now=NOW),
    "clear_server_state": lambda: clear_server_state("host", 7, "abc"),
    "list_servers": lambda: list_servers(NOW),
    "ask_server": lambda: ask_server("s", ServerAction.QUIET, now=NOW),
    "write_scheduler_entries": lambda: write_scheduler_entries("s", [entry("e")], now=NOW),
    "clear_scheduler_entries": lambda: clear_scheduler_entries("s"),
    "list_schedulers": lambda: list_schedulers(NOW),
    "pause_entry": lambda: pause_queue_entry("default", "e", pauses=True, now=NOW),
    "unpause_entry": lambda: pause_queue_entry("default", "e", pauses=False, now=NOW),
    "record_enqueue_event": lambda: record_enqueue_event("e", event()),
    "forget_entries": lambda: forget_entries("default", before=10, keep=()),
    "count_tasks": lambda: count_tasks("default", NOW),
    "count_collections": count_all_states,
    "read_vitals": lambda: read_vitals("default", groups=50, now=NOW),
    "count_poison": lambda: count_poison("default", scan=10, most=5),
    "scan_tasks": lambda: scan_tasks("default", TaskState.ACTIVE, 0, 10),
    "walk_set": lambda: walk_inspected("archived"),
    "walk_list": lambda: walk_inspected("pending"),
    "read_tasks": lambda: walk_inspected("active"),
    "get_task": lambda: get_task("default", "waiting"),
    "groups": lambda: read_group_sizes("default"),
    "read_types": lambda: find_wrong_types("default", [b"pending"]),
    "forget_groups": lambda: forget_empty_groups("default"),
    "list_grouped": lambda: list_grouped("default", [b"h", b"gone"]),
    "run": lambda: run_tasks("default", ["due"], now=NOW),
    "archive_by_hand": lambda: archive_tasks("default", ["waiting"], limits=ARCHIVE, now=NOW),
    "delete": lambda: delete_tasks("default", ["due", "old"]),
    "update_payload": lambda: update_payload("default", "later", b"x" * 100, relock=True),
    "update_process_at": lambda: update_process_at("default", "x", NOW.plus(9).to_datetime(), now=NOW),
    "pause": lambda: pause_queue("default", 60, now=NOW),
    "acquire_token": lambda: acquire_token("api", 2, "a", deadline=LEASE_SCORE, now=NOW),
    "release_token": lambda: release_token("api", "b"),
    "replace_limits": lambda: set_limits("low", 4, 40.0, 1.0, 8, expected=UNLIMITED),
    "set_limits": lambda: set_limits("low", 5, 50.0, 1.0, 10),
    "unpause": lambda: unpause_queue("low"),
    "cancel": lambda: request_cancelation("a", None, "retry", now=NOW),
    "doctor_walk": lambda: walk("default", "asynq:{default}:pending", "pending", 0),
    "doctor_read_tasks": lambda: read_tasks("default", [b"waiting", b"due"]),
    "doctor_judge": lambda: judge("default", {b"waiting": b""}, now=NOW),
    "doctor_deletes": lambda: settle_by_doctor(b"waiting", "", ""),
    "doctor_makes_pending": lambda: settle_by_doctor(b"a", "pending", "pending"),
    "doctor_makes_active": lambda: settle_by_doctor(b"waiting", "active", "active"),
    "doctor_makes_scheduled": lambda: settle_by_doctor(b"waiting", "scheduled", "scheduled"),
    "doctor_archives": lambda: settle_by_doctor(b"waiting", "archived", "archived"),
    "doctor_makes_aggregating": lambda: settle_by_doctor(b"grouped", "aggregating", "g:g"),
    "doctor_look_at_groups": lambda: look_at_groups("default", [b"asynq:{default}:g:h"]),
    "doctor_mend_groups": mend_by_doctor,
    "doctor_look_at_lock": lambda: look_at_lock("default", f"{LOCK}-later".encode()),
    "doctor_release_lock": lambda: release_by_doctor(None),
    "doctor_expire_endless": lambda: expire_endless(b"asynq:{low}:paused", seconds=60),
    "doctor_raise_counter": lambda: raise_counter("default", b"asynq:{default}:processed", 10**6),
    "doctor_reset_tick": lambda: reset_tick("default", b"gone", b"9", NOW.seconds),
    "list_sweep": lambda: worker_lists.sweep_list("f", 0),
    "list_read": lambda: worker_lists.read_list_replies("f", 0),
    "list_renew": lambda: worker_lists.renew_entry_lease("f", 0, "t", "later"),
    "list_withdraw": lambda: worker_lists.withdraw_entry("f", 0, "t", b"reply"),
    "operation_take": lambda: take_operation("op", "a worker with a longer name", now=NOW),
    "operation_advance": lambda: advance_operation("op", 3, {"done": 5}, now=NOW),
    "operation_set_state": lambda: set_operation_state("op", "paused", ["running"]),
    "remove_queue": lambda: remove_queue("empty", force=True, progress=None),
}


@pytest.mark.sample(20, by_script=True)
@pytest.mark.parametrize("plan", DRAINING.values(), ids=DRAINING.keys())
def test_h25_what_drains_a_full_redis_does_what_it_does_otherwise(
    redis_client: RedisClient,
    perform: Perform,
    perform_when_full: Perform,
    tasks: Tasks,
    full: Callable[[], None],
    plan: Callable[[], Plan[Any]],
) -> None:
    """Fails if the script no longer has the flag.

    And on Redis 6.2 that of the first write that frees memory.
    """
    prepare(tasks)
    expected = perform(plan())
    with_room = {key: redis_client.dump(key) for key in redis_client.keys("*")}
    redis_client.flushall()
    prepare(tasks)
    full()
    assert expected == perform_when_full(plan())
    assert with_room == {key: redis_client.dump(key) for key in redis_client.keys("*")}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unique": 60},
        {"process_in": 60},
        {"unique": 60, "process_in": 60},
        {"group": "g"},
        {"group": "g", "process_in": 60},
        {"unique": 60, "on_duplicate": "ignore"},
        {"front": True, "unique": 60},
    ],
)
def test_h25_a_full_redis_refuses_new_tasks(
    redis_client: RedisClient,
    perform_when_full: Perform,
    full: Callable[[], None],
    options: dict[str, Any],
) -> None:
    """With an error of its own class, and nothing is written."""
    [run] = split_runs([composed("a", **options), composed("b", b"b", **options)])
    full()
    with pytest.raises(RedisOutOfMemoryError):
        perform_when_full(enqueue_run(run, now=NOW))
    assert [] == redis_client.keys("*")


def test_h25_a_full_redis_refuses_ticks(
    redis_client: RedisClient, perform_when_full: Perform, full: Callable[[], None]
) -> None:
    """So the tick is not lost: it has not been fired."""
    full()
    with pytest.raises(RedisOutOfMemoryError):
        perform_when_full(fire_tick())
    assert [] == redis_client.keys("*")


def test_h25_an_archive_that_is_too_full_is_trimmed(
    redis_client: RedisClient, perform_when_full: Perform, tasks: Tasks, full: Callable[[], None]
) -> None:
    """The calls that follow the first trim it too."""
    tasks.active("a")
    redis_client.zadd(tasks.keys.archived, {f"{number}": 1 for number in range(1_500)})
    full()
    assert 1_500 == perform_when_full(archive([claim("a")], cutoff=10)).trimmed


@pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.RETRY])
def test_h25_ids_without_a_task_are_dropped_from_a_full_redis(
    redis_client: RedisClient,
    perform_when_full: Perform,
    tasks: Tasks,
    full: Callable[[], None],
    state: TaskState,
) -> None:
    """While the tasks around them are deleted."""
    tasks.put(state, "a", "ghost")
    redis_client.delete(tasks.keys.task("ghost"))
    full()
    perform_when_full(delete_all("default", state, group="", progress=None))
    assert [] == tasks.ids(state)


@pytest.mark.parametrize("deleted", ["b", "d", "bd", "bcd", "bde"])
def test_h25_pending_tasks_are_deleted_from_a_full_redis(
    perform_when_full: Perform, tasks: Tasks, full: Callable[[], None], deleted: str
) -> None:
    """Near either end of the list.

    Fails if the first write is one that Redis 6.2 refuses because it may take memory.
    """
    tasks.pending(*"abcde")
    full()
    assert len(deleted) == perform_when_full(delete_tasks("default", list(deleted))).done
    assert [one for one in "abcde" if one not in deleted] == tasks.ids("pending")


def put_locked_as_go_does(tasks: Tasks) -> None:
    """A unique task in a group: only its message names the lock."""
    tasks.put(TaskState.AGGREGATING, "locked", group="h", unique_key=LOCK)
    tasks.client.hdel(tasks.keys.task("locked"), "unique_key")


def test_h25_a_lock_that_only_the_message_names_is_released_in_a_full_redis(
    redis_client: RedisClient, perform_when_full: Perform, tasks: Tasks, full: Callable[[], None]
) -> None:
    """The lock is deleted with the task."""
    put_locked_as_go_does(tasks)
    full()
    perform_when_full(delete_tasks("default", ["locked"]))
    assert redis_client.get(LOCK) is None
