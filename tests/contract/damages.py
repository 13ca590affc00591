"""Every kind of damage that the doctor knows, made as stock servers, old tools or accidents make it."""

# ruff: noqa: D103 - the names say it

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._wire.keys import server_key
from pyasynq.doctor import FindingKind
from pyasynq.task import TaskState
from tests.contract.test_servers import server
from tests.factories import LEASE_SCORE, NOW, Tasks, message_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.invariants import RedisClient

K = FindingKind
LOCK: Final = "asynq:{default}:unique:email:deliver:x"
OVER: Final = 1_700_000_000
PAST: Final = 1_600_000_000


class Damage(NamedTuple):
    """What is done to a sound database, what is found, and which keys differ once it is repaired."""

    kind: FindingKind
    subjects: tuple[str, ...]
    make: Callable[[RedisClient, Tasks], object]
    changed: frozenset[str]
    queue: str


DAMAGES: dict[str, Damage] = {}


def damage(
    kind: FindingKind, *subjects: str, changed: Iterable[str] = (), queue: str = "default"
) -> Callable[[Callable[[RedisClient, Tasks], object]], object]:
    """Register a function whose name says what it does; `changed` are keys without `asynq:{default}:`."""

    def register(make: Callable[[RedisClient, Tasks], object]) -> object:
        full = {key if key.startswith("asynq:") else f"asynq:{{default}}:{key}" for key in changed}
        DAMAGES[make.__name__] = Damage(kind, subjects, make, frozenset(full), queue)
        return make

    return register


def hash_of(client: RedisClient, tasks: Tasks, task_id: str, state: str, **fields: Any) -> None:
    """Make a hash and nothing else."""
    extra = {"group": fields["group_key"]} if "group_key" in fields else {}
    if state == "pending":
        extra["pending_since"] = "1600000000000000000"
    values = {"msg": message_bytes(task_id, **fields), "state": state, **extra}
    client.hset(tasks.keys.task(task_id), mapping=values)


@damage(K.GHOST, "gone")
def ghost_in_pending(client: RedisClient, tasks: Tasks) -> None:
    client.rpush(tasks.keys.pending, "gone")


@damage(K.GHOST, "gone")
def w07_ghost_that_was_taken(client: RedisClient, tasks: Tasks) -> None:
    client.lpush(tasks.keys.active, "gone")
    client.zadd(tasks.keys.lease, {"gone": OVER})
    client.hset(tasks.keys.task("gone"), "state", "active")


@damage(K.GHOST, "gone")
def ghost_in_archived(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.archived, {"gone": OVER})


@damage(K.GHOST, "gone")
def ghost_in_completed(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.completed, {"gone": OVER})


@damage(K.GHOST, "gone")
def ghost_in_a_group(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.group("g"), {"gone": OVER})


@damage(K.GHOST, "gone")
def ghost_alone_in_a_group(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.group("lonely"), {"gone": OVER})
    client.sadd(tasks.keys.groups, "lonely")


@damage(K.GHOST, "gone")
def ghost_alone_in_a_set(client: RedisClient, tasks: Tasks) -> None:
    key = tasks.keys.aggregation_set("lonely", "1")
    client.zadd(key, {"gone": OVER})
    client.zadd(tasks.keys.aggregation_sets, {key: OVER})


@damage(K.GHOST, "gone")
def ghost_in_retry_and_twice_in_pending(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.retry, {"gone": OVER})
    client.lpush(tasks.keys.pending, "gone", "gone")


@damage(K.BLANK_TASK, "gone")
def w15_result_of_a_task_that_is_gone(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("gone"), "result", "r")


@damage(K.BLANK_TASK, "gone")
def w15_state_of_a_task_that_is_gone(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("gone"), "state", "pending")


@damage(K.ORPHAN, "lost", changed=["t:lost", "archived"])
def w06_done_after_its_lease_was_lost(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "active")


@damage(K.ORPHAN, "lost", changed=["t:lost", "active", "lease"])
def active_orphan_with_a_lease(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "active")
    client.zadd(tasks.keys.lease, {"lost": LEASE_SCORE})


@damage(K.ORPHAN, "lost", changed=["t:lost", "pending"])
def pending_orphan(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "pending")


@damage(K.ORPHAN, "lost", changed=["t:lost", "retry"])
def retry_orphan(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "retry")


