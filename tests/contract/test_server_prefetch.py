"""Tasks that a server takes before there is a slot for them, on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from pyasynq._engine.run.attempt import Phase
from pyasynq._wire.messages import decode_task_message
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.events import LeaseLost, TaskFinished, TaskSettled
from pyasynq.inspector import Inspector
from pyasynq.limits import Queue
from pyasynq.task import Task, TaskState
from tests.fix_engine import QUICK, Running, do_nothing, make_server, serving
from tests.invariants import check_invariants
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import redis

    from pyasynq._engine.run.attempt import Attempt
    from pyasynq.server import Server
    from tests.factories import Tasks

PATIENT = dataclasses.replace(QUICK, prefetch_span=60.0, prefetch_patience=60.0)
"""Whatever is known of them, tasks are short enough."""
ADAPTIVE = dataclasses.replace(QUICK, prefetch_span=0.5)
"""Some hundred tasks must have been short, as a busy machine sees it."""
NAMES = [f"{number:02}" for number in range(10)]


class Handler:
    """Does nothing for tasks of type `short`; others begin and wait until they are let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.open = asyncio.Event()
        self._one_more = asyncio.Event()

    async def __call__(self, task: Task) -> None:
        if task.type == "short":
            return
        self.begun.append(context().task_id)
        self._one_more.set()
        await self.open.wait()

    async def have_begun(self, number: int) -> None:
        """Wait until this many have begun."""
        while len(self.begun) < number:
            self._one_more.clear()
            await self._one_more.wait()


@asynccontextmanager
async def two_slots(url: str, handler: Handler, config: ServerConfig | None = None) -> AsyncIterator[Running]:
    """Run a server that takes tasks ahead from the beginning, and lets them wait."""
    async with serving(url, handler, config or ServerConfig(concurrency=2), PATIENT) as running:
        # The first answer says whether a queue has limits.
        await running.client.enqueue("short", task_id="first")
        await running.finished("first")
        await running.settled()
        try:
            yield running
        finally:
            handler.open.set()


def waiting(server: Server) -> list[Attempt]:
    """Return what the server has taken and not started, oldest first."""
    assert server._engine is not None
    return [one for one in server._engine._roster if one.phase.value == "taken"]


def learn(server: Server, *, seconds: float, times: int) -> None:
    """Tell a server that this many tasks have taken so long, whatever they take on this machine."""
    assert server._engine is not None
    for _ in range(times):
        server._engine._slots._prefetch.ended(seconds)
        server._engine._slots._prefetch.learn(time.monotonic())


async def enqueue_long(running: Running, **options: object) -> None:
    """Enqueue ten tasks that wait."""
    await running.client.enqueue_many(
        Task("long", task_id=name, **options)  # type: ignore[arg-type] # options of each test
        for name in NAMES
    )


async def taken_ahead(running: Running, handler: Handler, number: int) -> None:
    """Wait until this many tasks wait for a slot."""
    await handler.have_begun(2)
    while len(waiting(running.server)) != number:
        await running.next_round("processor")


@run_async
async def test_short_tasks_are_taken_before_there_is_a_slot(redis_url: str, tasks: Tasks) -> None:
    """They are active, run in their order, and no more workers are shown than there are slots."""
    handler = Handler()
    async with two_slots(redis_url, handler) as running, Inspector(redis_url) as inspector:
        await enqueue_long(running)
        await taken_ahead(running, handler, 8)
        assert (10, []) == (len(tasks.ids("active")), tasks.ids("pending"))
        assert NAMES[:2] == handler.begun
        await running.next_round("heartbeater")
        await running.next_round("heartbeater")
        [server] = await inspector.servers()
        assert [2, 2] == [server.concurrency, len(server.active_workers)]
        handler.open.set()
        await running.settled()
    assert NAMES == handler.begun
    assert [] == tasks.ids("active")


