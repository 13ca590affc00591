"""Attempts whose worker has crashed, as their holder says."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._broker.settle import RequeueTask, settle_requeue
from pyasynq._wire.history import encode_attempt
from pyasynq.consumer import ConsumerConfig
from pyasynq.errors import AttemptSettledError, InvalidOptionError, LeaseExpiredError
from pyasynq.events import Outcome, TaskPoisoned, TaskRecovered
from pyasynq.inspector import Inspector
from pyasynq.task import TaskState
from tests.factories import NOW, Tasks, claim
from tests.fix_broker import BlockingPerformer
from tests.fix_consumer import consuming
from tests.fix_engine import QUICK
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient

AT_ONCE = dataclasses.replace(QUICK, silence_share=100.0)
"""Tasks that may kill their worker are taken without waiting for a silence."""
CRASH = encode_attempt("crashed", "gone", server="s", started_at=1.0, ended_at=2.0)


def crash(*ids: str) -> Any:
    """Put tasks of crashed workers back."""
    return settle_requeue("default", [RequeueTask(claim(task_id), CRASH) for task_id in ids], now=NOW)


def test_crashed_tasks_go_to_the_front_and_the_crash_is_counted(perform: Perform, tasks: Tasks) -> None:
    """Fails if the script no longer makes one of its writes.

    Or counts a crash for a task that is only put back.
    """
    tasks.pending("waiting")
    tasks.active("a")
    tasks.active("b", crashes=2)
    tasks.active("c", extra={"x:crashes": b"many"})
    perform(crash("a", "b", "c"))
    assert ["a", "b", "c", "waiting"] == tasks.ids("pending")
    counts = [tasks.fields(task_id)["x:crashes"] for task_id in "abc"]
    assert [b"1", b"3", b"1"] == counts
    assert all(b"[" + CRASH + b"]" == tasks.fields(task_id)["x:attempts"] for task_id in "abc")
    assert {} == tasks.scores("lease")


def test_the_lock_of_a_crashed_task_holds_while_it_waits(
    perform: Perform, tasks: Tasks, redis_client: RedisClient
) -> None:
    """It is nearly over; the task has run for as long as it was asked for."""
    lock = "asynq:{default}:unique:t:x"
    tasks.active("a", unique_key=lock, extra={"x:unique_ttl": b"500"})
    redis_client.expire(lock, 5)
    perform(crash("a"))
    assert 400 < redis_client.ttl(lock) <= 500


def test_a_crash_that_is_sent_again_counts_once(redis_client: RedisClient, tasks: Tasks) -> None:
    """The reply of the first call was lost."""
    tasks.active("a")
    BlockingPerformer(redis_client)(crash("a"))
    assert frozenset() == BlockingPerformer(redis_client, replay=True)(crash("a")).refused
    assert b"1" == tasks.fields("a")["x:crashes"]


@run_async
async def test_a_crash_shows_in_the_task_and_spends_no_retry(redis_url: str, tasks: Tasks) -> None:
    """At the front, with one crash and an attempt that says why."""
    tasks.pending("a", "b", retry=3)
    async with consuming(redis_url) as c, Inspector(redis_url) as inspector:
        [attempt] = await c.consumer.lease()
        await attempt.crashed("connection lost")
        assert Outcome.REQUEUED is (await c.finished("a")).outcome
        assert ["a", "b"] == tasks.ids("pending")
        info = await inspector.task_info("default", "a")
        assert (1, 0, TaskState.PENDING) == (info.crashes, info.retried, info.state)
        [shown] = info.attempts
        assert ("crashed", "connection lost", c.consumer.id) == (shown.outcome, shown.error, shown.server_id)
        assert shown.started_at is not None
        assert [("a", 1)] == [(one.task_id, one.crashes) for one in c.recorder.of(TaskRecovered)]
        async with c.consumer.take() as [again]:
            assert ("a", 1) == (again.id, again.crashes)
            await again.done()


@pytest.mark.parametrize(("limit", "crashes"), [(3, 2), (1, 0), (0, 0)])
@run_async
async def test_the_last_crash_archives_the_task_as_poison(
    redis_url: str, tasks: Tasks, limit: int, crashes: int
) -> None:
    """At the crash limit, in a block as well as under a lease."""
    tasks.put(TaskState.PENDING, "a", extra={"x:crashes": crashes} if crashes else None)
    async with consuming(redis_url, ConsumerConfig(crash_limit=limit), AT_ONCE) as c:
        async with Inspector(redis_url) as inspector, c.consumer.take() as [attempt]:
            await attempt.crashed("killed by the kernel")
            info = await inspector.task_info("default", "a")
        assert TaskState.ARCHIVED is info.state
        times = "once" if limit < 2 else "3 times"
        assert f"poison: its worker crashed {times} while running it: killed by the kernel" == info.last_error
        assert [("crashed", "killed by the kernel")] == [(one.outcome, one.error) for one in info.attempts]
        assert [("a", crashes + 1)] == [(one.task_id, one.crashes) for one in c.recorder.of(TaskPoisoned)]
    assert [] == tasks.ids("pending") == tasks.ids("active")


@pytest.mark.parametrize("crash_limit", [1, 3])
@pytest.mark.parametrize("elsewhere", [False, True])
@run_async
async def test_a_crash_that_is_told_again_is_answered_as_the_first(
    redis_url: str, tasks: Tasks, *, elsewhere: bool, crash_limit: int
) -> None:
    """By any consumer, put back or archived; another word comes too late."""
    config = ConsumerConfig(crash_limit=crash_limit)
    tasks.pending("a")
    async with consuming(redis_url, config) as one, consuming(redis_url, config) as two:
        [attempt] = await one.consumer.lease()
        await asyncio.gather(attempt.crashed("gone"), attempt.crashed("gone"))
        again = await (two if elsewhere else one).consumer.find("default", "a", attempt.receipt)
        assert "crashed" == again.verdict
        await again.crashed("gone")
        with pytest.raises(AttemptSettledError, match="before, as 'crashed'"):
            await again.requeue()
        assert 1 == len(one.recorder.of(TaskRecovered)) + len(one.recorder.of(TaskPoisoned))


@run_async
async def test_a_crash_needs_its_reason_and_its_lease(redis_url: str, tasks: Tasks) -> None:
    """What is refused settles nothing."""
    tasks.pending("a")
    async with consuming(redis_url) as c:
        [attempt] = await c.consumer.lease()
        with pytest.raises(InvalidOptionError, match="must be text"):
            await attempt.crashed(None)  # type: ignore[arg-type]
        tasks.client.hset(tasks.keys.task("a"), "x:attempt", "other/1")
        with pytest.raises(LeaseExpiredError):
            await attempt.crashed("gone")
    assert ["a"] == tasks.ids("active")