@damage(K.ORPHAN, "lost", changed=["t:lost", "archived"])
def scheduled_orphan(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "scheduled")


@damage(K.ORPHAN, "lost", changed=["t:lost", "archived"])
def orphan_in_a_state_that_is_none(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "asleep")


@damage(K.ORPHAN, "lost", changed=["t:lost", "g:new", "groups"])
def aggregating_orphan(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "aggregating", group_key="new")


@damage(K.ORPHAN, "lost", changed=["t:lost", "completed"])
def completed_orphan(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "completed", completed_at=PAST, retention=9)


@damage(K.ORPHAN, "lost")
def w10_orphan_of_a_trimmed_archive(client: RedisClient, tasks: Tasks) -> None:
    hash_of(client, tasks, "lost", "archived", unique_key=LOCK)
    client.hset(tasks.keys.task("lost"), "unique_key", LOCK)
    client.set(LOCK, "lost", ex=60)


@damage(K.IN_TWO_PLACES, "retry")
def retry_that_is_scheduled_too(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.scheduled, {"retry": OVER})


@damage(K.IN_TWO_PLACES, "pending")
def pending_twice(client: RedisClient, tasks: Tasks) -> None:
    client.lpush(tasks.keys.pending, "pending")


@damage(K.IN_TWO_PLACES, "active")
def active_that_waits_too(client: RedisClient, tasks: Tasks) -> None:
    client.rpush(tasks.keys.pending, "active")


@damage(K.IN_TWO_PLACES, "active", changed=["t:active"])
def active_whose_state_says_that_it_waits(client: RedisClient, tasks: Tasks) -> None:
    client.rpush(tasks.keys.pending, "active")
    client.hset(tasks.keys.task("active"), mapping={"state": "pending", "pending_since": 1})
    client.hdel(tasks.keys.task("active"), "x:crashes")


@damage(K.IN_TWO_PLACES, "pending")
def pending_that_is_active_without_a_lease(client: RedisClient, tasks: Tasks) -> None:
    client.rpush(tasks.keys.active, "pending")


@damage(K.IN_TWO_PLACES, "aggregating")
def member_of_two_groups(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.group("other"), {"aggregating": OVER})
    client.sadd(tasks.keys.groups, "other")


@damage(K.IN_TWO_PLACES, "in_set")
def member_of_a_set_that_waits_too(client: RedisClient, tasks: Tasks) -> None:
    client.rpush(tasks.keys.pending, "in_set")


@damage(K.IN_TWO_PLACES, "aggregating", changed=["t:aggregating", "g:g", "groups", "retry"])
def member_in_retry_whose_state_says_so(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.group("g"), {"aggregating": NOW.seconds})
    client.zadd(tasks.keys.retry, {"aggregating": NOW.seconds})
    client.hset(tasks.keys.task("aggregating"), "state", "retry")


@damage(K.WRONG_STATE, "archived")
def w11_archive_that_failed_half_way(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("archived"), "state", "active")


@damage(K.WRONG_STATE, "active")
def active_whose_state_is_pending(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("active"), "state", "pending")


@damage(K.WRONG_STATE, "aggregating")
def member_whose_state_is_retry(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("aggregating"), "state", "retry")


@damage(K.WRONG_STATE, "scheduled")
def scheduled_without_state_or_group(client: RedisClient, tasks: Tasks) -> None:
    client.hdel(tasks.keys.task("scheduled"), "state")
    client.hset(tasks.keys.task("scheduled"), "x:attempt", "server/1")


@damage(K.WRONG_GROUP, "aggregating")
def w05_member_whose_hash_names_no_group(client: RedisClient, tasks: Tasks) -> None:
    client.hdel(tasks.keys.task("aggregating"), "group")


@damage(K.WRONG_GROUP, "in_set")
def member_of_a_set_whose_hash_names_another_group(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("in_set"), "group", "g")


@damage(K.ACTIVE_WITHOUT_LEASE, "active", changed=["lease"])
def active_without_a_lease(client: RedisClient, tasks: Tasks) -> None:
    client.zrem(tasks.keys.lease, "active")


@damage(K.LEASE_WITHOUT_ACTIVE, "gone")
def lease_of_a_task_that_is_gone(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.lease, {"gone": OVER})


