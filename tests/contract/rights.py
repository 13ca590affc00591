"""All that a producer, a worker and a scheduler may ask of Redis, as plans; for the tests about rights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyasynq._broker.aggregation_sets import read_set, reclaim_stale_sets, renew_sets
from pyasynq._broker.delayed import delete_expired_completed, forward
from pyasynq._broker.dequeue import dequeue, find_dequeued
from pyasynq._broker.enqueue import QueueRegistry, enqueue_run, split_runs
from pyasynq._broker.groups import check_groups, list_groups
from pyasynq._broker.health import ping
from pyasynq._broker.leases import (
    PoisonTask,
    RecoverTask,
    archive_poison,
    list_expired,
    list_unleased,
    recover,
    renew,
)
from pyasynq._broker.plan import Plan, Replay, ScriptCall
from pyasynq._broker.results import write_result
from pyasynq._broker.schedules import (
    begin_entries,
    clear_scheduler_entries,
    forget_entries,
    list_schedulers,
    record_enqueue_event,
    write_scheduler_entries,
)
from pyasynq._broker.server_facts import server_facts
from pyasynq._broker.servers import clear_server_state, write_server_state
from pyasynq.task import TaskState
from tests.contract import settling
from tests.contract.aggregating import LIMITS, STAGED, finish
from tests.contract.enqueueing import composed
from tests.contract.test_schedules import entry, event, fire_tick
from tests.contract.test_servers import server, worker
from tests.factories import LEASE_SCORE, NOW, Tasks, claim, message_bytes

if TYPE_CHECKING:
    import redis

EXPIRED = NOW.seconds - 60


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


def producer_work() -> list[Plan[Any]]:
    """Enqueue in all ways."""
    lock: dict[str, Any] = {"unique": 60}
    later: dict[str, Any] = {"process_in": 60}
    group: dict[str, Any] = {"group": "g"}
    ways = [{}, lock, later, lock | later, group, group | lock, group | later, group | lock | later]
    plans: list[Plan[Any]] = [ping()]
    for number, options in enumerate(ways):
        # Payloads differ so that locks do; a second task of the last payload meets its lock.
        for name, payload in ((f"p{number}", b"%d" % number), (f"q{number}", b"%d" % number)):
            [run] = split_runs([composed(name, payload, **options)])
            plans.append(replayed(enqueue_run(run, now=NOW, registry=QueueRegistry())))
    return plans


def prepare_worker(client: redis.Redis) -> None:
    """Put tasks into the places where a worker's work finds them."""
    tasks = Tasks(client)
    tasks.active(*"abcdefgh")
    tasks.active("unique", unique_key="asynq:{default}:unique:x")
    tasks.active("unleased", lease=None)
    tasks.active("expired", "poison", lease=EXPIRED)
    tasks.put(TaskState.ARCHIVED, "old", "older", score=EXPIRED)
    tasks.put(TaskState.SCHEDULED, "due", score=EXPIRED)
    tasks.put(TaskState.SCHEDULED, "to-group", score=EXPIRED, extra={"x:group": "h"})
    tasks.put(TaskState.COMPLETED, "over", score=EXPIRED)
    tasks.put(TaskState.AGGREGATING, "member", group="due", score=EXPIRED)
    tasks.in_set(STAGED.group, STAGED.id, "staged")
    tasks.in_set("stale", "stale-set", "stale", stale_at=EXPIRED)
    client.sadd(tasks.keys.groups, "empty")
    tasks.pending("waiting")
    client.lpush(tasks.keys.pending, "ghost")


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
    ]
    return [
        *producer_work(),
        server_facts(),
        dequeue("default", limit=9, token="t", suspect_from=0, suspect_room=True, now=None),
        find_dequeued("default", token="t"),
        renew("default", [claim("f"), claim("unleased")], now=NOW),
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
        clear_server_state("host", 7, "abc"),
    ]


def scheduler_work() -> list[Plan[Any]]:
    """Fire ticks in all ways, and keep records."""
    options: list[dict[str, Any]] = [{}, {"process_in": 60}, {"group": "g"}, {"unique": 60}]
    ticks = [replayed(fire_tick(100 + at, f"s{at}", **some)) for at, some in enumerate(options)]
    return [
        ping(),
        server_facts(),
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
