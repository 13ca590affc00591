"""A queue or a node that cannot be asked holds up no other, on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import sync
from pyasynq._broker.dequeue import Dequeued
from pyasynq._engine.services.sender import Sender
from pyasynq._redis.addresses import format_address
from pyasynq._redis.cluster.slot_map import find_slot
from pyasynq._wire.keys import queue_keys
from pyasynq.client import Client
from pyasynq.config import SchedulerConfig, ServerConfig
from pyasynq.context import context
from pyasynq.events import (
    RoundFailed,
    RoundFinished,
    TaskRecovered,
    TasksAggregated,
    TaskSettled,
    TaskStarted,
    TickFailed,
    TickFired,
)
from pyasynq.scheduler import Scheduler
from pyasynq.task import Task, TaskState
from tests.contract.test_cluster_failover import queues_of_each_node
from tests.fix_engine import QUICK, Recorder, do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import redis

    from tests.factories import Tasks
    from tests.fix_cluster import Cluster
    from tests.fix_engine import Running

AT_ONCE = dataclasses.replace(
    QUICK, lease=1, own_slack=0, foreign_slack=0, unleased_grace=0.3, aggregation_interval=0.05
)


async def make_digest(group: str, tasks: list[Task]) -> Task:
    """Aggregate a group."""
    return Task("digest", group.encode() + b"".join(task.payload or b"" for task in tasks))


CONFIG = ServerConfig(
    queues={"broken": 1, "default": 1},
    concurrency=10,
    janitor_interval=1,
    group_aggregator=make_digest,
    group_max_size=1,
)


async def recover(running: Running, tasks: Tasks) -> None:
    """A task of a dead worker comes back."""
    tasks.active("a", token="dead/1", lease=int(time.time()) - 1)
    await running.recorder.wait(TaskRecovered)


async def forward(running: Running, tasks: Tasks) -> None:
    """A task that is due runs."""
    tasks.put(TaskState.SCHEDULED, "a", score=1)
    await running.finished("a")


async def expire(running: Running, tasks: Tasks) -> None:
    """A completed task whose time is over goes away."""
    tasks.put(TaskState.COMPLETED, "a", score=1)
    while tasks.ids("completed"):
        await running.next_round("janitor")


async def aggregate(running: Running, tasks: Tasks) -> None:
    """A group becomes a task."""
    del tasks
    await running.client.enqueue(Task("event", group="g"))
    await running.recorder.wait(TasksAggregated)


@pytest.mark.parametrize(
    ("service", "key", "work"),
    [
        ("recoverer", "lease", recover),
        ("forwarder", "scheduled", forward),
        ("janitor", "completed", expire),
        ("aggregator", "groups", aggregate),
    ],
    ids=["recoverer", "forwarder", "janitor", "aggregator"],
)
@run_async
async def test_a_queue_that_cannot_be_asked_holds_up_no_other(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks, service: str, key: str, work: object
) -> None:
    """Each service reports the queue, and works on with the rest. (D02)"""
    async with serving(redis_url, do_nothing, CONFIG, AT_ONCE) as running:
        redis_client.set(getattr(queue_keys("broken"), key), "of the wrong type")
        failed = await running.recorder.wait(RoundFailed, lambda event: event.service == service)
        # In a cluster it may be the only queue of its node.
        assert failed.queue in {"broken", ""}
        assert "WRONGTYPE" in str(failed.error)
        await work(running, tasks)  # type: ignore[operator]  # one of the functions above
        await running.settled()
    redis_client.delete(getattr(queue_keys("broken"), key))


@pytest.fixture
def limited_url(redis_url: str, redis_client: redis.Redis) -> Iterator[str]:
    """The URL of a Redis user who may use every key."""
    command: Any = redis_client.execute_command
    command("ACL", "SETUSER", "worker", "reset", "on", ">secret", "allkeys", "allchannels", "+@all")
    yield redis_url.replace("://", "://worker:secret@", 1)
    command("ACL", "DELUSER", "worker")


@pytest.mark.single_server("the rights of a user are those of one server")
@pytest.mark.parametrize("work", [recover, forward, expire, aggregate])
@run_async
async def test_a_queue_that_the_redis_user_may_not_use_holds_up_no_other(
    limited_url: str, redis_client: redis.Redis, tasks: Tasks, work: object
) -> None:
    """Rights that leave one queue out, given while the server runs, take nothing from the others."""
    async with serving(limited_url, do_nothing, CONFIG, AT_ONCE) as running:
        command: Any = redis_client.execute_command
        command("ACL", "SETUSER", "worker", "resetkeys", "~asynq:[a-z]*", "~asynq:{default}*")
        failed = await running.recorder.wait(RoundFailed, lambda event: event.queue == "broken")
        assert "NOPERM" in str(failed.error) or "permission" in str(failed.error)
        await work(running, tasks)  # type: ignore[operator]  # one of the functions above
        command("ACL", "SETUSER", "worker", "allkeys")
        await running.settled()


@run_async
async def test_a_queue_that_gives_no_tasks_holds_up_no_other(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """The processor reports it alone, and does not rest from the others. (D02)"""
    pending = queue_keys("broken").pending
    redis_client.set(pending, "of the wrong type")
    async with serving(redis_url, do_nothing, CONFIG, AT_ONCE) as running:
        failed = await running.recorder.wait(RoundFailed, lambda event: event.service == "processor")
        assert "broken" == failed.queue
        for number in range(100):
            await running.client.enqueue(Task("t", task_id=str(number)))
            await running.finished(str(number))
        assert {"broken"} == {
            event.queue for event in running.recorder.of(RoundFailed) if event.service == "processor"
        }
        redis_client.delete(pending)
        await running.client.enqueue(Task("t", task_id="a", queue="broken"))
        await running.finished("a")
        await running.settled()


@run_async
async def test_a_queue_is_asked_again_when_it_is_mended(redis_url: str, redis_client: redis.Redis) -> None:
    """Its back-off ends, and its delayed tasks run. (D02)"""
    async with serving(redis_url, do_nothing, CONFIG, AT_ONCE) as running:
        broken = queue_keys("broken").scheduled
        redis_client.set(broken, "of the wrong type")
        await running.recorder.wait(RoundFailed, lambda event: event.service == "forwarder")
        redis_client.delete(broken)
        await running.client.enqueue(Task("t", task_id="a", queue="broken", process_in=0.1))
        await running.finished("a")
        await running.settled()


@run_async
async def test_services_of_other_nodes_do_not_wait_for_a_silent_one(cluster: Cluster) -> None:
    """While the first call to a stopped node waits for its time-out, they do round after round. (D02)"""
    queues = await asyncio.to_thread(queues_of_each_node, cluster)
    config = ServerConfig(queues=dict.fromkeys(queues, 1), concurrency=10, janitor_interval=1)
    silent = cluster.primaries[0]
    settings = dataclasses.replace(AT_ONCE, lease=30, look_interval=0.02)
    async with serving(cluster.url, do_nothing, config, settings) as running:
        nodes = {event.node for event in running.recorder.of(RoundFinished) if event.service == "recoverer"}
        while nodes != {format_address(one.address) for one in cluster.primaries}:
            event = await running.recorder.wait(RoundFinished, new=True)
            nodes |= {event.node} if event.service == "recoverer" else set()
        silent.signal(signal.SIGSTOP)
        try:
            rounds = dict.fromkeys(nodes - {format_address(silent.address)}, 0)
            while min(rounds.values()) < 5:
                event = await running.recorder.wait(
                    RoundFinished,
                    lambda event: event.service == "recoverer" and event.node in rounds,
                    new=True,
                )
                rounds[event.node] += 1
            assert not [event for event in running.recorder.of(RoundFailed) if event.service == "recoverer"]
        finally:
            silent.signal(signal.SIGCONT)


def is_of(task_id: str, event: TaskStarted | TaskSettled) -> bool:
    """Return whether an event is of a task."""
    return event.task_id == task_id


class Counts:
    """A handler that counts the tasks of each queue, by their payload, and tells of each."""

    def __init__(self, queues: Iterable[str]) -> None:
        self.ended = dict.fromkeys(queues, 0)
        self._changed = asyncio.Event()

    async def __call__(self, task: Task) -> None:
        """Count a task."""
        self.ended[(task.payload or b"").decode()] += 1
        self._changed.set()

    async def reach(self, wanted: Mapping[str, int]) -> None:
        """Wait until this number of tasks of each queue have ended."""
        while any(self.ended[queue] < number for queue, number in wanted.items()):
            self._changed.clear()
            await self._changed.wait()


@pytest.mark.sample(1)
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("strict", [False, True], ids=["weighted", "strict"])
@run_async
async def test_tasks_of_other_nodes_run_while_one_is_silent(cluster: Cluster, strict: bool) -> None:
    """Hundreds of them end before the first call to the stopped node has failed; then all of them run.

    Defect D01.
    """
    queues = await asyncio.to_thread(queues_of_each_node, cluster)
    silent_queue, *others = queues
    silent = cluster.owner(find_slot(queue_keys(silent_queue).pending))
    # The most urgent queue is that of the silent node, which may not keep all slots for itself.
    priorities = {queue: len(queues) - place for place, queue in enumerate(queues)}
    config = ServerConfig(queues=priorities, concurrency=10, strict_priority=strict)
    counts = Counts(queues)
    async with serving(cluster.url, counts, config) as running:
        for queue in queues:
            await running.client.enqueue(Task("t", queue.encode(), queue=queue))
        await counts.reach(dict.fromkeys(queues, 1))
        await running.settled()
        for queue in queues:
            await running.client.enqueue_many([Task("t", queue.encode(), queue=queue) for _ in range(1_000)])
        silent.signal(signal.SIGSTOP)
        try:
            await counts.reach({queue: counts.ended[queue] + 300 for queue in others})
            assert not [event for event in running.recorder.of(RoundFailed) if event.service == "processor"]
        finally:
            silent.signal(signal.SIGCONT)
        await counts.reach(dict.fromkeys(queues, 1_001))
        await running.settled()
    assert dict.fromkeys(queues, 1_001) == counts.ended


@run_async
async def test_tasks_that_come_too_late_from_a_slow_node_go_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of another node have taken their slots; they run after these, in their old order. (D01)"""
    slow, other, _ = await asyncio.to_thread(queues_of_each_node, cluster)
    answered, go_on, end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    exchange = Sender._exchange

    async def hold_first_tasks(sender: Sender, plans: Sequence[Any]) -> list[Any]:
        results = await exchange(sender, plans)
        if not answered.is_set() and any(isinstance(one, Dequeued) and one.tasks for one in results):
            answered.set()
            await go_on.wait()
        return results

    order: list[str] = []

    async def handle(task: Task) -> None:
        del task
        order.append(context().task_id)
        if len(order) <= 2:
            await end.wait()

    monkeypatch.setattr(Sender, "_exchange", hold_first_tasks)
    config = ServerConfig(queues={slow: 1, other: 1}, concurrency=2, prefetch=0)
    async with serving(cluster.url, handle, config) as running:
        await running.client.enqueue_many([Task("t", queue=slow, task_id=name) for name in ("a", "b")])
        await answered.wait()
        await running.client.enqueue_many([Task("t", queue=other, task_id=name) for name in ("c", "d")])
        for name in ("c", "d"):
            await running.recorder.wait(TaskStarted, partial(is_of, name))
        go_on.set()
        for name in ("a", "b"):
            await running.recorder.wait(TaskSettled, partial(is_of, name))
        assert ["c", "d"] == sorted(order)
        end.set()
        for name in ("a", "b"):
            await running.finished(name)
        await running.settled()
    assert ["a", "b"] == order[2:]


