"""How large the calls of plans are: some managed servers refuse one of 4,000 arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.aggregation_sets import AggregationSet, finish_set, renew_sets
from pyasynq._broker.enqueueing.chunks import RunBatch
from pyasynq._broker.enqueueing.compose import compose
from pyasynq._broker.groups import GroupLimits, check_groups
from pyasynq._broker.inspecting.actions import ArchiveLimits, archive_tasks, delete_tasks, run_tasks
from pyasynq._broker.leases import PoisonTask, RecoverTask, archive_poison, recover, renew
from pyasynq._broker.locks import HeldLock, renew_locks
from pyasynq._broker.schedules import begin_entries
from pyasynq._broker.servers import write_server_state
from pyasynq._broker.settle import (
    ArchiveTask,
    Claim,
    CompleteTask,
    RequeueTask,
    RetryTask,
    settle_archive,
    settle_complete,
    settle_done,
    settle_requeue,
    settle_retry,
)
from pyasynq._broker.task_events import publish_events
from pyasynq._clock import Instant
from pyasynq._redis.plan import CommandCall, ScriptCall
from pyasynq._wire.messages import ServerInfo, WorkerInfo
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.plan import Call, Plan

NOW = Instant(2_000_000_000)
ITEMS = 5_000
MOST = 3_900
CLAIM = Claim("id", "token", 1)


class Finished(Claim):
    """A finished task as `settle_done` takes it."""

    unique_key = ""


def size_of(call: Call) -> int:
    """Return how many arguments the command of a call has, its name and the script included."""
    if isinstance(call, CommandCall):
        return len(call.command)
    assert isinstance(call, ScriptCall)
    return 3 + len(call.keys) + len(call.args)


def sizes(plan: Plan[Any], reply: Callable[[ScriptCall], Any]) -> list[int]:
    """Run a plan; return how large its calls were."""
    found: list[int] = []
    answer: Any = None
    try:
        while True:
            call = plan.send(answer)
            found.append(size_of(call))
            answer = reply(call) if isinstance(call, ScriptCall) else 0
    except StopIteration:
        return found


def server(number: int) -> Plan[None]:
    """Write the state of a server with this many tasks."""
    info = ServerInfo(
        host="h",
        pid=1,
        server_id="s",
        concurrency=number,
        queues={"q": 1},
        strict_priority=False,
        status="active",
        start_time=None,
        active_worker_count=number,
    )
    worker = WorkerInfo(
        host="h",
        pid=1,
        server_id="s",
        task_id="id",
        task_type="t",
        task_payload=b"",
        queue="q",
        start_time=None,
        deadline=None,
    )
    return write_server_state(info, [worker] * number, now=NOW)


def finish(number: int) -> Plan[Any]:
    """Finish a set with this many unique members."""
    one = AggregationSet("q", "g", "set")
    aggregate = compose(Task("t", b""), {"queue": "q"}, now=NOW)
    return finish_set(one, aggregate, locks=[("id", "lock")] * number, now=NOW)


def nothing(_: ScriptCall) -> list[Any]:
    """Answer that nothing was refused."""
    return []


LIMITS = ArchiveLimits(9_999, 0)
PLANS: dict[str, tuple[Plan[Any], Callable[[ScriptCall], Any]]] = {
    "renew": (renew("q", [CLAIM] * ITEMS, now=NOW), lambda _: [1, 1, 1]),
    "recover": (recover("q", [RecoverTask("id", "token", 1)] * ITEMS, now=NOW), nothing),
    "poison": (
        archive_poison(
            "q", [PoisonTask("id", "token", 1, b"", 1, b"")] * ITEMS, max_size=9_999, cutoff=0, now=NOW
        ),
        lambda _: [0, 0],
    ),
    "done": (settle_done("q", [Finished("id", "token", 1)] * ITEMS, now=NOW), nothing),
    "complete": (settle_complete("q", [CompleteTask(CLAIM, "", b"", 1, None)] * ITEMS, now=NOW), nothing),
    "retry": (
        settle_retry("q", [RetryTask(CLAIM, b"", 1, is_failure=True, trace=b"")] * ITEMS, now=NOW),
        nothing,
    ),
    "archive": (
        settle_archive("q", [ArchiveTask(CLAIM, b"", 1, b"")] * ITEMS, max_size=9_999, cutoff=0, now=NOW),
        lambda _: [0, 0],
    ),
    "requeue": (settle_requeue("q", [RequeueTask(CLAIM)] * ITEMS, now=NOW), nothing),
    "groups": (
        check_groups("q", [("g", GroupLimits(grace=1))] * ITEMS, most_sets=100, now=NOW),
        lambda call: [1, 1, *[0, b""] * call.args.count("g")],
    ),
    "locks": (renew_locks("q", [HeldLock("id", "lock")] * ITEMS), lambda _: 0),
    "sets": (renew_sets("q", [AggregationSet("q", "g", "set")] * ITEMS, now=NOW), nothing),
    "finish": (finish(ITEMS), lambda _: 1),
    "server": (server(ITEMS), lambda _: 1),
    "entries": (
        begin_entries("q", ["id"] * ITEMS, now=NOW),
        lambda call: [1, 1, *[b"1", b"1"] * call.args.count("id")],
    ),
    "run": (run_tasks("q", ["id"] * ITEMS, now=NOW), lambda _: [0, []]),
    "archived": (archive_tasks("q", ["id"] * ITEMS, limits=LIMITS, now=NOW), lambda _: [0, 0, 0, [], []]),
    "delete": (delete_tasks("q", ["id"] * ITEMS), lambda _: [0, [], [], []]),
    "publish": (publish_events("q", [b"event"] * ITEMS, max_length=1), lambda _: 0),
}


@pytest.mark.parametrize("name", PLANS)
def test_no_call_has_more_arguments_than_a_managed_server_takes(name: str) -> None:
    """The calls together carry all 5,000 items. (D47)"""
    plan, reply = PLANS[name]
    found = sizes(plan, reply)
    assert max(found) <= MOST
    assert sum(found) > ITEMS


@pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unique": 60},
        {"process_in": 60},
        {"process_in": 60, "unique": 60},
        {"group": "g", "unique": 60},
        {"group": "g", "process_in": 60},
        {"unique": 60, "on_duplicate": "replace_payload", "process_in": 60},
    ],
    ids=str,
)
def test_no_enqueue_has_more_arguments_than_a_managed_server_takes(
    options: dict[str, Any], *, durable: bool
) -> None:
    """This holds for each kind of task. (D47)"""
    extra = {"durable": True} if durable else {}
    items = [compose(Task("t", b""), {**options, **extra}, now=NOW) for _ in range(2_000)]
    batch = RunBatch(items, now=NOW, durable=durable)
    found = []
    for plan in batch.plans:
        call: Any = next(plan)
        while True:
            inner = getattr(call, "call", call)
            found.append(size_of(inner))
            try:
                call = plan.send([])
            except StopIteration:
                break
    assert max(found) <= MOST
    assert sum(found) > 2 * len(items)