@run_async
async def test_tasks_that_would_wait_too_long_go_back_to_idle_servers(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """In their order, at the price of nothing; and no more are taken ahead."""
    handler, peer = Handler(), Handler()
    async with serving(redis_url, handler, ServerConfig(concurrency=2)) as running:
        await running.client.enqueue("short", task_id="first")
        await running.finished("first")
        await running.settled()
        learn(running.server, seconds=0.0, times=1_000)
        await enqueue_long(running)
        for name in NAMES[2:]:
            await running.recorder.wait(TaskSettled, lambda event, name=name: event.task_id == name)  # type: ignore[misc]
        assert NAMES[2:] == tasks.ids("pending")
        assert {0} == {decode_task_message(tasks.fields(name)["msg"]).retried for name in NAMES}
        assert "x:attempt" not in tasks.fields("05")
        check_invariants(redis_client)
        async with serving(redis_url, peer, ServerConfig(concurrency=8)):
            await peer.have_begun(8)
            assert (NAMES[:2], NAMES[2:], []) == (handler.begun, peer.begun, waiting(running.server))
            peer.open.set()
        handler.open.set()
        await running.settled()
    assert [] == tasks.ids("active") + tasks.ids("pending")


@run_async
async def test_slots_that_have_become_free_are_filled_before_anything_goes_back(
    redis_url: str,
) -> None:
    """Handlers that keep the event loop busy free their slots and use up the patience in one turn of it."""
    handler = Handler()
    async with two_slots(redis_url, handler) as running:
        await enqueue_long(running)
        await taken_ahead(running, handler, 8)
        engine = running.server._engine
        assert engine is not None
        await running.next_round("heartbeater")
        assert 0 == engine._intake._reserved
        engine._slots._concurrency = 6
        engine._slots._prefetch._patience = 0.0
        engine._intake.put_back_unstarted()
        assert NAMES[6:] == [one.id for one in engine._roster if one.phase is Phase.SETTLING]
        await handler.have_begun(6)
        assert NAMES[:6] == handler.begun[:6]


@run_async
async def test_a_burst_does_not_take_a_queue_for_empty_after_it_has_put_tasks_back(redis_url: str) -> None:
    """It keeps its share although it has answered that it is empty, and a burst watches no queue."""
    handler = Handler()
    config = ServerConfig(concurrency=1, prefetch=20, burst=True, queues={"default": 1, "full": 1})
    async with Client(redis_url) as client:
        await client.enqueue_many(Task("long", task_id=name) for name in NAMES)
        await client.enqueue_many(Task("long", queue="full") for _ in range(100))
    async with serving(redis_url, handler, config, PATIENT) as running:
        engine = running.server._engine
        assert engine is not None
        [default, _] = running.queues
        while not default.state.is_empty:
            await running.next_round("processor")
        while engine._intake._reserved:
            await running.next_round("heartbeater")
        engine._slots._prefetch._patience = 0.0
        engine._intake.put_back_unstarted()
        engine._slots._prefetch._patience = PATIENT.prefetch_patience
        await running.recorder.wait(TaskSettled, lambda event: event.task_id == "09")
        handler.open.set()
        await running.settled()
    assert 110 == len(handler.begun)
    assert handler.begun.index("09") < 60


@pytest.mark.parametrize("how", ["stop", "shutdown"])
@run_async
async def test_a_server_that_stops_puts_back_what_it_has_not_started(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks, how: str
) -> None:
    """At once and in order, in front of what came later; the shutdown does not wait for them."""
    handler = Handler()
    async with two_slots(redis_url, handler) as running:
        await enqueue_long(running)
        await taken_ahead(running, handler, 8)
        running.server.stop()
        await running.client.enqueue("short", task_id="later")
        if how == "shutdown":
            handler.open.set()
            await running.server.shutdown()
        else:
            for name in NAMES[2:]:
                await running.recorder.wait(TaskSettled, lambda event, name=name: event.task_id == name)  # type: ignore[misc]
        assert [*NAMES[2:], "later"] == tasks.ids("pending")
        assert NAMES[:2] == handler.begun
    check_invariants(redis_client)


@run_async
async def test_a_task_that_somebody_else_has_by_now_is_dropped_silently(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """It has not begun here, so there is nothing to break off and nothing to tell."""
    handler = Handler()
    async with two_slots(redis_url, handler) as running:
        await enqueue_long(running)
        await taken_ahead(running, handler, 8)
        redis_client.hset("asynq:{default}:t:05", "x:attempt", "somebody/1")
        [stolen] = [one for one in waiting(running.server) if one.id == "05"]
        while not stolen.lost:
            await running.next_round("heartbeater")
        handler.open.set()
        await running.settled()
        assert [] == running.recorder.of(LeaseLost)
        assert "05" not in {event.task_id for event in running.recorder.of(TaskFinished)}
    assert [name for name in NAMES if name != "05"] == handler.begun
    assert b"active" == redis_client.hget("asynq:{default}:t:05", "state")


@run_async
async def test_a_task_that_may_run_only_once_begins_only_if_redis_agrees(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """Somebody else has it by now, and this server has not noticed yet. (D29)"""
    handler = Handler()
    async with two_slots(redis_url, handler, ServerConfig(concurrency=2, crash_limit=0)) as running:
        await enqueue_long(running)
        await taken_ahead(running, handler, 8)
        redis_client.hset("asynq:{default}:t:05", "x:attempt", "somebody/1")
        handler.open.set()
        await handler.have_begun(9)
        await running.settled()
    assert {*NAMES} - {"05"} == {*handler.begun}
    assert [b"active", b"somebody/1"] == redis_client.hmget("asynq:{default}:t:05", "state", "x:attempt")
    assert not redis_client.hexists("asynq:{default}:t:05", "x:begun")


@run_async
async def test_a_task_whose_lease_has_lapsed_is_put_back_and_not_run(redis_url: str, tasks: Tasks) -> None:
    """It was not taken by another worker: its lease is renewed, and it runs as usual."""
    handler = Handler()
    async with two_slots(redis_url, handler) as running:
        await enqueue_long(running)
        await taken_ahead(running, handler, 8)
        [lapsed] = [one for one in waiting(running.server) if one.id == "05"]
        lapsed.lease_until = 0.0
        handler.open.set()
        await running.recorder.wait(TaskSettled, lambda event: event.task_id == "05")
        await handler.have_begun(10)
        await running.settled()
    assert Counter(NAMES) == Counter(handler.begun)
    assert "05" == handler.begun[-1]
    assert [] == tasks.ids("active") + tasks.ids("pending")


@run_async
async def test_a_task_that_is_cancelled_before_its_slot_is_free_does_not_run(
    redis_url: str, tasks: Tasks
) -> None:
    """Whether it would have been started next or put back."""
    handler = Handler()
    async with two_slots(redis_url, handler) as running, Inspector(redis_url) as inspector:
        await enqueue_long(running)
        await taken_ahead(running, handler, 8)
        for name in ("03", "05"):
            await inspector.cancel(name, "default", "archive")
        while sum(one.cause is not None for one in waiting(running.server)) < 2:
            await running.next_round("heartbeater")
        running.server.stop()
        await running.finished("05")
        await running.recorder.wait(TaskSettled, lambda event: event.task_id == "09")
        assert ["02", "04", "06", "07", "08", "09"] == tasks.ids("pending")
    assert NAMES[:2] == handler.begun
    assert {"03", "05"} == set(tasks.ids(TaskState.ARCHIVED.value))


@run_async
async def test_the_time_of_a_task_begins_with_its_handler(redis_url: str) -> None:
    """The timeout does not count the time that the task waits in the worker."""
    handler = Handler()
    async with two_slots(redis_url, handler) as running:
        await enqueue_long(running, timeout=1_000)
        await taken_ahead(running, handler, 8)
        ahead = waiting(running.server)
        opened_at = time.monotonic()
        assert all(one.started < opened_at for one in ahead)
        handler.open.set()
        await running.settled()
    assert len(ahead) == 8
    assert all(one.deadline >= opened_at + 1_000 for one in ahead)


@pytest.mark.parametrize(
    "config",
    [
        ServerConfig(concurrency=2, prefetch=0),
        ServerConfig(concurrency=2, queues={"default": Queue(max_run=1_000)}),
        ServerConfig(concurrency=2, queues={"default": Queue(rate=1_000_000, burst=1_000_000)}),
        ServerConfig(concurrency=2, queues={"default": 2, "other": Queue(max_run=1_000)}),
        ServerConfig(concurrency=2, queues={"default": 2, "other": 1}, strict_priority=True),
    ],
    ids=["switched off", "concurrency", "rate", "next to a limited queue", "strict priority"],
)
@run_async
async def test_nothing_is_taken_ahead_where_it_could_do_harm(
    redis_url: str, tasks: Tasks, config: ServerConfig
) -> None:
    """However short tasks are."""
    handler = Handler()
    async with two_slots(redis_url, handler, config) as running:
        await enqueue_long(running)
        await handler.have_begun(2)
        await running.next_round("heartbeater")
        assert (2, 8) == (len(tasks.ids("active")), len(tasks.ids("pending")))
        handler.open.set()
        await running.settled()


@pytest.mark.long
@run_async
async def test_nothing_is_taken_ahead_in_front_of_a_suspect(redis_url: str, tasks: Tasks) -> None:
    """The suspect runs alone; the tasks in front of it run before."""
    together: list[set[str]] = []
    now: set[str] = set()

    async def handle(task: Task) -> None:
        del task
        now.add(context().task_id)
        together.append(set(now))
        await asyncio.sleep(0)
        together.append(set(now))
        now.discard(context().task_id)

    for number in range(2_000):
        crashes = {"x:crashes": 2} if number in {1_400, 1_800} else {}
        tasks.put(TaskState.PENDING, str(number), extra=crashes)
    settings = dataclasses.replace(PATIENT, silence_share=100.0)
    server = make_server(redis_url, ServerConfig(concurrency=5, burst=True), settings)
    assert 0 == await server.run(handle, signals=False)
    for suspect in ("1400", "1800"):
        assert [{suspect}] * 2 == [group for group in together if suspect in group]
    assert 4_000 == len(together)


@run_async
async def test_max_tasks_counts_what_was_run(redis_url: str, tasks: Tasks) -> None:
    """Tasks that were put back unstarted have not been had."""
    runs = Counter[str]()
    settings = dataclasses.replace(ADAPTIVE, prefetch_patience=0.0)

    async def handle(task: Task) -> None:
        del task
        runs[context().task_id] += 1
        await asyncio.sleep(0)

    async with Client(redis_url) as client:
        await client.enqueue_many(Task("t", task_id=str(one)) for one in range(2_000))
    server = make_server(redis_url, ServerConfig(concurrency=3, max_tasks=1_500), settings)
    assert 0 == await server.run(handle, signals=False)
    assert (1_500, {1}) == (runs.total(), set(runs.values()))
    assert (500, 0) == (len(tasks.ids("pending")), len(tasks.ids("active")))


@run_async
async def test_queues_get_their_shares_of_what_is_taken_ahead(redis_url: str) -> None:
    """A queue of weight 3 is served three times as often as one of weight 1."""
    order: list[str] = []

    async def handle(task: Task) -> None:
        del task
        order.append(context().queue)

    async with Client(redis_url) as client:
        for queue in ("heavy", "light"):
            await client.enqueue_many((Task("t") for _ in range(6_000)), queue=queue)
    config = ServerConfig(concurrency=10, queues={"heavy": 3, "light": 1}, max_tasks=4_000)
    assert 0 == await make_server(redis_url, config, PATIENT).run(handle, signals=False)
    shares = Counter(order[2_000:])
    assert abs(shares["heavy"] - 1_500) <= 60


@pytest.mark.long
@run_async
async def test_a_consumer_takes_nothing_ahead(redis_url: str, tasks: Tasks) -> None:
    """The caller of a pull chooses the number."""
    from pyasynq.consumer import Consumer  # noqa: PLC0415 - needed only here

    async with Client(redis_url) as client, Consumer(redis_url) as consumer:
        await client.enqueue_many(Task("t", task_id=str(one)) for one in range(2_000))
        for _ in range(15):
            async with consumer.take("default", limit=100) as attempts:
                for one in attempts:
                    await one.done()
        async with consumer.take("default", limit=1):
            assert 1 == len(tasks.ids("active"))


@run_async
async def test_an_idle_server_stays_with_one_task_at_a_time(redis_url: str) -> None:
    """It has taken nothing ahead that another one could have had."""
    async with serving(redis_url, do_nothing, ServerConfig(concurrency=2)) as running:
        for number in range(3):
            await running.client.enqueue("t", task_id=str(number))
            await running.finished(str(number))
        assert [] == waiting(running.server)


@run_async
async def test_what_was_taken_from_a_paused_queue_and_not_started_goes_back(
    redis_url: str, tasks: Tasks
) -> None:
    """In its old order; what waits from another queue stays. (D26)"""
    handler = Handler()
    config = ServerConfig(queues={"default": 1, "other": 1}, concurrency=2)
    async with two_slots(redis_url, handler, config) as running, Inspector(redis_url) as inspector:
        await enqueue_long(running)
        await taken_ahead(running, handler, 8)
        await running.client.enqueue(Task("long", task_id="stays", queue="other"))
        while len(waiting(running.server)) != 9:
            await running.next_round("processor")
        await inspector.pause_queue("default")
        while NAMES[2:] != tasks.ids("pending"):
            await running.next_round("processor")
        assert ["stays"] == [one.id for one in waiting(running.server)]
        assert NAMES[:2] == handler.begun
        handler.open.set()
        await running.finished("stays")
        await inspector.unpause_queue("default")
        await running.finished(NAMES[-1])
        await running.settled()
