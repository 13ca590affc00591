"""Leases on a real Redis: renewed, lost, stolen; settles that fail; cancel requests; shutdown."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any

from pyasynq._clock import SystemClock
from pyasynq._engine.settings import EngineSettings
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.events import (
    AttemptOverdue,
    LeaseLost,
    LoopBlocked,
    Outcome,
    RoundFinished,
    TaskFinished,
    TaskStarted,
)
from pyasynq.server import Server
from tests.fix_engine import QUICK, Gate, Recorder, serving
from tests.run_async import run_async
from tests.waiting import set_to, wait_until

if TYPE_CHECKING:
    import redis

    from pyasynq.task import Task
    from tests.factories import Tasks
    from tests.fix_engine import Running


async def subscribed(running: Running) -> None:
    """Wait until cancel requests are heard."""
    engine = running.server._engine
    assert engine is not None
    subscriber: Any = next(service for service in engine._started if service.name == "subscriber")
    while not subscriber.subscribed:
        await running.next_round("deadlines")


@run_async
async def test_h05_a_stolen_token_cancels_the_handler_and_nothing_is_written(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """The renewal finds that another attempt has the task."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        redis_client.hset(tasks.keys.task("a"), "x:attempt", "other/1")
        assert Outcome.LET_GO is (await running.finished("a")).outcome
        await running.recorder.wait(LeaseLost)
        await running.settled()
    assert gate.cancelled
    assert b"other/1" == tasks.fields("a")["x:attempt"]
    assert ["a"] == tasks.ids("active")


