"""Servers of an ordered queue on a real Redis: one task after the other, in the order of becoming pending."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import Inspector
from pyasynq._background.redis_time import RedisTime
from pyasynq._broker.servers import write_server_state
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.services.peer_watch import PeerWatch
from pyasynq._engine.settings import EngineSettings
from pyasynq._engine.take.queue_board import QueueBoard
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.events import Events, LimitsIgnored, Outcome, RoundFinished, TaskFinished
from pyasynq.limits import Queue, QueueLimits
from pyasynq.mux import Mux
from pyasynq.task import Task
from tests.contract.test_server_outages import SLOW_LEASES
from tests.contract.test_servers import server as record
from tests.fix_broker import BlockingPerformer
from tests.fix_engine import QUICK, Gate, do_nothing, make_server, serving
from tests.fix_proxy import Cut, Proxy
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.factories import Tasks
    from tests.invariants import RedisClient

ORDERED: dict[str, int | Queue] = {"default": Queue(ordered=True)}
NO_POLLS = dataclasses.replace(QUICK, look_interval=1_000, held_poll=1_000)
"""What is woken here was woken by Redis."""


def config(**changes: Any) -> ServerConfig:
    """Return the settings of a server of the ordered queue that retries at once."""
    settings: dict[str, Any] = {"queues": ORDERED, "concurrency": 10, "retry_delay": lambda *_: 0}
    return ServerConfig(**(settings | {"task_check_interval": 1_000, "shutdown_timeout": 5} | changes))


async def enqueue(url: str, ids: Iterable[str]) -> None:
    """Enqueue tasks."""
    async with Client(url) as client:
        results = await client.enqueue_many(Task("t", task_id=task_id) for task_id in ids)
    assert all(results)


class Journal:
    """A handler that writes down what begins and ends; some tasks fail at their first tries."""

    def __init__(self, **failures: int) -> None:
        self.lines: list[str] = []
        self._failures = failures

    async def __call__(self, task: Task) -> None:
        del task
        task_id = context().task_id
        self.lines.append(f"begin {task_id}")
        await asyncio.sleep(0)
        if context().retried < self._failures.get(task_id, 0):
            self.lines.append(f"fail {task_id}")
            raise ValueError(task_id)
        self.lines.append(f"end {task_id}")

    @property
    def ended(self) -> list[str]:
        return [line.removeprefix("end ") for line in self.lines if line.startswith("end")]


@run_async
async def test_tasks_run_one_after_the_other_in_their_order(redis_url: str) -> None:
    """A failed one is tried again before the next one begins, though there are slots for all."""
    await enqueue(redis_url, "abcd")
    journal = Journal(b=2)
    async with serving(redis_url, journal, config(), NO_POLLS) as running:
        await running.finished("d")
        await running.settled()
    expected = (
        "begin a, end a, begin b, fail b, begin b, fail b, begin b, end b, begin c, end c, begin d, end d"
    )
    assert expected == ", ".join(journal.lines)


@run_async
async def test_a_task_of_an_ordered_queue_costs_two_calls(redis_url: str, redis_client: RedisClient) -> None:
    """Its settle and the question for the next one, which leave together; no question is asked in vain."""
    await enqueue(redis_url, (str(number) for number in range(200)))
    before = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"]
    server = make_server(redis_url, config(burst=True), EngineSettings())
    assert 0 == await server.run(do_nothing, signals=False)
    calls = redis_client.info("commandstats")["cmdstat_evalsha"]["calls"] - before
    assert 400 <= calls < 460


@run_async
async def test_a_delayed_retry_keeps_the_others_back(redis_url: str, tasks: Tasks) -> None:
    """The queue starts no task until the head is due, or is dealt with by hand."""
    await enqueue(redis_url, "abc")
    journal = Journal(a=1)
    async with (
        Inspector(redis_url) as inspector,
        serving(redis_url, journal, config(retry_delay=lambda *_: 1_000), NO_POLLS) as running,
    ):
        await running.finished("a")
        await running.settled()
        for _ in range(4):
            await running.next_round("deadlines")
        assert (["a"], ["b", "c"]) == (tasks.ids("retry"), tasks.ids("pending"))
        await inspector.run_task("default", "a")
        await running.finished("c")
        await running.settled()
    assert ["a", "b", "c"] == journal.ended


@pytest.mark.parametrize("act", ["archive_task", "delete_task"])
@run_async
async def test_a_head_that_is_taken_away_by_hand_lets_the_next_one_pass(redis_url: str, act: str) -> None:
    """The server is woken by that."""
    await enqueue(redis_url, "ab")
    journal = Journal(a=1)
    async with (
        Inspector(redis_url) as inspector,
        serving(redis_url, journal, config(retry_delay=lambda *_: 1_000), NO_POLLS) as running,
    ):
        await running.finished("a")
        await running.settled()
        await getattr(inspector, act)("default", "a")
        await running.finished("b")
        await running.settled()
    assert ["b"] == journal.ended


@run_async
async def test_h19_a_head_of_unknown_type_keeps_its_place(redis_url: str, tasks: Tasks) -> None:
    """It waits for a server that has a handler; this one asks again after each pause, and does not spin."""
    mux = Mux()
    mux.handle("t", do_nothing)
    settings = dataclasses.replace(NO_POLLS, unknown_pause=0.1)
    async with Client(redis_url) as client:
        await client.enqueue(Task("other", task_id="a", max_retry=0))
        await client.enqueue(Task("t", task_id="b"))
    async with serving(redis_url, mux, config(on_unknown="return"), settings) as running:
        for _ in range(2):
            await running.recorder.wait(TaskFinished, new=True)
        await running.settled()
        outcomes = [(event.task_id, event.outcome) for event in running.recorder.of(TaskFinished)]
    assert {("a", Outcome.REQUEUED)} == set(outcomes)
    assert ["b"] == tasks.ids("pending")


@run_async
async def test_an_idle_server_takes_the_next_task_when_the_other_stops(redis_url: str) -> None:
    """Woken by the end of the head, far from any poll; meanwhile it asks Redis now and then at the most."""
    gate, journal = Gate(), Journal()
    async with serving(redis_url, gate, config(), NO_POLLS) as first:
        await enqueue(redis_url, "ab")
        await gate.begun.wait()
        async with serving(redis_url, journal, config(), NO_POLLS) as second:
            first.server.stop()
            for _ in range(10):
                await second.next_round("deadlines")
            seen = second.recorder.of(RoundFinished)
            assert len([event for event in seen if event.service == "processor"]) < 30
            assert [] == journal.lines
            gate.open.set()
            await second.finished("b")
            await second.settled()


@run_async
async def test_a_head_that_shutdown_puts_back_is_first_again(redis_url: str, tasks: Tasks) -> None:
    """The other server goes on with it."""
    gate, journal = Gate(), Journal()
    async with serving(redis_url, journal, config(), NO_POLLS) as second:
        second.server.stop()
        server = make_server(redis_url, config(shutdown_timeout=0), NO_POLLS)
        await server.start(gate)
        await enqueue(redis_url, "ab")
        await gate.begun.wait()
        await server.shutdown()
        assert ["a", "b"] == tasks.ids("pending")
        assert [] == journal.lines
    assert 0 == await make_server(redis_url, config(burst=True)).run(journal, signals=False)
    assert ["a", "b"] == journal.ended


@run_async
async def test_burst_waits_for_the_head(redis_url: str) -> None:
    """A queue whose tasks are kept back is not empty."""
    await enqueue(redis_url, "abc")
    journal = Journal(b=1)
    server = make_server(redis_url, config(burst=True, retry_delay=lambda *_: 0.5))
    assert 0 == await server.run(journal, signals=False)
    assert ["a", "b", "c"] == journal.ended


@run_async
async def test_max_tasks_ends_in_front_of_the_next(redis_url: str, tasks: Tasks) -> None:
    """Exactly this many are taken."""
    await enqueue(redis_url, "abc")
    journal = Journal()
    assert 0 == await make_server(redis_url, config(max_tasks=2)).run(journal, signals=False)
    assert (["a", "b"], ["c"]) == (journal.ended, tasks.ids("pending"))


@run_async
async def test_a_rate_holds_for_an_ordered_queue_too(redis_url: str) -> None:
    """Four starts at twenty a second take 150 ms."""
    await enqueue(redis_url, "abcd")
    journal = Journal()
    begun = time.monotonic()
    queues = {"default": Queue(ordered=True, rate=20, burst=1)}
    assert 0 == await make_server(redis_url, config(queues=queues, burst=True)).run(journal, signals=False)
    assert time.monotonic() - begun >= 0.15
    assert ["a", "b", "c", "d"] == journal.ended


@run_async
async def test_other_queues_are_served_meanwhile(redis_url: str) -> None:
    """The head of the ordered queue does not hold back other queues, weighted or strict."""
    gate = Gate()
    mux = Mux()
    mux.handle("wait", gate)
    mux.handle("t", do_nothing)
    queues: dict[str, int | Queue] = {"default": Queue(ordered=True, priority=9), "low": 1}
    settings = config(queues=queues, strict_priority=True, concurrency=2)
    async with serving(redis_url, mux, settings, NO_POLLS) as running:
        await running.client.enqueue(Task("wait", task_id="head"))
        await running.client.enqueue(Task("t", task_id="next"))
        await gate.begun.wait()
        await running.client.enqueue(Task("t", task_id="x", queue="low"))
        await running.finished("x")
        gate.open.set()
        await running.finished("next")
        await running.settled()


@run_async
async def test_a_server_that_did_not_say_so_obeys_an_order(redis_url: str, tasks: Tasks) -> None:
    """That a queue is ordered is kept in Redis, until an inspector ends it."""
    gate = Gate()
    running_now: set[str] = set()
    most: list[int] = []

    async def handle(task: Task) -> None:
        running_now.add(context().task_id)
        most.append(len(running_now))
        await gate(task)
        running_now.discard(context().task_id)

    async with (
        Inspector(redis_url) as inspector,
        serving(redis_url, handle, config(queues={"default": 1}), NO_POLLS) as running,
    ):
        assert QueueLimits(ordered=True) == await inspector.set_queue_limits("default", ordered=True)
        await enqueue(redis_url, "abc")
        await gate.begun.wait()
        for _ in range(4):
            await running.next_round("deadlines")
        assert [1] == most
        assert QueueLimits(ordered=True) == (await inspector.queue_info("default")).limits
        gate.open.set()
        await running.finished("c")
        await running.settled()
        assert {1} == set(most)
        gate.open.clear()
        assert QueueLimits() == await inspector.set_queue_limits("default", ordered=None)
        await enqueue(redis_url, "def")
        while len(most) < 6:
            await running.next_round("deadlines")
        assert 3 == max(most)
        gate.open.set()
        await running.finished("f")
        await running.settled()
    assert not tasks.client.exists(tasks.keys.limits)


@run_async
async def test_an_inspector_ends_an_order_that_servers_declare(redis_url: str, tasks: Tasks) -> None:
    """Until it removes its word: then the server's counts again."""
    gate = Gate()
    begun: list[str] = []

    async def handle(task: Task) -> None:
        begun.append(context().task_id)
        await gate(task)

    async with (
        Inspector(redis_url) as inspector,
        serving(redis_url, handle, config(), NO_POLLS) as running,
    ):
        await inspector.set_queue_limits("default", ordered=False)
        await enqueue(redis_url, "abc")
        while len(begun) < 3:
            await running.next_round("deadlines")
        gate.open.set()
        await running.finished("c")
        await running.settled()
        await inspector.set_queue_limits("default", ordered=None)
        # The first look tells the server that its own word counts again.
        await enqueue(redis_url, "d")
        await running.finished("d")
        await running.settled()
        gate.open.clear()
        await enqueue(redis_url, "ef")
        while "e" not in begun:
            await running.next_round("deadlines")
        for _ in range(4):
            await running.next_round("deadlines")
        assert "f" not in begun
        assert {b"ordered": b"1"} == tasks.client.hgetall(tasks.keys.limits)
        gate.open.set()
        await running.finished("f")
        await running.settled()