@damage(K.LEASE_WITHOUT_ACTIVE, "retry")
def lease_of_a_task_in_retry(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.lease, {"retry": LEASE_SCORE})


@damage(K.UNDECODABLE, "bad", changed=["t:bad", "archived"])
def w22_message_that_cannot_be_decoded(client: RedisClient, tasks: Tasks) -> None:
    tasks.put(TaskState.RETRY, "bad", extra={"msg": b"\xff\xff"})


@damage(K.UNDECODABLE, "bad", changed=["t:bad", "archived"])
def w22_undecodable_message_whose_worker_died(client: RedisClient, tasks: Tasks) -> None:
    tasks.active("bad", lease=OVER, extra={"msg": b"\xff\xff"})


@damage(K.FOREIGN_MESSAGE, "retry", changed=["t:retry"])
def message_of_another_task(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("retry"), "msg", message_bytes("other", retried=1))


@damage(K.STALE_FIELDS, "pending", changed=["t:pending"])
def w13_run_by_hand_without_pending_since(client: RedisClient, tasks: Tasks) -> None:
    client.hdel(tasks.keys.task("pending"), "pending_since")


@damage(K.STALE_FIELDS, "archived", "retry")
def w13_fields_of_other_states(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.task("archived"), "pending_since", 1)
    client.hset(tasks.keys.task("retry"), mapping={"x:attempt": "server/1", "x:crashes": 1})


@damage(K.STALE_FIELDS, "retry", changed=["t:retry"])
def w05_retry_with_a_group_to_join(client: RedisClient, tasks: Tasks) -> None:
    message = message_bytes("retry", group_key="g", retried=1)
    client.hset(tasks.keys.task("retry"), mapping={"x:group": "g", "msg": message})


@damage(K.STRANDED_GROUP, "asynq:{default}:g:g")
def w03_stranded_group(client: RedisClient, tasks: Tasks) -> None:
    client.srem(tasks.keys.groups, "g")


@damage(K.STRANDED_GROUP, "asynq:{default}:g:a:b", changed=["g:a:b", "t:member", "groups"])
def w04_stranded_group_with_a_colon(client: RedisClient, tasks: Tasks) -> None:
    tasks.put(TaskState.AGGREGATING, "member", group="a:b")
    client.srem(tasks.keys.groups, "a:b")


@damage(K.EMPTY_GROUP, "asynq:{default}:g:empty")
def name_of_a_group_without_members(client: RedisClient, tasks: Tasks) -> None:
    client.sadd(tasks.keys.groups, "empty")


@damage(
    K.ORPHAN_SET,
    "asynq:{default}:g:h:1",
    changed=["g:h:1", "g:h", "groups", "aggregation_sets"],
)
def set_that_is_in_no_list(client: RedisClient, tasks: Tasks) -> None:
    client.zrem(tasks.keys.aggregation_sets, tasks.keys.aggregation_set("h", "1"))


@damage(K.EMPTY_SET, "asynq:{default}:g:x:1")
def set_that_does_not_exist(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.aggregation_sets, {tasks.keys.aggregation_set("x", "1"): OVER})


@damage(K.EMPTY_SET, "asynq:{low}:g:h:1", "h")
def names_that_are_no_sets(client: RedisClient, tasks: Tasks) -> None:
    client.zadd(tasks.keys.aggregation_sets, {"asynq:{low}:g:h:1": OVER, "h": OVER})


@damage(K.LEAKED_LOCK, LOCK)
def w09_lock_of_a_task_that_is_gone(client: RedisClient, tasks: Tasks) -> None:
    client.set(LOCK, "gone", ex=60)


@damage(K.LEAKED_LOCK, LOCK)
def w02_lock_of_a_conflicting_id(client: RedisClient, tasks: Tasks) -> None:
    client.set(LOCK, "pending", ex=60)


@damage(K.LEAKED_LOCK, LOCK)
def w02_lock_of_a_task_without_one(client: RedisClient, tasks: Tasks) -> None:
    client.set(LOCK, "retry", ex=60)


@damage(K.LEAKED_LOCK, LOCK, changed=["t:finished", "completed"])
def lock_of_a_completed_task(client: RedisClient, tasks: Tasks) -> None:
    tasks.put(
        TaskState.COMPLETED,
        "finished",
        completed_at=NOW.seconds - 60,
        retention=60,
        unique_key=LOCK,
    )


