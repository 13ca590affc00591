"""Queues that a consumer begins and ends to serve while it runs, and many calls that wait for tasks."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

import pytest

from pyasynq.consumer import Consumer, ConsumerConfig
from pyasynq.errors import ConfigurationError, InvalidOptionError, ServerStateError
from pyasynq.events import QueueChanged
from pyasynq.limits import Queue
from tests.factories import Tasks
from tests.fix_consumer import Consuming, consuming
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis


async def until(c: Consuming, condition: Callable[[], bool]) -> None:
    """Wait until something is so, looking after each round of a service that is never quiet for long."""
    while not condition():
        await c.next_round("deadlines")


@run_async
async def test_tasks_of_an_added_queue_go_to_calls_that_wait_already(redis_url: str) -> None:
    """To those that wait for all queues; from then on it may be named."""
    async with consuming(redis_url) as c:
        waiting = asyncio.create_task(c.consumer.lease())
        await until(c, lambda: bool(c.engine.sink._takes))
        await c.consumer.serve("new", Queue(priority=2))
        await c.enqueue("a", queue="new")
        [attempt] = await waiting
        assert ("a", "new") == (attempt.id, attempt.queue)
        await attempt.done()
        await c.enqueue("b", queue="new")
        async with c.consumer.take("new") as [named]:
            await named.done()
        assert [] == await c.consumer.lease("new", wait=0)


@run_async
async def test_calls_that_wait_for_a_removed_queue_alone_fail_and_others_wait_on(redis_url: str) -> None:
    """Nothing would ever end their wait."""
    config = ConsumerConfig(queues={"default": 1, "old": 1})
    async with consuming(redis_url, config) as c:
        alone, both, every = (
            asyncio.create_task(c.consumer.lease(*names)) for names in (("old",), ("old", "default"), ())
        )
        await until(c, lambda: sum(map(len, c.engine.sink._takes.values())) == 4)
        await c.consumer.unserve("old")
        with pytest.raises(ConfigurationError, match="does not serve queue 'old' any more"):
            await alone
        await c.enqueue("x", queue="old")
        await c.enqueue("a", "b")
        taken = [await both, await every]
        assert ["a", "b"] == sorted(attempt.id for [attempt] in taken)
        for [attempt] in taken:
            await attempt.done()
        with pytest.raises(ConfigurationError, match="does not serve queue 'old'"):
            await c.consumer.lease("old", wait=0)


@run_async
async def test_what_is_held_of_a_removed_queue_is_settled_as_usual(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """In a block, by the lease's holder, and by its receipt; then nothing of the queue is left."""
    config = ConsumerConfig(queues={"default": 1, "old": 1})
    async with consuming(redis_url, config) as c:
        await c.enqueue("a", "b", queue="old")
        async with c.consumer.take("old") as [first]:
            [second] = await c.consumer.lease("old")
            await c.consumer.unserve("old")
            await first.done()
            again = await c.consumer.find("old", "b", second.receipt)
            await again.extend(20)
            await again.done(b"r")
        await c.recorder.wait(QueueChanged, lambda event: event.change == "ended")
        assert ["default"] == list(c.engine._board.known)
        with pytest.raises(ConfigurationError):
            await c.consumer.find("old", "b", second.receipt)
    old = Tasks(redis_client, queue="old")
    assert [] == old.ids("pending") == old.ids("active")


@run_async
async def test_queues_of_a_consumer_are_checked_as_its_configuration_is(redis_url: str) -> None:
    """Before the start and after the end there is nothing to change."""
    consumer = Consumer(redis_url)
    with pytest.raises(ServerStateError, match="not started"):
        await consumer.serve("new")
    async with consuming(redis_url) as c:
        with pytest.raises(InvalidOptionError):
            await c.consumer.serve("new", 0)
        with pytest.raises(ConfigurationError, match="this consumer serves queue 'default' already"):
            await c.consumer.serve("default")
        with pytest.raises(ConfigurationError, match="does not serve queue 'new'"):
            await c.consumer.unserve("new")
        with pytest.raises(ConfigurationError, match="only queue of this consumer"):
            await c.consumer.unserve("default")
        await c.consumer.set_queue("default", Queue(max_run=1))
        await c.enqueue("a", "b")
        assert ["a"] == [attempt.id for attempt in await c.consumer.lease(limit=5)]
        assert [] == await c.consumer.lease(wait=0)
        await c.consumer.set_queue("default", 2)
        [second] = await c.consumer.lease()
        assert "b" == second.id
    with pytest.raises(ServerStateError, match="closed"):
        await c.consumer.unserve("default")


@run_async
async def test_a_round_looks_at_few_of_many_calls_that_wait(redis_url: str) -> None:
    """The work for a task does not grow with the number of calls; each gets its turn by age."""
    number = 300
    config = ConsumerConfig(queues={"default": 1, "other": 1}, concurrency=1_000)
    async with consuming(redis_url, config) as c:
        sink = c.engine.sink
        waiting = [asyncio.create_task(c.consumer.lease("default", "other")) for _ in range(number)]
        await until(c, lambda: len(sink._takes.get("other", ())) == number and not sink._unlooked)
        for queue in c.engine._board.queues:
            c.engine._board.ask_again(queue)
        assert list(sink._takes["default"])[:16] == list(sink.wants(1_000, ()))
        board = c.engine._board
        for queue in board.queues:
            board.failed(queue, look_at=math.inf)
        assert [] == list(sink.wants(1_000, ()))
        # A suspect is taken whatever else is known of its queue.
        assert list(sink._takes["default"])[:16] == list(sink.wants(1_000, board.queues[:1]))
        for queue in board.queues:
            board.ask_again(queue)
        await c.enqueue("a")
        await c.enqueue("b", queue="other")
        for oldest, task_id in zip(waiting, "ab", strict=False):
            [attempt] = await oldest
            assert task_id == attempt.id
            await attempt.done()
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)
        assert not sink._takes
        assert not sink._unlooked


@run_async
async def test_calls_that_wait_for_an_empty_queue_keep_no_room_from_others(redis_url: str) -> None:
    """Room is for those whose queue has tasks, however long others have been waiting."""
    config = ConsumerConfig(queues={"empty": 1, "default": 1}, concurrency=2)
    async with consuming(redis_url, config) as c:
        idle = [asyncio.create_task(c.consumer.lease("empty")) for _ in range(5)]
        sink = c.engine.sink
        await until(c, lambda: len(sink._takes.get("empty", ())) == 5 and not sink._unlooked)
        await c.enqueue("a")
        [attempt] = await c.consumer.lease("default")
        await attempt.done()
        for one in idle:
            one.cancel()
        await asyncio.wait(idle)