@pytest.mark.single_server("a proxy serves one server")
@pytest.mark.parametrize("cut", [Cut.BEFORE_REQUEST, Cut.BEFORE_REPLY])
@run_async
async def test_h01_h05_lost_replies_change_no_order_and_repeat_nothing(redis_url: str, cut: Cut) -> None:
    """Settles are sent again, and what a lost question took is found; failures among them too."""
    moments = random.Random(str(cut))
    names = [f"{number:02}" for number in range(60)]
    journal = Journal(**dict.fromkeys(names[::7], 1))

    async def handle(task: Task) -> None:
        if moments.random() < 0.2:
            proxy.cut(cut, containing=b"EVALSHA")
        await journal(task)

    await enqueue(redis_url, names)
    with Proxy(redis_url) as proxy:
        async with serving(proxy.url, handle, config(), SLOW_LEASES) as running:
            await running.finished(names[-1])
            await running.settled()
        assert proxy.cuts > 5
    expected = [
        f"{what} {name}"
        for name in names
        for what in (["begin", "fail", "begin", "end"] if name in names[::7] else ["begin", "end"])
    ]
    assert expected == journal.lines


@run_async
async def test_a_server_in_go_on_a_limited_queue_is_reported_once(
    redis_url: str, redis_client: RedisClient
) -> None:
    """At the start, and when a new one appears; not for other queues, and not servers of pyasynq."""

    def announce(server_id: str, queue: str, engine: str = "") -> None:
        info = record(server_id, queues={queue: 1}, engine=engine)
        BlockingPerformer(redis_client)(write_server_state(info, [], ttl=60))

    announce("go", "default")
    announce("elsewhere", "plain")
    announce("ours", "default", "pyasynq 9.9")
    queues: dict[str, int | Queue] = {"default": Queue(ordered=True), "plain": 1}
    async with serving(redis_url, do_nothing, config(queues=queues), NO_POLLS) as running:
        assert LimitsIgnored("default", "host", 7, "go") == await running.recorder.wait(LimitsIgnored)
        announce("late", "default")
        await running.recorder.wait(LimitsIgnored, lambda event: event.server_id == "late")
        redis_client.set("asynq:servers:{host:7:bad}", b"\xff\xff")
        redis_client.zadd("asynq:servers", {"asynq:servers:{host:7:bad}": time.time() + 60})
        for _ in range(3):
            await running.next_round("peer_watch")
        assert ["go", "late"] == [event.server_id for event in running.recorder.of(LimitsIgnored)]
        redis_client.zrem("asynq:servers", "asynq:servers:{host:7:go}")
        await running.next_round("peer_watch")
        await running.next_round("peer_watch")
        announce("go", "default")
        await running.recorder.wait(LimitsIgnored, lambda event: event.server_id == "go", new=True)
    redis_client.flushdb()


@run_async
async def test_a_server_without_limits_counts_the_others_and_reads_no_record(
    redis_url: str, redis_client: RedisClient
) -> None:
    """What is off costs nothing."""
    BlockingPerformer(redis_client)(write_server_state(record("go", queues={"default": 1}), [], ttl=60))
    driver, board = AsyncDriver(parse_redis_url(redis_url)), QueueBoard(["default"])
    time = RedisTime(SYSTEM_CLOCK)
    parts = SimpleNamespace(events=Events(), settings=QUICK, driver=driver, board=board, redis_time=time)
    watch = PeerWatch(parts, frozenset)  # type: ignore[arg-type]
    board.note_servers(7)
    assert QUICK.heartbeat_interval == await watch.round()
    assert (1, {}) == (board._servers, watch._peers)
    await driver.close()
    redis_client.flushdb()
