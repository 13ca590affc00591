"""Servers on queues with limits: what they take, when they look again, and what they leave to others."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pyasynq import Client, Inspector, Queue, ServerConfig, Task, context
from pyasynq._engine.take.queue_state import QueuePhase, Watch
from pyasynq._wire.keys import SERVERS_KEY
from pyasynq._wire.messages import ServerInfo
from pyasynq.events import LimitsIgnored, Outcome, TaskFinished
from tests.fix_engine import QUICK, do_nothing, make_server, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from tests.factories import Tasks
    from tests.invariants import RedisClient

PATIENT = dataclasses.replace(QUICK, look_interval=1_000, held_poll=1_000)
"""Settings under which nothing but a report of Redis, or the end of a wait, makes a server look again."""


class Crowd:
    """A handler that waits until it is let go, and counts."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.let_go = asyncio.Semaphore(0)

    async def __call__(self, task: Task) -> None:
        del task
        self.running += 1
        self.most = max(self.most, self.running)
        await self.let_go.acquire()
        self.running -= 1


async def enqueue(url: str, queue: str, number: int) -> None:
    """Enqueue this many tasks."""
    async with Client(url) as client:
        await client.enqueue_many(Task("t", queue=queue, task_id=f"{queue}{at}") for at in range(number))


async def all_finished(recorder: object, number: int) -> None:
    """Wait until this many attempts have ended."""
    while len(recorder.of(TaskFinished)) < number:  # type: ignore[attr-defined]
        await recorder.wait(TaskFinished, new=True)  # type: ignore[attr-defined]


@run_async
async def test_a_server_runs_no_more_of_a_queue_than_its_limit(redis_url: str) -> None:
    """Though it has slots for more, and takes the next as soon as one ends: it needs no report for that."""
    crowd = Crowd()
    config = ServerConfig(queues={"one": Queue(max_run=2)}, concurrency=10)
    await enqueue(redis_url, "one", 6)
    async with serving(redis_url, crowd, config, PATIENT) as running:
        async with asyncio.timeout(5):
            while crowd.running < 2:
                await running.next_round("processor")
        for ended in range(1, 7):
            crowd.let_go.release()
            await all_finished(running.recorder, ended)
        await running.settled()
    assert 2 == crowd.most


@run_async
async def test_two_servers_share_a_limit_and_the_second_is_woken_when_the_first_frees_a_slot(
    redis_url: str,
) -> None:
    """The first is told to take no more; Redis reports the end of its lease, no poll does."""
    first, second = Crowd(), Crowd()
    config = ServerConfig(queues={"one": Queue(max_run=1)})
    async with serving(redis_url, first, config, PATIENT) as one:
        await enqueue(redis_url, "one", 2)
        async with asyncio.timeout(5):
            while not first.running:
                await one.next_round("processor")
        async with serving(redis_url, second, config, PATIENT) as other:
            async with asyncio.timeout(5):
                while (queue := other.queues[0]).state.watch is not Watch.HOLDERS:
                    await other.next_round("processor")
            assert (0, QueuePhase.CONCURRENCY) == (second.running, queue.state.phase)
            one.server.stop()
            first.let_go.release()
            second.let_go.release()
            async with asyncio.timeout(5):
                await other.recorder.wait(TaskFinished)
            await other.settled()
    assert 1 == first.most == second.most


@run_async
async def test_a_slot_whose_lease_has_lapsed_is_taken_without_a_report(redis_url: str, tasks: Tasks) -> None:
    """A killed worker sends no message; the wait ends with its lease."""
    tasks.pending("b")
    seconds = int(tasks.client.time()[0])
    tasks.active("a", lease=seconds + 2)
    config = ServerConfig(queues={"default": Queue(max_run=1)})
    async with serving(redis_url, do_nothing, config, PATIENT) as running:
        async with asyncio.timeout(10):
            await running.finished("b")
        assert int(tasks.client.time()[0]) >= seconds + 2
        await running.settled()
    assert ["a"] == tasks.ids("active"), "it is the recoverer's, later"


@pytest.mark.parametrize("strict", [False, True])
@run_async
async def test_a_limited_queue_leaves_its_slots_to_the_others(redis_url: str, strict: bool) -> None:
    """Also one of higher priority that has a backlog and gives nothing now."""
    crowd, counts = Crowd(), Counter[str]()

    async def handle(task: Task) -> None:
        counts[context().queue] += 1
        if context().queue == "slow":
            await crowd(task)

    config = ServerConfig(
        queues={"slow": Queue(priority=9, max_run=1), "fast": 1}, concurrency=4, strict_priority=strict
    )
    await enqueue(redis_url, "slow", 3)
    await enqueue(redis_url, "fast", 50)
    async with serving(redis_url, handle, config, PATIENT) as running:
        await all_finished(running.recorder, 50)
        assert {"slow": 1, "fast": 50} == counts
        for _ in range(3):
            crowd.let_go.release()
        await all_finished(running.recorder, 53)
        await running.settled()
    assert 1 == crowd.most


