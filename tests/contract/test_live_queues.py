"""Queues that are added to a server, changed and removed while it runs."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pyasynq._engine.supervisor.child_facts import ChildFacts
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.errors import ConfigurationError, InvalidOptionError, RedisError, ServerStateError
from pyasynq.events import Outcome, QueueChanged, RoundFinished, TaskFinished
from pyasynq.inspector import Inspector
from pyasynq.limits import Queue
from pyasynq.task import Task, TaskState
from tests.factories import Tasks
from tests.fix_engine import QUICK, Gate, Running, do_nothing, is_watched, make_server, serving
from tests.run_async import run_async, run_async_within

if TYPE_CHECKING:
    import redis

    from pyasynq.client import Client
    from tests.fix_proxy import Proxy


async def type_finished(running: Running, task_type: str, retried: int = 0) -> None:
    """Wait until an attempt at a task of a type has ended."""
    await running.recorder.wait(
        TaskFinished, lambda event: event.task_type == task_type and event.retried == retried
    )


async def queue_ended(running: Running, queue: str) -> None:
    """Wait until nothing is left of a removed queue."""
    await running.recorder.wait(QueueChanged, lambda event: event.queue == queue and event.change == "ended")


@run_async
async def test_an_added_queue_is_served_in_all_respects(redis_url: str, redis_client: redis.Redis) -> None:
    """Pending, scheduled, retried, grouped and orphaned tasks; its record shows it; `config` does not."""
    runs: Counter[str] = Counter()

    async def handle(task: Task) -> None:
        runs[task.type] += 1
        if task.type == "fails" and runs["fails"] == 1:
            raise ValueError

    async def join(group: str, tasks: list[Task]) -> Task:
        return Task(f"{group}{len(tasks)}")

    orphan = Tasks(redis_client, queue="new")
    orphan.active("orphan", token="dead/1", lease=int(time.time()) - 60, type="orphan")
    config = ServerConfig(retry_delay=0, group_aggregator=join, group_max_size=2, shutdown_timeout=5)
    at_once = dataclasses.replace(QUICK, lease=1, own_slack=0, aggregation_interval=0.1)
    async with serving(redis_url, handle, config, at_once) as running:
        client = running.client
        await running.server.add_queue("new", Queue(priority=7, max_run=3))
        for task_type in ("plain", "fails"):
            await client.enqueue(task_type, queue="new")
        await client.enqueue("later", queue="new", process_in=1)
        for _ in range(2):
            await client.enqueue("part", queue="new", group="joined")
        for task_type in ("plain", "later", "joined2", "orphan"):
            await type_finished(running, task_type)
        await type_finished(running, "fails", retried=1)
        await running.next_round("heartbeater")
        await running.next_round("heartbeater")
        async with Inspector(redis_url) as inspector:
            [shown] = await inspector.servers()
        assert {"default": 1, "new": 7} == dict(shown.queues)
        assert 3 == shown.limits["new"].max_run
        assert ["default"] == list(running.server.config.queues)


@run_async
async def test_a_removed_queue_gives_no_more_tasks_and_its_running_ones_end_well(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """The lease of what runs is renewed; then nothing of the queue is left in the server."""
    gate = Gate()
    async with serving(redis_url, gate, ServerConfig(queues={"default": 1, "old": 1})) as running:
        await running.client.enqueue("t", queue="old", task_id="runs", retention=60)
        await gate.begun.wait()
        await running.server.remove_queue("old")
        await running.client.enqueue("t", queue="old", task_id="stays")
        old = Tasks(redis_client, queue="old")
        redis_client.zadd(old.keys.lease, {"runs": 1})
        for _ in range(2):
            await running.next_round("heartbeater")
        assert redis_client.zscore(old.keys.lease, "runs") > time.time()  # type: ignore[operator]
        assert ["stays"] == old.ids("pending")
        gate.open.set()
        assert Outcome.SUCCEEDED is (await running.finished("runs")).outcome
        await queue_ended(running, "old")
        engine = running.server._engine
        assert engine is not None
        assert ["default"] == list(engine._board.known)
        async with Inspector(redis_url) as inspector:
            [shown] = await inspector.servers()
            assert ["default"] == list(shown.queues)
            info = await inspector.task_info("old", "runs")
            assert info.state is TaskState.COMPLETED
        assert ["stays"] == old.ids("pending")
        await running.server.add_queue("old")
        assert Outcome.SUCCEEDED is (await running.finished("stays")).outcome


@run_async
async def test_tasks_that_were_taken_ahead_go_back_in_their_order(
    redis_url: str, redis_client: redis.Redis
) -> None:
    """They wait for a slot when their queue is removed; the tasks of the other queue keep their places."""
    gate, open_gate = Gate(), asyncio.Event()

    async def handle(task: Task) -> None:
        if open_gate.is_set():
            await gate(task)

    config = ServerConfig(queues={"default": 1, "old": 1}, concurrency=1, prefetch=50, shutdown_timeout=5)
    async with serving(redis_url, handle, config) as running:
        engine = running.server._engine
        assert engine is not None
        ids = [f"t{number:03}" for number in range(400)]
        await running.client.enqueue_many(Task("t", queue="old", task_id=one) for one in ids)
        while not engine._slots._prefetch.number:
            await running.recorder.wait(RoundFinished, new=True)
        open_gate.set()
        await gate.begun.wait()
        await running.server.remove_queue("old")
        assert 0 == engine._slots._prefetch.number
        gate.open.set()
        await queue_ended(running, "old")
        left = Tasks(redis_client, queue="old").ids("pending")
        assert ids[400 - len(left) :] == left
        assert left


@run_async
async def test_what_a_call_under_way_brings_of_a_removed_queue_goes_back(
    proxy: Proxy, redis_client: redis.Redis
) -> None:
    """The call was sent before the removal; its tasks do not start, and keep their order."""
    old = Tasks(redis_client, queue="old")
    runs: list[str] = []

    async def handle(task: Task) -> None:
        del task
        runs.append(context().task_id)

    async with serving(proxy.url, handle, ServerConfig(queues={"default": 1, "old": 1})) as running:
        engine = running.server._engine
        assert engine is not None
        while not all(is_watched(queue) for queue in running.queues):
            await running.recorder.wait(RoundFinished, new=True)
        proxy.hold()
        old.pending("a", "b", "c")
        # The call will also tell of a task that is to run alone, since it may kill its worker.
        old.put(TaskState.PENDING, "suspect", extra={"x:crashes": 2})
        engine._board.ask_again(running.queues[1])
        engine._processor.wake()
        while not engine._intake._reserved:
            await running.next_round("deadlines")
        await running.server.remove_queue("old")
        proxy.release()
        while engine._intake._reserved:
            await running.recorder.wait(RoundFinished, new=True)
        await running.settled()
        assert ["a", "b", "c", "suspect"] == old.ids("pending")
        assert [] == runs == old.ids("active")
        await queue_ended(running, "old")
        await running.client.enqueue("t", task_id="other")
        await running.finished("other")
        assert ["other"] == runs


@run_async
async def test_events_of_an_added_queue_are_published(redis_url: str, redis_client: redis.Redis) -> None:
    """Where all are; a mapping names those that are, and an added queue is not among them."""
    for published, expected in ((True, 2), ({"default": True}, 0)):
        config = ServerConfig(publish_events=published, shutdown_timeout=5)
        async with serving(redis_url, do_nothing, config) as running:
            await running.server.add_queue("new")
            await running.client.enqueue("t", queue="new", task_id="a")
            await running.finished("a")
            await running.settled()
        assert expected == redis_client.xlen(Tasks(redis_client, queue="new").keys.events)
        redis_client.flushdb()


def test_the_supervisor_learns_of_queues_that_come_and_go() -> None:
    """So that tasks of an added queue, too, are recovered at once when their worker is killed."""
    facts = ChildFacts.of("id", "host", "redis://r", ServerConfig(), {})
    added = facts.with_queue("new", has_tasks=True)
    assert ("default", "new") == added.queues == added.with_queue("new", has_tasks=True).queues
    assert ("default",) == added.with_queue("new", has_tasks=False).queues


@run_async
async def test_limits_of_an_added_and_of_a_changed_queue_hold(redis_url: str) -> None:
    """For all servers together, from the first task on."""
    now, most = 0, 0

    async def handle(task: Task) -> None:
        nonlocal now, most
        del task
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    config = ServerConfig(concurrency=20, shutdown_timeout=5)
    async with serving(redis_url, handle, config) as one, serving(redis_url, handle, config) as two:
        for running in (one, two):
            await running.server.add_queue("few", Queue(max_run=1))
        for limit in (1, 2):
            most = 0
            ids = [f"{limit}-{number}" for number in range(60)]
            await one.client.enqueue_many(Task("t", queue="few", task_id=task_id) for task_id in ids)
            for task_id in ids:
                waits = [asyncio.ensure_future(running.finished(task_id)) for running in (one, two)]
                _, rest = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                for wait in rest:
                    wait.cancel()
            assert most <= limit
            for running in (one, two):
                await running.server.set_queue("few", Queue(max_run=2))


@run_async
async def test_an_added_ordered_queue_keeps_its_order_through_retries(redis_url: str) -> None:
    """Also after it was removed and added again with other words."""
    order: list[str] = []

    async def handle(task: Task) -> None:
        del task
        order.append(context().task_id)
        if context().retried == 0:
            raise ValueError

    config = ServerConfig(retry_delay=0, shutdown_timeout=5)
    async with serving(redis_url, handle, config) as running:
        ids = [f"t{number}" for number in range(6)]
        await running.server.add_queue("line", Queue(ordered=True))
        for number, task_id in enumerate(ids):
            await running.client.enqueue("t", queue="line", task_id=task_id)
            if number == 2:
                await running.server.remove_queue("line")
                await running.server.add_queue("line", 3)
        await running.finished(ids[-1], retried=1)
    assert [task_id for task_id in ids for _ in range(2)] == order


@run_async
async def test_strict_priority_counts_added_and_changed_queues(redis_url: str) -> None:
    """The ranks are those of the moment."""
    order: list[str] = []
    gate = Gate()

    async def handle(task: Task) -> None:
        order.append(context().queue)
        await gate(task)

    config = ServerConfig(queues={"low": 1}, concurrency=1, strict_priority=True, shutdown_timeout=5)
    async with serving(redis_url, handle, config) as running:
        await running.client.enqueue("t", queue="low")
        await gate.begun.wait()
        # A new queue is asked at its first turn. Redis' report that an empty one has tasks takes a moment.
        for queue in ("low", "high", "top"):
            await running.client.enqueue_many(Task("t", queue=queue) for _ in range(3))
        await running.server.add_queue("high", 5)
        await running.server.add_queue("top", 1)
        await running.server.set_queue("top", 9)
        gate.open.set()
        while len(order) < 10:
            await running.recorder.wait(TaskFinished, new=True)
    assert ["low", *["top"] * 3, *["high"] * 3, *["low"] * 3] == order


@run_async
async def test_one_of_several_tasks_that_add_or_remove_a_queue_succeeds(redis_url: str) -> None:
    """The others are told; afterwards it is served once, or not at all."""
    async with serving(redis_url, do_nothing) as running:
        server = running.server
        for call, change in ((server.add_queue, "added"), (server.remove_queue, "removed")):
            results = await asyncio.gather(*(call("new") for _ in range(5)), return_exceptions=True)
            assert 1 == results.count(None)
            assert 4 == sum(isinstance(result, ConfigurationError) for result in results)
            assert 1 == [(event.queue, event.change) for event in running.recorder.of(QueueChanged)].count(
                ("new", change)
            )


@run_async
async def test_a_handler_may_remove_its_own_queue(redis_url: str) -> None:
    """It is a task of the server's loop."""

    async def handle(task: Task) -> None:
        del task
        await running.server.add_queue("next")
        await running.server.remove_queue(context().queue)

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await queue_ended(running, "default")


