"""Groups, locks, counters, queues, servers: everything except tasks."""

# ruff: noqa: D103 - the names say it

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq import Callback
from pyasynq._broker.outbox import make_callback_id
from pyasynq._wire.endings import encode_callback
from pyasynq._wire.keys import server_key
from pyasynq.task import TaskState
from tests.contract.damages._made import LOCK, OVER, PAST, K, damage
from tests.contract.test_servers import server
from tests.factories import NOW, Tasks

if TYPE_CHECKING:
    from tests.invariants import RedisClient

CALLBACK_ID: Final = make_callback_id("default", b"address")


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
def names_that_are_not_sets(client: RedisClient, tasks: Tasks) -> None:
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


@damage(
    K.WRONG_COUNTER,
    "asynq:{default}:processed:2033-05-18",
    changed=["processed:2033-05-18", "failed:2033-05-18", "processed", "failed"],
)
def more_failed_in_a_day_than_were_processed(client: RedisClient, tasks: Tasks) -> None:
    client.mset({tasks.keys.processed: 9, tasks.keys.failed: 9})
    client.incrby(f"{tasks.keys.failed}:2033-05-18", 6)


@damage(
    K.WRONG_COUNTER,
    "asynq:{default}:processed",
    "asynq:{default}:failed",
    changed=["processed:2033-05-17", "failed:2033-05-17", "processed", "failed"],
)
def more_in_some_days_than_in_all(client: RedisClient, tasks: Tasks) -> None:
    client.set(f"{tasks.keys.processed}:2033-05-17", 4, ex=60)
    client.set(f"{tasks.keys.failed}:2033-05-17", 3, ex=60)


@damage(K.WRONG_COUNTER, "asynq:{default}:processed", changed=["processed", "failed"])
def more_failed_in_all_than_were_processed(client: RedisClient, tasks: Tasks) -> None:
    client.delete(tasks.keys.processed)
    client.set(tasks.keys.failed, 7)


@damage(K.WRONG_COUNTER, "asynq:{default}:failed:2033-05-18", changed=["failed:2033-05-18"])
def counter_that_is_not_a_number(client: RedisClient, tasks: Tasks) -> None:
    client.set(f"{tasks.keys.failed}:2033-05-18", "1.5", ex=60)


@damage(K.OLD_HISTORY, "asynq:scheduler_history:gone", changed=["asynq:scheduler_history:gone"], queue="")
def w26_history_of_an_entry_that_is_gone(client: RedisClient, tasks: Tasks) -> None:
    client.zadd("asynq:scheduler_history:gone", {"event": OVER})


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


@damage(K.FUTURE_TICK, "entry", "entry:since", changed=["x:ticks"])
def d12_ticks_in_the_future(client: RedisClient, tasks: Tasks) -> None:
    client.hset(tasks.keys.ticks, mapping={"entry": 10**15, "entry:since": 10**15, "sound": PAST})


@damage(
    K.UNTOLD_ENDING,
    "address",
    changed=[
        *(f"asynq:{{reports}}:t:{CALLBACK_ID}", f"asynq:{{reports}}:x:once:{CALLBACK_ID}"),
        *("asynq:{reports}:pending", "asynq:queues"),
    ],
)
def end_that_its_callback_was_not_told(client: RedisClient, tasks: Tasks) -> None:
    callback = encode_callback(Callback("ready", "reports"), "t", "n")
    parts = [b"enqueue", b"%d" % PAST, b"id", b"succeeded", b"", b"", callback]
    client.hset(tasks.keys.outbox, "address", b"".join(b"%d:%b," % (len(part), part) for part in parts))


@damage(
    K.UNSERVED_QUEUE, "low", changed=["asynq:{low}:pending", "asynq:{low}:t:p", "asynq:queues"], queue="low"
)
def queue_without_a_server(client: RedisClient, tasks: Tasks) -> None:
    low = Tasks(client, "low")
    low.pending("p")
    client.hset(low.keys.task("p"), "pending_since", f"{PAST}000000000")


@damage(
    K.UNSERVED_QUEUE,
    "low",
    changed=["asynq:{low}:retry", "asynq:{low}:t:r", "asynq:queues"],
    queue="low",
)
def queue_without_a_forwarder_for_its_retries(client: RedisClient, tasks: Tasks) -> None:
    Tasks(client, "low").put(TaskState.RETRY, "r", score=PAST)


@damage(K.WRONG_TYPE, "asynq:{low}:pending", queue="low")
def key_of_another_program(client: RedisClient, tasks: Tasks) -> None:
    client.set("asynq:{low}:pending", "oops")


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


@damage(
    K.UNSERVED_TYPE, "misspelt", changed=[*RECORDS, "asynq:{default}:retry", "asynq:{default}:t:misspelt"]
)
def type_without_a_handler(client: RedisClient, tasks: Tasks) -> None:
    put_server(client, engine='pyasynq {"types":["email:deliver"],"prefixes":["img:"]}')
    for name in ("img:resize", "misspelt"):
        tasks.put(TaskState.RETRY, name, type=name)


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
