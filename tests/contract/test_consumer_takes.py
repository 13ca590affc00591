"""Takes of a consumer: which tasks come, when, to whom, and where unwanted tasks go."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.consumer import Consumer, ConsumerConfig
from pyasynq.errors import ConfigurationError, InvalidOptionError, RedisUnavailableError, ServerStateError
from pyasynq.events import GhostsDropped, MessageQuarantined, Outcome, TaskStarted
from pyasynq.inspector import Inspector
from pyasynq.limits import Queue
from pyasynq.task import TaskState
from tests.factories import Tasks
from tests.fix_consumer import be_impatient, consuming
from tests.fix_engine import QUICK, is_watched
from tests.run_async import run_async

if TYPE_CHECKING:
    import redis

    from tests.fix_drivers import OwnServer
    from tests.fix_proxy import Proxy

TWO = ConsumerConfig(queues={"high": 3, "low": 1}, strict_priority=True)


@run_async
async def test_a_take_hands_out_what_there_is_up_to_its_limit_oldest_first(
    redis_url: str, tasks: Tasks
) -> None:
    """An attempt shows its task; what is done is gone."""
    tasks.pending("a", "b", "c", type="report", payload=b"p", headers={"by": "me"}, retry=7, retried=2)
    async with consuming(redis_url) as c:
        async with c.consumer.take("default", limit=2) as attempts:
            assert ["a", "b"] == [attempt.id for attempt in attempts]
            assert ["a", "b"] == tasks.ids("active")
            first = attempts[0]
            shown = (first.task.type, first.task.payload, first.task.headers, first.queue)
            assert ("report", b"p", {"by": "me"}, "default") == shown
            assert (7, 2, 0, None) == (first.max_retry, first.retried, first.crashes, first.cancelled)
            for attempt in attempts:
                await attempt.done()
        assert ["a", "b"] == [event.task_id for event in c.recorder.of(TaskStarted)]
        assert Outcome.SUCCEEDED is (await c.finished("b")).outcome
    assert {} == tasks.fields("a") == tasks.fields("b")
    assert ["c"] == tasks.ids("pending")


@run_async
async def test_h14_a_take_that_waits_is_woken_by_an_enqueue(redis_url: str) -> None:
    """They start long before the safety poll, enqueued by any client."""
    settings = dataclasses.replace(QUICK, look_interval=1_000)
    async with consuming(redis_url, settings=settings) as c:
        waiting = asyncio.create_task(c.consumer.lease(limit=5))
        queue = c.engine._intake.board.queues[0]
        while not is_watched(queue):
            await c.next_round("deadlines")
        await c.enqueue("a")
        [attempt] = await asyncio.wait_for(waiting, 10)
        await attempt.done()


@run_async
async def test_a_take_without_a_wait_looks_once_at_each_of_its_queues(redis_url: str) -> None:
    """Also with a limit of one, and whatever was known of them before."""
    async with consuming(redis_url, TWO) as c:
        for _ in range(2):
            async with c.consumer.take(wait=0) as attempts:
                assert [] == list(attempts)
        await c.enqueue("a", queue="low")
        async with c.consumer.take("high", wait=0) as attempts:
            assert not attempts
        async with c.consumer.take("high", "low", wait=0) as attempts:
            assert ["a"] == [attempt.id for attempt in attempts]
            await attempts[0].done()


@run_async
async def test_a_take_gives_up_when_its_wait_is_over(redis_url: str) -> None:
    """And leaves nothing behind: what is enqueued later stays where it is."""
    async with consuming(redis_url) as c:
        assert [] == await c.consumer.lease(wait=0.05)
        await c.enqueue("a")
        assert [] == c.recorder.of(TaskStarted)
        async with c.consumer.take(wait=0) as attempts:
            assert 1 == len(attempts)
            await attempts[0].requeue()


@run_async
async def test_h20_a_take_that_ends_while_redis_is_away_says_so(own_server: OwnServer) -> None:
    """It does not pass for an empty queue."""
    async with consuming(own_server.url) as c:
        be_impatient(c)
        own_server.stop()
        await c.next_round("deadlines")  # the event loop takes notice, so that nothing is sent
        with pytest.raises(RedisUnavailableError):
            await c.consumer.lease(wait=0.1)
        own_server.start()
        own_server.connect().close()
        assert [] == await c.consumer.lease(wait=0)


@run_async
async def test_a_take_rides_out_an_outage_while_its_wait_lasts(own_server: OwnServer) -> None:
    """It gets what comes after."""
    async with consuming(own_server.url) as c:
        waiting = asyncio.create_task(c.consumer.lease())
        await c.next_round("processor")
        own_server.stop()
        own_server.start()
        with own_server.connect() as client:
            Tasks(client).pending("a")
            [attempt] = await waiting
            await attempt.done()


@run_async
async def test_two_queues_are_served_by_their_priorities(redis_url: str, redis_client: redis.Redis) -> None:
    """Strictly, if told so; a take may name one of them."""
    async with consuming(redis_url, TWO) as c:
        await c.enqueue("l1", "l2", queue="low")
        await c.enqueue("h1", queue="high")
        taken = [(await c.consumer.lease())[0] for _ in range(2)]
        assert ["h1", "l1"] == [attempt.id for attempt in taken]
        await asyncio.gather(*(attempt.requeue() for attempt in taken))
        [low] = await c.consumer.lease("low")
        assert "l1" == low.id
        await low.requeue()
    assert ["l1", "l2"] == Tasks(redis_client, "low").ids("pending")


@run_async
async def test_no_more_is_held_than_the_concurrency_allows(redis_url: str, tasks: Tasks) -> None:
    """A take is cut to what is free; the next one waits until an attempt is settled."""
    tasks.pending("a", "b", "c", "d")
    async with consuming(redis_url, ConsumerConfig(concurrency=3)) as c:
        first = await c.consumer.lease(limit=2)
        [third] = await c.consumer.lease(limit=2)
        assert [] == await c.consumer.lease(wait=0)
        waiting = asyncio.create_task(c.consumer.lease())
        await first[0].done()
        [fourth] = await waiting
        assert "d" == fourth.id
        await asyncio.gather(*(one.done() for one in (first[1], third, fourth)))


@run_async
async def test_many_who_wait_share_what_comes_and_each_task_goes_to_one(redis_url: str) -> None:
    """A hundred takes, of one queue or two, with leases of their own."""
    queues = ("default", "other")
    async with consuming(redis_url, ConsumerConfig(queues=dict.fromkeys(queues, 1), concurrency=200)) as c:
        waiting = [
            asyncio.create_task(c.consumer.lease(*queues[: 1 + place % 2], duration=20 + place % 3))
            for place in range(100)
        ]
        while sum(map(len, c.engine.sink._takes.values())) < 100:
            await c.next_round("deadlines")
        await c.enqueue(*(f"t{place}" for place in range(100)))
        await c.enqueue(*(f"o{place}" for place in range(50)), queue="other")
        taken = [attempt for attempts in await asyncio.gather(*waiting) for attempt in attempts]
        assert 100 == len(taken) == len({attempt.id for attempt in taken})
        await asyncio.gather(*(attempt.done() for attempt in taken))


@run_async
async def test_a_caller_that_stops_waiting_gets_nothing_and_loses_nothing(proxy: Proxy, tasks: Tasks) -> None:
    """The call was on its way: what it brings is put back in front."""
    async with consuming(proxy.url) as c:
        waiting = asyncio.create_task(c.consumer.lease(limit=2))
        queue = c.engine._intake.board.queues[0]
        while not is_watched(queue):
            await c.next_round("deadlines")
        proxy.hold()
        again = asyncio.create_task(c.consumer.lease(limit=2))
        tasks.pending("a", "b", "c")
        for _ in range(100):
            await asyncio.sleep(0)
        assert any(take.in_flight for takes in c.engine.sink._takes.values() for take in takes)
        for one in (waiting, again):
            one.cancel()
        await asyncio.wait({waiting, again})
        proxy.release()
        assert Outcome.REQUEUED is (await c.finished("b")).outcome
    assert ["a", "b", "c"] == tasks.ids("pending")


@run_async
async def test_h03_h21_ghosts_are_dropped_and_what_cannot_be_read_is_archived(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """A take gets the task behind them."""
    redis_client.lpush(tasks.keys.pending, "ghost")
    tasks.pending("bad", "good")
    redis_client.hset(tasks.keys.task("bad"), "msg", b"\xff\xff")
    async with consuming(redis_url) as c:
        [attempt] = await c.consumer.lease(limit=3)
        assert "good" == attempt.id
        await c.recorder.wait(GhostsDropped)
        await c.recorder.wait(MessageQuarantined)
        await attempt.done()
    assert ["bad"] == tasks.ids("archived")


@run_async
async def test_h06_a_suspect_is_handed_out_alone(redis_url: str, tasks: Tasks) -> None:
    """After the task behind it; nothing is handed out alongside it while the silence lasts."""
    tasks.put(TaskState.PENDING, "suspect", extra={"x:crashes": 2})
    tasks.pending("b")
    settings = dataclasses.replace(QUICK, silence_share=100.0)
    async with consuming(redis_url, settings=settings) as c:
        [other] = await c.consumer.lease(limit=5)
        await other.done()
        [suspect] = await c.consumer.lease(limit=5)
        assert ("suspect", 2) == (suspect.id, suspect.crashes)
        tasks.pending("c")
        assert [] == await c.consumer.lease(limit=5, wait=0)
        await suspect.done()
        [other] = await c.consumer.lease(limit=5)
        await other.done()


@run_async
async def test_a_suspect_that_no_caller_asks_for_holds_up_no_other_task(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """Its queue is looked after again when somebody does."""
    settings = dataclasses.replace(QUICK, silence_share=100.0)
    async with consuming(redis_url, TWO, settings) as c:
        high = Tasks(redis_client, "high")
        await c.enqueue("l1", "l2", queue="low")
        [first] = await c.consumer.lease("low")
        high.put(TaskState.PENDING, "suspect", extra={"x:crashes": 2})
        assert [] == await c.consumer.lease("high", wait=0.1)
        [second] = await c.consumer.lease("low", wait=0)
        await asyncio.gather(first.done(), second.done())
        [suspect] = await c.consumer.lease("high")
        await suspect.done()


@run_async
async def test_a_consumer_forwards_what_is_due(redis_url: str) -> None:
    """Each taker does all that a server does for its queues, because no server may run."""
    async with consuming(redis_url) as c:
        await c.client.enqueue("t", task_id="a", process_in=0.5)
        [attempt] = await asyncio.wait_for(c.consumer.lease(), 10)
        await attempt.done()


@run_async
async def test_a_consumer_shows_as_a_server_and_its_attempts_as_workers(redis_url: str) -> None:
    """The inspector shows both, and so do the tools of Go."""
    async with consuming(redis_url, ConsumerConfig(queues={"default": 2}, concurrency=7)) as c:
        await c.enqueue("a")
        [attempt] = await c.consumer.lease()
        async with Inspector(redis_url) as inspector:
            await c.next_round("heartbeater")
            # That beat may have begun before the lease.
            await c.next_round("heartbeater")
            [server] = await inspector.servers()
            [worker] = server.active_workers
            assert (c.consumer.id, 7, {"default": 2}) == (server.id, server.concurrency, dict(server.queues))
            assert ("a", "t", b"a") == (worker.task_id, worker.task_type, worker.payload)
            await attempt.done()
            await c.consumer.close()
            assert [] == await inspector.servers()


@run_async
async def test_limits_hold_for_consumers(redis_url: str) -> None:
    """The limits of the config, counted by leases of all holders; a waiting take gets the freed slot."""
    config = ConsumerConfig(queues={"default": Queue(max_run=2)})
    async with consuming(redis_url, config) as one, consuming(redis_url, config) as two:
        await one.enqueue("a", "b", "c")
        first = await one.consumer.lease(limit=3)
        assert 2 == len(first)
        assert [] == await two.consumer.lease(limit=3, wait=0)
        waiting = asyncio.create_task(two.consumer.lease(limit=3))
        await first[0].done()
        [third] = await asyncio.wait_for(waiting, 10)
        assert "c" == third.id
        await asyncio.gather(first[1].done(), third.done())


@run_async
async def test_a_rate_holds_for_consumers(redis_url: str, tasks: Tasks) -> None:
    """One at once, and the next when its turn has come."""
    config = ConsumerConfig(queues={"default": Queue(rate=5, burst=1)})
    tasks.pending("a", "b")
    async with consuming(redis_url, config) as c:
        [a] = await c.consumer.lease(limit=2)
        assert [] == await c.consumer.lease(wait=0)
        [b] = await asyncio.wait_for(c.consumer.lease(limit=2), 10)
        assert ("a", "b") == (a.id, b.id)
        await asyncio.gather(a.done(), b.done())


@run_async
async def test_the_order_of_a_queue_holds_for_consumers(redis_url: str, tasks: Tasks) -> None:
    """One task at a time; what failed without a delay is the next again."""
    config = ConsumerConfig(queues={"default": Queue(ordered=True)})
    tasks.pending("a", "b")
    seen = []
    async with consuming(redis_url, config) as c:
        for _ in range(3):
            [attempt] = await asyncio.wait_for(c.consumer.lease(limit=5), 10)
            seen.append(attempt.id)
            assert [] == await c.consumer.lease(limit=5, wait=0)
            if len(seen) == 1:
                await attempt.retry("once more", delay=0)
            else:
                await attempt.done()
    assert ["a", "a", "b"] == seen


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (InvalidOptionError, "limit=0: must be a whole number", {"limit": 0}),
        (InvalidOptionError, "limit=1.5: must be a whole number", {"limit": 1.5}),
        (InvalidOptionError, "wait=-1", {"wait": -1}),
        (InvalidOptionError, "duration=0.5: must be from 1 to 60 seconds", {"duration": 0.5}),
        (InvalidOptionError, "duration=61: must be from 1 to 60 seconds", {"duration": 61}),
        (InvalidOptionError, "duration=nan", {"duration": math.nan}),
    ],
)
@run_async
async def test_what_cannot_be_taken_is_refused(
    redis_url: str, error: type[Exception], words: str, options: dict[str, Any]
) -> None:
    """The error names the value."""
    async with consuming(redis_url, ConsumerConfig(max_lease=60)) as c:
        with pytest.raises(error, match=words):
            await c.consumer.lease(**options)


@run_async
async def test_a_queue_that_the_consumer_does_not_serve_is_refused(redis_url: str) -> None:
    """Without it no process would forward or recover its tasks."""
    async with consuming(redis_url) as c:
        with pytest.raises(ConfigurationError, match=r"does not serve queue 'other'.*besides default"):
            await c.consumer.lease("default", "other")


@run_async
async def test_a_consumer_is_used_between_its_start_and_its_close(redis_url: str) -> None:
    """And started once; closing twice, or before a start, does nothing."""
    consumer = Consumer(redis_url)
    with pytest.raises(ServerStateError, match="not started"):
        await consumer.lease()
    await consumer.start()
    with pytest.raises(ServerStateError, match="starts once"):
        await consumer.start()
    await consumer.close()
    await consumer.close()
    with pytest.raises(ServerStateError, match="closed"):
        await consumer.lease()
    never = Consumer(redis_url)
    await never.close()
    with pytest.raises(ServerStateError, match="starts once"):
        await never.start()


@run_async
async def test_a_consumer_that_is_closed_while_it_starts_leaves_nothing_running(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """The caller of the start gets the error."""
    consumer = Consumer(redis_url)
    starting = asyncio.create_task(consumer.start())
    await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(ServerStateError, match="closed while it started"):
        await starting
    assert [] == redis_client.zrange("asynq:servers", 0, -1)