@run_async
async def test_what_a_configuration_would_refuse_is_refused(redis_url: str) -> None:
    """`add_queue` raises the same errors as a configuration, and changes nothing."""
    async with serving(redis_url, do_nothing) as running:
        server = running.server
        for name, queue in (("", 1), ("bad", 0), ("bad", "1"), ("bad", None), (1, 1)):
            with pytest.raises(InvalidOptionError) as told:
                await server.add_queue(name, queue)  # type: ignore[arg-type]
            with pytest.raises(InvalidOptionError) as configured:
                ServerConfig(queues={name: queue})  # type: ignore[dict-item]
            assert str(configured.value) == str(told.value)
        with pytest.raises(ConfigurationError, match="serves queue 'default' already"):
            await server.add_queue("default", 2)
        for change in (server.remove_queue("other"), server.set_queue("other", 2)):
            with pytest.raises(ConfigurationError, match="does not serve queue 'other'"):
                await change
        with pytest.raises(ConfigurationError, match="only queue of this server"):
            await server.remove_queue("default")
        assert ["default"] == [queue.name for queue in running.queues]
        assert 1 == running.server._engine._board.settings["default"].priority  # type: ignore[union-attr]


@run_async
async def test_queues_change_only_while_the_server_runs(redis_url: str) -> None:
    """Before the start and after the shutdown it is an error of state."""
    server = make_server(redis_url)
    for state in ("not started", "closed"):
        for change in (server.add_queue("new"), server.set_queue("new", 1), server.remove_queue("default")):
            with pytest.raises(ServerStateError, match=state):
                await change
        if state == "not started":
            await server.start(do_nothing)
            await server.shutdown()