@run_async
async def test_enqueues_for_other_nodes_do_not_wait_for_a_silent_one(cluster: Cluster) -> None:
    """Their calls travel in batches of their own. (D01)"""
    silent_queue, *others = await asyncio.to_thread(queues_of_each_node, cluster)
    silent = cluster.owner(find_slot(queue_keys(silent_queue).pending))
    async with Client(cluster.url) as client:
        for queue in others:
            await client.enqueue(Task("t", queue=queue))
        silent.signal(signal.SIGSTOP)
        try:
            waiting = asyncio.ensure_future(client.enqueue(Task("t", queue=silent_queue)))
            await asyncio.sleep(0)
            for queue in others:
                await asyncio.gather(*(client.enqueue(Task("t", queue=queue)) for _ in range(100)))
            assert not waiting.done()
        finally:
            silent.signal(signal.SIGCONT)
        await waiting


def test_threads_do_not_wait_for_a_silent_node_of_others(cluster: Cluster) -> None:
    """The same, for the blocking client. (D01)"""
    silent_queue, *others = queues_of_each_node(cluster)
    silent = cluster.owner(find_slot(queue_keys(silent_queue).pending))
    with sync.Client(cluster.url) as client, ThreadPoolExecutor() as threads:
        for queue in others:
            client.enqueue(Task("t", queue=queue))
        silent.signal(signal.SIGSTOP)
        try:
            waiting = threads.submit(client.enqueue, Task("t", queue=silent_queue))
            for queue in others:
                for call in [threads.submit(client.enqueue, Task("t", queue=queue)) for _ in range(100)]:
                    call.result()
            assert not waiting.done()
        finally:
            silent.signal(signal.SIGCONT)
        waiting.result()


