"""A Redis at `maxmemory` that does not evict: what drains it goes on, what fills it is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.aggregation_sets import quarantine_member, read_set, release_sets, renew_sets
from pyasynq._broker.delayed import delete_expired_completed, forward
from pyasynq._broker.dequeue import dequeue, find_dequeued
from pyasynq._broker.enqueue import QueueRegistry, enqueue_run, split_runs
from pyasynq._broker.groups import check_groups, list_groups
from pyasynq._broker.inspect_queues import queue_info
from pyasynq._broker.inspect_tasks import get_task, list_tasks
from pyasynq._broker.leases import (
    PoisonTask,
    RecoverTask,
    archive_poison,
    list_expired,
    list_unleased,
    recover,
    renew,
)
from pyasynq._broker.results import write_result
from pyasynq._broker.schedules import (
    clear_scheduler_entries,
    forget_entries,
    list_schedulers,
    record_enqueue_event,
    write_scheduler_entries,
)
from pyasynq._broker.servers import clear_server_state, list_servers, write_server_state
from pyasynq.errors import RedisOutOfMemoryError
from pyasynq.task import TaskState
from tests.contract.aggregating import LIMITS, STAGED, finish
from tests.contract.enqueueing import composed
from tests.contract.settling import CUTOFF, archive, complete, done, requeue, retry
from tests.contract.test_schedules import entry, event, fire_tick
from tests.contract.test_servers import server, worker
from tests.factories import LEASE_SCORE, NOW, TOKEN, Tasks, claim
from tests.fix_broker import BlockingPerformer, Perform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyasynq._broker.plan import Plan
    from tests.invariants import RedisClient

EXPIRED = NOW.seconds - 60


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
    return BlockingPerformer(redis_client, flags=request.param)


def prepare(tasks: Tasks) -> None:
    """One task for each plan, before Redis is full."""
    tasks.pending("waiting")
    tasks.active("a", "b", retention=60)
    tasks.active("dead", lease=EXPIRED)
    tasks.put(TaskState.SCHEDULED, "due")
    tasks.put(TaskState.RETRY, "grouped", group="g")
    tasks.put(TaskState.COMPLETED, "old", completed_at=NOW.seconds - 60, retention=60)
    tasks.client.hset(tasks.keys.ticks, mapping={"gone": 9, "gone:since": 8})
    tasks.put(TaskState.AGGREGATING, "member", group="h", score=1)
    tasks.in_set(STAGED.group, STAGED.id, "staged")


def poison() -> Plan[Any]:
    """Archive the task whose worker died."""
    task = PoisonTask("dead", TOKEN, EXPIRED, b"", NOW.ceiling, b"trace")
    return archive_poison("default", [task], max_size=9_999, cutoff=CUTOFF, now=NOW)


DRAINING: dict[str, Callable[[], Plan[Any]]] = {
    "dequeue": lambda: dequeue("default", limit=5, token=TOKEN, now=NOW),
    "find_dequeued": lambda: find_dequeued("default", token=TOKEN),
    "done": lambda: done([claim("a")]),
    "complete": lambda: complete([claim("a")], result=b"x"),
    "retry": lambda: retry([claim("a")], trace=b"x"),
    "archive": lambda: archive([claim("a")], trace=b"x"),
    "requeue": lambda: requeue([claim("a")]),
    "renew": lambda: renew("default", [claim("a"), claim("b")], now=NOW.plus(5)),
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
    "quarantine": lambda: quarantine_member(
        STAGED, "staged", reason="bytes", max_size=9_999, cutoff=CUTOFF, now=NOW
    ),
    "delete_expired": lambda: delete_expired_completed("default", batch=10, now=NOW),
    "write_result": lambda: write_result("default", "a", TOKEN, b"result", lease_score=LEASE_SCORE),
    "write_server_state": lambda: write_server_state(server(), [worker("a")], now=NOW),
    "clear_server_state": lambda: clear_server_state("host", 7, "abc"),
    "list_servers": lambda: list_servers(NOW),
    "write_scheduler_entries": lambda: write_scheduler_entries("s", [entry("e")], now=NOW),
    "clear_scheduler_entries": lambda: clear_scheduler_entries("s"),
    "list_schedulers": lambda: list_schedulers(NOW),
    "record_enqueue_event": lambda: record_enqueue_event("e", event()),
    "forget_entries": lambda: forget_entries("default", before=10, keep=()),
    "queue_info": lambda: queue_info("default", NOW),
    "list_tasks": lambda: list_tasks("default", TaskState.ACTIVE, 0, 10),
    "get_task": lambda: get_task("default", "waiting"),
}


@pytest.mark.parametrize("plan", DRAINING.values(), ids=DRAINING.keys())
def test_h25_what_drains_a_full_redis_does_what_it_does_otherwise(
    redis_client: RedisClient,
    perform: Perform,
    perform_when_full: Perform,
    tasks: Tasks,
    full: Callable[[], None],
    plan: Callable[[], Plan[Any]],
) -> None:
    """Sees the loss of the flag, and on Redis 6.2 that of the first write that frees memory."""
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
    ],
)
def test_h25_a_full_redis_refuses_new_tasks(
    redis_client: RedisClient,
    perform_when_full: Perform,
    full: Callable[[], None],
    options: dict[str, Any],
) -> None:
    """With an error of its own class, and nothing is written."""
    registry = QueueRegistry()
    registry.remember("default")
    [run] = split_runs([composed("a", **options), composed("b", b"b", **options)])
    full()
    with pytest.raises(RedisOutOfMemoryError):
        perform_when_full(enqueue_run(run, now=NOW, registry=registry))
    assert [] == redis_client.keys("*")


def test_h25_a_full_redis_refuses_ticks(
    redis_client: RedisClient, perform_when_full: Perform, full: Callable[[], None]
) -> None:
    """So the tick is not lost: it has not been fired."""
    registry = QueueRegistry()
    registry.remember("default")
    full()
    with pytest.raises(RedisOutOfMemoryError):
        perform_when_full(fire_tick(registry=registry))
    assert [] == redis_client.keys("*")


def test_h25_an_archive_that_is_too_full_is_trimmed(
    redis_client: RedisClient, perform_when_full: Perform, tasks: Tasks, full: Callable[[], None]
) -> None:
    """Also in the calls that follow the first."""
    tasks.active("a")
    redis_client.zadd(tasks.keys.archived, {f"{number}": 1 for number in range(1_500)})
    full()
    assert 1_500 == perform_when_full(archive([claim("a")], cutoff=10)).trimmed