@run_async
async def test_a_queue_that_redis_refuses_is_not_added(redis_url: str, redis_client: redis.Redis) -> None:
    """As at the start: every service would fail for it."""
    tasks = Tasks(redis_client, queue="bad")
    redis_client.set(tasks.keys.lease, "no sorted set")
    async with serving(redis_url, do_nothing) as running:
        with pytest.raises(RedisError, match="WRONGTYPE"):
            await running.server.add_queue("bad")
        assert ["default"] == [queue.name for queue in running.queues]
        redis_client.delete(tasks.keys.lease)
        await running.server.add_queue("bad")
        await running.client.enqueue("t", queue="bad", task_id="a")
        await running.finished("a")


@run_async
async def test_the_watch_over_a_removed_queue_ends(redis_url: str) -> None:
    """Names that come and go leave nothing behind."""
    async with serving(redis_url, do_nothing) as running:
        engine = running.server._engine
        assert engine is not None
        servers = engine._watcher._servers

        def watched() -> set[str]:
            return {key for server in servers.values() for key in server._watched}

        while not is_watched(running.queues[0]):
            await running.recorder.wait(RoundFinished, new=True)
        before = watched()
        await running.server.add_queue("new")
        while not is_watched(running.queues[-1]) or len(watched()) < len(before) + 4:
            await running.recorder.wait(RoundFinished, new=True)
        await running.server.remove_queue("new")
        await queue_ended(running, "new")
        assert before == watched()