@run_async
async def test_a_rate_is_kept_and_spends_no_try(redis_url: str, redis_client: RedisClient) -> None:
    """Burst mode waits for the tokens: the queue is not empty. The server asks about once per token."""
    starts: list[float] = []
    retried: list[int] = []

    async def handle(task: Task) -> None:
        del task
        starts.append(asyncio.get_running_loop().time())
        retried.append(context().retried)

    await enqueue(redis_url, "one", 20)
    config = ServerConfig(queues={"one": Queue(rate=50, burst=5)}, burst=True)
    before = redis_client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
    await make_server(redis_url, config).run(handle, signals=False)
    calls = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] - before
    assert (20, [0] * 20) == (len(starts), retried)
    assert starts[-1] - starts[0] >= 0.28, "fifteen tokens at 20 ms, less what the first start was late"
    assert calls < 120, "the services of a server make some calls of their own"


@run_async
async def test_an_override_is_obeyed_by_servers_that_were_started_without_limits(
    redis_url: str, redis_client: RedisClient
) -> None:
    """At their next look at the queue; and its removal, too."""
    crowd = Crowd()
    config = ServerConfig(queues={"one": 1})
    async with Inspector(redis_url) as inspector, serving(redis_url, crowd, config, PATIENT) as running:
        await inspector.set_queue_limits("one", max_run=1)
        await enqueue(redis_url, "one", 4)
        crowd.let_go.release()
        await all_finished(running.recorder, 1)
        async with asyncio.timeout(5):
            while (queue := running.queues[0]).state.watch is not Watch.HOLDERS:
                await running.next_round("processor")
        assert (1, 1, True) == (crowd.running, crowd.most, queue.state.is_limited)
        await inspector.set_queue_limits("one", max_run=None)
        async with asyncio.timeout(5):
            while crowd.running < 3:
                await running.next_round("processor")
        assert not queue.state.is_limited
        for _ in range(3):
            crowd.let_go.release()
        await all_finished(running.recorder, 4)
        await running.settled()
    assert 0 == redis_client.exists("asynq:{one}:x:limits")


@run_async
async def test_new_tasks_wake_a_limited_queue_that_has_run_empty(redis_url: str) -> None:
    """It was held before, and what was watched then is not what is watched now."""
    config = ServerConfig(queues={"one": Queue(max_run=1)}, task_check_interval=1_000)
    async with serving(redis_url, do_nothing, config, PATIENT) as running:
        for number in range(3):
            await running.client.enqueue_many(
                Task("t", queue="one", task_id=f"{number}.{at}") for at in range(3)
            )
            async with asyncio.timeout(5):
                await all_finished(running.recorder, 3 * (number + 1))
        await running.settled()


@run_async
async def test_a_server_without_limits_on_a_limited_queue_is_reported_once(
    redis_url: str, redis_client: RedisClient
) -> None:
    """It is one in Go, and breaks them. No query is made while no queue has limits."""
    until = int(redis_client.time()[0]) + 60
    for server_id, queues, engine in (
        ("go", {"one": 1, "two": 1}, ""),
        ("go-elsewhere", {"three": 1}, ""),
        ("python", {"one": 1}, "pyasynq"),
    ):
        info = ServerInfo(
            host="h",
            pid=7,
            server_id=server_id,
            concurrency=1,
            queues=queues,
            strict_priority=False,
            status="active",
            start_time=None,
            active_worker_count=0,
            engine=engine,
        )
        key = f"{SERVERS_KEY}:{{h:7:{server_id}}}"
        redis_client.set(key, info.encode())
        redis_client.zadd(SERVERS_KEY, {key: until})
    config = ServerConfig(queues={"one": Queue(rate=1_000), "three": 1})
    async with serving(redis_url, do_nothing, config) as running:
        event = await running.recorder.wait(LimitsIgnored)
        for _ in range(3):
            await running.next_round("peer_watch")
        assert [LimitsIgnored("one", "h", 7, "go")] == running.recorder.of(LimitsIgnored) == [event]
        await running.client.enqueue("t", queue="three", task_id="a")
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()