@damage(K.ENDLESS_LOCK, LOCK)
def lock_without_end_of_a_task_that_is_gone(client: RedisClient, tasks: Tasks) -> None:
    client.set(LOCK, "gone")


@damage(K.ENDLESS_LOCK, LOCK, changed=["t:locked", "pending", LOCK])
def lock_without_end_of_a_waiting_task(client: RedisClient, tasks: Tasks) -> None:
    tasks.pending("locked", unique_key=LOCK)
    client.persist(LOCK)


@damage(K.ENDLESS_COUNTER, "asynq:{default}:processed:2033-05-18")
def counter_without_an_end(client: RedisClient, tasks: Tasks) -> None:
    client.persist(f"{tasks.keys.processed}:2033-05-18")


@damage(K.ARCHIVE_OVER_CAP, "asynq:{default}:archived")
def w10_archive_over_its_cap(client: RedisClient, tasks: Tasks) -> None:
    tasks.put(TaskState.ARCHIVED, "older", "oldest", score=OVER)


@damage(K.UNREGISTERED_QUEUE, "default")
def w08_queue_that_is_not_registered(client: RedisClient, tasks: Tasks) -> None:
    client.srem("asynq:queues", "default")


@damage(K.REMOVED_QUEUE, "asynq:{old}:x:limits", "asynq:{old}:x:ticks", queue="old")
def w12_keys_of_a_queue_that_was_removed(client: RedisClient, tasks: Tasks) -> None:
    client.hset("asynq:{old}:x:limits", "concurrency", 1)
    client.hset("asynq:{old}:x:ticks", "entry", 1)
    client.set("asynq:{old}:processed", 9)


@damage(
    K.UNSERVED_QUEUE, "low", changed=["asynq:{low}:pending", "asynq:{low}:t:p", "asynq:queues"], queue="low"
)
def queue_that_nobody_serves(client: RedisClient, tasks: Tasks) -> None:
    low = Tasks(client, "low")
    low.pending("p")
    client.hset(low.keys.task("p"), "pending_since", f"{PAST}000000000")


@damage(
    K.UNSERVED_QUEUE,
    "low",
    changed=["asynq:{low}:retry", "asynq:{low}:t:r", "asynq:queues"],
    queue="low",
)
def queue_whose_retries_nobody_forwards(client: RedisClient, tasks: Tasks) -> None:
    Tasks(client, "low").put(TaskState.RETRY, "r", score=PAST)


def put_server(client: RedisClient, *, engine: str = "", skew: int = 0, queue: str = "default") -> str:
    """Write the record of a server as it does itself, its clock `skew` seconds ahead; return its key."""
    key = server_key("host", 7, "abc")
    info = server(queues={queue: 1}, engine=engine)
    client.set(key, info.encode(), ex=10)
    client.zadd("asynq:servers", {key: client.time()[0] + skew + 10})
    return key


SERVER: Final = "server abc (process 7 on host)"
RECORDS: Final = ["asynq:servers", "asynq:servers:{host:7:abc}"]


@damage(K.LIMITS_IGNORED, SERVER, changed=RECORDS)
def limited_queue_that_a_server_in_go_serves(client: RedisClient, tasks: Tasks) -> None:
    put_server(client)


@damage(K.DEAD_SERVER, "asynq:servers:{host:8:dead}", "asynq:schedulers:{host:8:dead}", queue="")
def records_of_servers_that_died(client: RedisClient, tasks: Tasks) -> None:
    client.zadd("asynq:servers", {"asynq:servers:{host:8:dead}": OVER})
    client.zadd("asynq:schedulers", {"asynq:schedulers:{host:8:dead}": OVER})


@damage(
    K.ENDLESS_RECORD,
    "asynq:workers:{host:8:dead}",
    changed=["asynq:workers:{host:8:dead}"],
    queue="",
)
def w24_record_that_never_expires(client: RedisClient, tasks: Tasks) -> None:
    client.hset("asynq:workers:{host:8:dead}", "a", "b")


@damage(K.CLOCK_SKEW, SERVER, changed=RECORDS, queue="")
def w23_server_whose_clock_is_ahead(client: RedisClient, tasks: Tasks) -> None:
    put_server(client, skew=30, engine="pyasynq")