@run_async
async def test_ticks_for_other_nodes_do_not_wait_for_a_silent_one(cluster: Cluster) -> None:
    """Each node has a ticker of its own. (D01)"""
    silent_queue, *others = await asyncio.to_thread(queues_of_each_node, cluster)
    silent = cluster.owner(find_slot(queue_keys(silent_queue).pending))
    scheduler = Scheduler(cluster.url, SchedulerConfig(heartbeat_interval=1))
    recorder = Recorder(scheduler.events)
    for queue in [silent_queue, *others]:
        scheduler.register("@every 1s", Task("t", queue=queue))
    await scheduler.start()
    try:
        await ticked(recorder, [silent_queue, *others], 1)
        silent.signal(signal.SIGSTOP)
        await ticked(recorder, others, 3)
        assert not recorder.of(TickFailed)
    finally:
        silent.signal(signal.SIGCONT)
        await scheduler.shutdown()


async def ticked(recorder: Recorder, queues: list[str], times: int) -> None:
    """Wait until entries of all these queues have fired this many times more."""
    before = len(recorder.of(TickFired))

    def fired(queue: str) -> int:
        return sum(event.queue == queue for event in recorder.of(TickFired)[before:])

    while min(map(fired, queues)) < times:
        await recorder.wait(TickFired, new=True)
