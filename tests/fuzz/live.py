"""Fuzzers on a real server: names of all kinds, and values from other programs."""

from __future__ import annotations

import atexit
import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import redis
from hypothesis import strategies as st

from pyasynq import sync
from pyasynq._broker.cancellation import read_requests, request_cancelation
from pyasynq._broker.dequeue import dequeue
from pyasynq._broker.inspecting.tasks import Scanned, scan_tasks
from pyasynq._broker.leases import list_expired, list_unleased
from pyasynq._broker.stored_limits import get_limits
from pyasynq._broker.task_records import decode_task_infos
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq.embedded import EmbeddedServer
from pyasynq.errors import PyasynqError, RedisReplyError
from pyasynq.task import TaskState
from tests.contract.rights import (
    doctor_work,
    prepare_worker,
    scheduler_work,
    worker_work,
)
from tests.factories import NOW
from tests.fuzz.fuzzer import BYTES, fuzzer
from tests.invariants import check_invariants

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan


class _Place(NamedTuple):
    """A server of this process, and doors to it."""

    url: str
    raw: redis.Redis
    driver: BlockingDriver
    client: sync.Client
    inspector: sync.Inspector


@functools.cache
def _place() -> _Place:
    server = EmbeddedServer(binary=os.environ.get("PYASYNQ_TEST_BINARY"))
    server.start()
    place = _Place(
        server.url,
        redis.Redis.from_url(server.url),
        BlockingDriver(parse_redis_url(server.url), client_name="fuzz"),
        sync.Client(server.url),
        sync.Inspector(server.url),
    )

    def close() -> None:
        for door in (place.raw, place.driver, place.client, place.inspector):
            door.close()
        server.stop()

    atexit.register(close)
    return place


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12) | st.text(
    "{}:\x00\n a", min_size=1, max_size=6
)
NAME = NAMES.filter(str.strip)


@fuzzer(st.tuples(NAME, NAME, NAME, NAME))
def live_names(names: tuple[str, str, str, str]) -> None:
    """A task goes through a queue whatever the names of both, and leaves nothing behind."""
    queue, task_id, group, task_type = names
    url, raw, driver, _, inspector = _place()
    raw.flushall()
    # A client that knew the queue before it was deleted might send its name only after half a second.
    with sync.Client(url) as client:
        client.enqueue(task_type, b"{}", queue=queue, task_id=task_id, headers={group: queue}, unique=60)
        client.enqueue(task_type, b"1", queue=queue, task_id=f"{task_id}2", group=group)
    assert [queue] == inspector.queues()
    found = inspector.task_info(queue, task_id)
    assert (task_id, task_type) == (found.id, found.type)
    assert [(group, 1)] == [(one.name, one.size) for one in inspector.groups(queue)]
    [taken] = driver.run(dequeue(queue, limit=9, token="t/1", now=None)).tasks
    assert task_id == taken.id
    if "}" not in queue:  # where that name ends in a key is a matter of taste
        check_invariants(raw)
    driver.run(request_cancelation(task_id, queue, "retry", now=NOW))
    assert [task_id] == list(driver.run(read_requests(queue, [task_id])))
    raw.delete(f"asynq:{{{queue}}}:x:cancel", f"asynq:{{{queue}}}:lease", f"asynq:{{{queue}}}:active")
    raw.delete(f"asynq:{{{queue}}}:t:{task_id}")
    inspector.remove_queue(queue, force=True)
    left = raw.keys("*")
    assert not [key for key in left if b":unique:" not in key], left


TASKS = [
    "a",
    "unique",
    "unleased",
    "expired",
    "poison",
    "old",
    "due",
    "to-group",
    "over",
    "member",
    "staged",
    "waiting",
]
TASK_FIELDS = ["msg", "state", "unique_key", "group", "result", "pending_since"]
OWN_FIELDS = ["attempt", "crashes", "group", "unique_ttl", "trace", "attempts", "progress"]
FIELD = st.sampled_from([*TASK_FIELDS, *(f"x:{name}" for name in OWN_FIELDS)])
HASHES = st.sampled_from(["x:limits", "x:cancel", "x:ticks"])
SETTINGS = st.sampled_from(["concurrency", "rate", "period", "burst", "ordered", "a", "e", "e:since"])
LISTS = st.sampled_from(["pending", "active"])
SETS = st.sampled_from(["lease", "scheduled", "retry", "archived", "completed", "aggregation_sets"])
DAMAGE = (
    st.tuples(st.just("task"), st.sampled_from(TASKS), FIELD, BYTES)
    | st.tuples(st.just("hash"), HASHES, SETTINGS, BYTES)
    | st.tuples(st.just("list"), LISTS, st.none(), BYTES)
    | st.tuples(st.just("set"), SETS, st.floats(allow_nan=False), BYTES)
    | st.tuples(
        st.just("names"), st.sampled_from(["asynq:queues", "asynq:{default}:groups"]), st.none(), BYTES
    )
)


def _damage(raw: redis.Redis, kind: str, where: str, what: Any, data: bytes) -> None:
    prefix = "asynq:{default}:"
    if kind == "task":
        raw.hset(f"{prefix}t:{where}", what, data)
    elif kind == "hash":
        raw.hset(prefix + where, what, data)
    elif kind == "list":
        raw.lpush(prefix + where, data)
        raw.hset(prefix.encode() + b"t:" + data, mapping={"msg": b"\x1a\x01z", "state": where})
    elif kind == "set":
        raw.zadd(prefix + where, {data: what})
    else:
        raw.sadd(where, data)


def _looks() -> list[Plan[Any]]:
    return [
        get_limits("default"),
        read_requests("default", ["a", "e"]),
        list_expired("default", now=NOW),
        list_unleased("default"),
        *(scan_tasks("default", state, 0, 50) for state in TaskState if state is not TaskState.AGGREGATING),
    ]


@fuzzer(st.lists(DAMAGE, min_size=1, max_size=4))
def live_damage(damages: list[tuple[str, str, Any, bytes]]) -> None:
    """What somebody wrote into Redis stops no script: workers, schedulers and the doctor do their rounds."""
    _, raw, driver, _, inspector = _place()
    raw.flushall()
    prepare_worker(raw)
    for damage in damages:
        _damage(raw, *damage)
    for plan in [*_looks(), *worker_work(), *scheduler_work(), *doctor_work(), *_looks()]:
        try:
            found = driver.run(plan)
        except RedisReplyError:
            raise
        except PyasynqError:
            continue
        if isinstance(found, Scanned):
            list(decode_task_infos(found.records, NOW))
    for name in inspector.queues():
        try:
            inspector.queue_info(name)
            inspector.groups(name)
        except RedisReplyError:
            raise
        except PyasynqError:
            continue