@run_async
async def test_h09_the_heartbeat_renews_the_locks_of_running_tasks(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """Locks of tasks that have one are renewed until their success, which releases them."""
    gate = Gate()
    lock = tasks.keys.unique("t", b"")
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", b"plain", task_id="plain")
        await running.client.enqueue("t", b"", task_id="a", unique=600)
        await running.recorder.wait(TaskStarted, lambda started: started.task_id == "a")
        redis_client.expire(lock, 60)
        # Any number of beats may have been sent before and not been taken in yet.
        while redis_client.ttl(lock) <= 60:
            await running.next_round("heartbeater")
        assert (b"a", set_to(600)) == (redis_client.get(lock), redis_client.ttl(lock))
        gate.open.set()
        await running.finished("a")
        await running.settled()
    assert 0 == redis_client.exists(lock)


@run_async
async def test_h09_a_failed_task_keeps_its_lock_until_its_next_attempt(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """The lock then lasts for the retry delay and its own time."""
    lock = tasks.keys.unique("t", b"")

    async def fail(task: Task) -> None:
        raise ValueError

    config = ServerConfig(retry_delay=lambda retried, error, task: 100)
    async with serving(redis_url, fail, config) as running:
        await running.client.enqueue("t", b"", task_id="a", unique=600)
        await running.finished("a")
        await running.settled()
    assert 698 <= redis_client.ttl(lock) <= 701


@run_async
async def test_w16_a_task_that_was_taken_out_of_active_is_lost(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """A renewal that finds the task gone cancels the handler, where Asynq believes in its lease."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        redis_client.delete(tasks.keys.active, tasks.keys.lease, tasks.keys.task("a"))
        assert Outcome.LET_GO is (await running.finished("a")).outcome
    assert gate.cancelled


@run_async
async def test_w17_the_same_id_in_two_queues_is_two_attempts(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """Both are renewed, and a lost lease of one leaves the other alone."""
    gates = {"one": Gate(), "two": Gate()}

    async def handle(task: Task) -> None:
        await gates[context().queue](task)

    config = ServerConfig(queues={"one": 1, "two": 1})
    async with serving(redis_url, handle, config) as running:
        for queue in gates:
            await running.client.enqueue("t", task_id="a", queue=queue)
        for gate in gates.values():
            await gate.begun.wait()
        redis_client.hset(queue_keys("one").task("a"), "x:attempt", "other/1")
        await running.recorder.wait(TaskFinished, lambda event: event.queue == "one")
        assert gates["one"].cancelled
        gates["two"].open.set()
        done = await running.recorder.wait(TaskFinished, lambda event: event.queue == "two")
        assert Outcome.SUCCEEDED is done.outcome
        await running.settled()
    redis_client.delete(*redis_client.keys("asynq:{one}:*"))


@run_async
async def test_leases_are_renewed_while_a_handler_runs(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """A lease of 2 seconds lasts for 3."""
    gate = Gate()
    settings = dataclasses.replace(QUICK, lease=2, look_interval=1_000)
    async with serving(redis_url, gate, settings=settings) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        first = tasks.scores("lease")["a"]
        while tasks.scores("lease")["a"] < first + 3:
            await running.next_round("heartbeater")
        gate.open.set()
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()
    assert [] == redis_client.lrange(tasks.keys.active, 0, -1)


class LeapingClock(SystemClock):
    """The clock of a process that can be stopped for a while."""

    stopped_for = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.stopped_for


@run_async
async def test_a_task_whose_lease_lapsed_before_its_handler_began_is_not_begun(redis_url: str) -> None:
    """Its process was stopped when it had just taken it; by now another worker may run it.

    The task has no handler here, so it is put back, and run when it is taken again.
    """
    clock = LeapingClock()
    begun: list[str] = []

    async def stop_the_process(task: Task) -> None:
        begun.append(context().task_id)
        clock.stopped_for = QUICK.lease + 1

    async with Client(redis_url) as client:
        for task_id in ("first", "second"):
            await client.enqueue("t", task_id=task_id)
        server = Server(redis_url, ServerConfig(concurrency=2), clock=clock)
        server._settings = QUICK
        recorder = Recorder(server.events)
        await server.start(stop_the_process)
        put_back = await recorder.wait(TaskFinished, lambda event: event.outcome is Outcome.REQUEUED)
        begun_until_then = list(begun)
        await recorder.wait(
            TaskFinished,
            lambda event: (event.task_id, event.outcome) == ("second", Outcome.SUCCEEDED),
        )
        await server.shutdown()
    assert ("second", ["first"]) == (put_back.task_id, begun_until_then)
    assert ["first", "second"] == begun
    assert [LeaseLost("default", "second")] == recorder.of(LeaseLost)


@run_async
async def test_w19_leases_are_renewed_while_the_record_of_the_server_cannot_be_written(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """They come first, and depend on nothing that is for show."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        servers = redis_client.zrange("asynq:servers", 0, -1)
        redis_client.delete("asynq:servers")
        redis_client.set("asynq:servers", "no sorted set")
        first = tasks.scores("lease")["a"]
        renewed = "the lease is renewed"
        await asyncio.to_thread(
            wait_until, lambda: tasks.scores("lease")["a"] > first, seconds=10, what=renewed
        )
        assert b"no sorted set" == redis_client.get("asynq:servers")
        redis_client.delete("asynq:servers")
        recorded = "the record is written"
        await asyncio.to_thread(
            wait_until,
            lambda: servers == redis_client.zrange("asynq:servers", 0, -1),
            seconds=10,
            what=recorded,
        )
        gate.open.set()
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()


@run_async
async def test_h26_a_blocked_loop_renews_and_is_reported_with_task_and_stack(
    redis_url: str, tasks: Tasks
) -> None:
    """The heartbeat has a thread of its own. (D37)"""
    leases: list[int] = []

    async def block_the_loop(task: Task) -> None:
        del task
        ends = time.monotonic() + 1.5
        while time.monotonic() < ends:
            leases.append(tasks.scores("lease")["a"])

    settings = dataclasses.replace(QUICK, watch_interval=0.05, loop_blocked_after=0.2)
    async with serving(redis_url, block_the_loop, settings=settings) as running:
        await running.client.enqueue("t", task_id="a")
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        # A busy machine may block the loop elsewhere as well.
        blocked = await running.recorder.wait(LoopBlocked, lambda event: "block_the_loop" in event.stack)
        await running.settled()
    assert blocked.seconds >= 0.2
    assert blocked.tasks == "task a (t, queue default) holds it"
    assert "asyncio" not in blocked.stack
    assert "runner.py" not in blocked.stack
    assert max(leases) > min(leases)


@run_async
async def test_a_cancel_request_cancels_the_attempt_and_it_is_retried(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """As in Asynq: the message on the wire is the bare id."""
    gate = Gate()
    async with serving(redis_url, gate) as running:
        await subscribed(running)
        await running.client.enqueue("t", task_id="a")
        await gate.begun.wait()
        redis_client.publish("asynq:cancel", "unknown")
        redis_client.publish("asynq:cancel", "a")
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        await running.settled()
    assert gate.cancelled
    assert "context canceled" == decode_task_message(tasks.fields("a")["msg"]).error_msg


@run_async
async def test_h17_a_handler_that_swallows_its_cancellation_keeps_its_slot_and_is_reported(
    redis_url: str, tasks: Tasks
) -> None:
    """The outcome is the cause all the same, once the handler has ended."""
    swallowed, end = asyncio.Event(), asyncio.Event()

    async def handle(task: Task) -> None:
        if task.type == "other":
            return
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
            await end.wait()

    settings = dataclasses.replace(QUICK, overdue_after=0.05)
    config = ServerConfig(concurrency=1, shutdown_timeout=5)
    async with serving(redis_url, handle, config, settings) as running:
        await running.client.enqueue("t", task_id="a", timeout=1)
        await swallowed.wait()
        await running.client.enqueue("other", task_id="b")
        overdue = await running.recorder.wait(AttemptOverdue)
        assert "a" == overdue.task_id
        assert [] == running.recorder.of(TaskFinished)
        end.set()
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        assert Outcome.SUCCEEDED is (await running.finished("b")).outcome
        await running.settled()
    assert "context deadline exceeded" == decode_task_message(tasks.fields("a")["msg"]).error_msg


@run_async
async def test_h17_a_thread_keeps_slot_and_lease_until_it_ends(redis_url: str, tasks: Tasks) -> None:
    """It is told, waited for, and its outcome is the time-out."""
    told, end = threading.Event(), threading.Event()

    def handle(task: Task) -> None:
        del task
        context().cancelled.wait()
        told.set()
        end.wait()

    settings = dataclasses.replace(QUICK, overdue_after=0.05)
    async with serving(redis_url, handle, settings=settings) as running:
        await running.client.enqueue("t", task_id="a", timeout=1)
        await running.recorder.wait(AttemptOverdue)
        assert told.wait(5)
        assert ["a"] == tasks.ids("active")
        assert ["a"] == tasks.ids("lease")
        end.set()
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        await running.settled()


def test_recorded_events_have_names() -> None:
    """The helper of these tests knows all event classes."""
    from tests.fix_engine import EVENT_CLASSES  # noqa: PLC0415 - only this test looks at it

    assert {TaskFinished, RoundFinished, LeaseLost} <= set(EVENT_CLASSES)
    assert EngineSettings().lease == 30