async def one_more(running: Running, served: Counter[str]) -> None:
    """Wait until the queue that stays has been served once more; it must not starve."""
    before = served.total()
    while served.total() == before:
        await running.recorder.wait(RoundFinished, new=True)


@pytest.mark.parametrize(
    "number", [60, pytest.param(1_000, marks=[pytest.mark.long, pytest.mark.timeout(300)])]
)
@run_async_within(290)
async def test_many_queues_come_and_go_under_load_and_nothing_is_lost(redis_url: str, number: int) -> None:
    """Each task runs once; the queue that stays is served all the time."""
    runs: Counter[str] = Counter()
    served: Counter[str] = Counter()
    ran = asyncio.Event()

    async def handle(task: Task) -> None:
        del task
        runs[context().task_id] += 1
        if context().task_id.startswith("stays"):
            served["stays"] += 1
            ran.set()

    async def load(client: Client, stop: asyncio.Event) -> int:
        """Enqueue to the queue that stays, each time when the task before has run."""
        for count in itertools.count():
            if stop.is_set():
                return count
            await client.enqueue("t", task_id=f"stays{count}")
            await ran.wait()
            ran.clear()
        raise AssertionError

    async def come_and_go(running: Running, numbers: list[int], others: list[Running]) -> None:
        for one in numbers:
            queue = f"q{one}"
            await running.server.add_queue(queue, Queue(priority=1 + one % 5, max_run=(None, 2)[one % 2]))
            ids = [f"{queue}-{place}" for place in range(5)]
            await running.client.enqueue_many(Task("t", queue=queue, task_id=task_id) for task_id in ids)
            # Whatever has not begun is left to the next server.
            await running.server.remove_queue(queue)
            await others[0].server.add_queue(queue)
            if one % 10 == 0:
                await one_more(running, served)

    async with (
        serving(redis_url, handle, ServerConfig(concurrency=5, shutdown_timeout=5)) as first,
        serving(redis_url, handle, ServerConfig(concurrency=5, shutdown_timeout=5)) as second,
    ):
        stop = asyncio.Event()
        loading = asyncio.create_task(load(first.client, stop))
        numbers = list(range(number))
        await asyncio.gather(*(come_and_go(first, numbers[start::4], [second]) for start in range(4)))
        expected = {f"q{one}-{place}" for one in numbers for place in range(5)}
        while expected - runs.keys():
            await second.recorder.wait(RoundFinished, new=True)
        stop.set()
        count = await loading
        assert {1} == {runs[task_id] for task_id in (*expected, *(f"stays{place}" for place in range(count)))}
        await asyncio.gather(*(queue_ended(first, f"q{one}") for one in numbers))
        assert first.server._engine is not None
        assert ["default"] == list(first.server._engine._board.known)
