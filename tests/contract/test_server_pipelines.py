"""Two pipelines of one server under way at the same time, on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._engine.services.processor import Processor
from pyasynq._engine.services.sender import Sender
from pyasynq.client import Client
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.errors import RedisUnavailableError
from pyasynq.events import RoundFailed
from pyasynq.limits import Queue
from pyasynq.task import Task, TaskState
from tests.fix_engine import QUICK, do_nothing, make_server, serving
from tests.fix_proxy import Cut, Proxy
from tests.invariants import check_invariants
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import redis

    from tests.factories import Tasks

SLOTS = 100


class Pipelines:
    """Counts the pipelines that are under way, and can do something else in place of a second one."""

    def __init__(self) -> None:
        self.under_way = 0
        self.most = 0
        self.second: Callable[[Awaitable[list[Any]], int], Awaitable[list[Any]]] | None = None


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> Pipelines:
    """What the processors of a test send."""
    seen, send = Pipelines(), Sender._exchange

    async def counting(sender: Sender, plans: Sequence[Any]) -> list[Any]:
        seen.under_way += 1
        seen.most = max(seen.most, seen.under_way)
        try:
            sent = send(sender, plans)
            if seen.under_way > 1 and seen.second is not None:
                second, seen.second = seen.second, None
                return await second(sent, len(plans))
            return await sent
        finally:
            seen.under_way -= 1

    monkeypatch.setattr(Sender, "_exchange", counting)
    return seen


class Runs(Counter[str]):
    """A handler that counts the runs of each task."""

    async def __call__(self, task: Task) -> None:
        del task
        self[context().task_id] += 1


async def drain(url: str, handler: Any, config: ServerConfig, number: int) -> None:
    """Enqueue this many tasks, named by their numbers, and run a server on them."""
    async with Client(url) as client:
        await client.enqueue_many(Task("t", task_id=str(one)) for one in range(number))
    assert 0 == await make_server(url, config).run(handler, signals=False)


@run_async
async def test_a_second_pipeline_leaves_while_the_first_is_under_way(
    redis_url: str, redis_client: redis.Redis, pipelines: Pipelines
) -> None:
    """One half of the slots is filled while the other works; each task runs once, and nothing is left."""
    runs = Runs()
    await drain(redis_url, runs, ServerConfig(concurrency=SLOTS, burst=True), 1_000)
    assert 2 == pipelines.most
    assert Counter({str(one): 1 for one in range(1_000)}) == runs
    assert set() == set(redis_client.scan_iter("*:t:*"))
    check_invariants(redis_client)


@pytest.mark.parametrize(
    "queue", [Queue(max_run=1_000), Queue(rate=1_000_000, burst=1_000_000), Queue(ordered=True)]
)
@run_async
async def test_limited_and_ordered_queues_are_asked_by_one_pipeline_at_a_time(
    redis_url: str, pipelines: Pipelines, queue: Queue
) -> None:
    """There, what one call brings depends on what the others have written."""
    runs = Runs()
    config = ServerConfig(queues={"default": queue}, concurrency=SLOTS, burst=True)
    await drain(redis_url, runs, config, 60 if queue.ordered else 400)
    assert 1 == pipelines.most
    assert {1} == set(runs.values())


@run_async
async def test_two_pipelines_take_no_more_than_max_tasks(
    redis_url: str, tasks: Tasks, pipelines: Pipelines
) -> None:
    """The tasks that the other pipeline may bring are reserved."""
    runs = Runs()
    await drain(redis_url, runs, ServerConfig(concurrency=SLOTS, max_tasks=333), 1_000)
    assert (2, 333) == (pipelines.most, runs.total())
    assert (667, 0) == (len(tasks.ids("pending")), len(tasks.ids("active")))


@run_async
async def test_two_pipelines_start_no_more_handlers_than_there_are_slots(
    redis_url: str, pipelines: Pipelines
) -> None:
    """The handlers end after different numbers of loop iterations."""
    now, most = 0, 0

    async def handle(task: Task) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _ in range(hash(task.payload) % 5):
            await asyncio.sleep(0)
        now -= 1

    async with Client(redis_url) as client:
        await client.enqueue_many(Task("t", str(one).encode()) for one in range(1_000))
    await make_server(redis_url, ServerConfig(concurrency=SLOTS, burst=True)).run(handle, signals=False)
    assert 2 == pipelines.most
    assert most <= SLOTS


@run_async
async def test_a_second_pipeline_that_fails_is_reported_and_its_outcomes_are_kept(
    redis_url: str, redis_client: redis.Redis, pipelines: Pipelines
) -> None:
    """Redis did not get it: what it carried is written later, and no task runs twice."""
    runs = Runs()
    error = RedisUnavailableError("redis:6379", "the test says so")

    async def fail(sent: Any, number: int) -> list[Any]:
        sent.close()
        return [error] * number

    pipelines.second = fail
    server = make_server(redis_url, ServerConfig(concurrency=SLOTS, burst=True))
    failures: list[RoundFailed] = []
    server.events.subscribe(RoundFailed, failures.append)
    async with Client(redis_url) as client:
        await client.enqueue_many(Task("t", task_id=str(one)) for one in range(1_000))
    assert 0 == await server.run(runs, signals=False)
    assert [("processor", error)] == [(one.service, one.error) for one in failures]
    assert Counter({str(one): 1 for one in range(1_000)}) == runs
    check_invariants(redis_client)


@pytest.mark.parametrize("cut", list(Cut))
@run_async
async def test_h13_replies_lost_at_the_same_time_lose_no_task(
    redis_client: redis.Redis, proxy: Proxy, pipelines: Pipelines, cut: Cut
) -> None:
    """Connections break under either pipeline; each task runs once."""
    runs = Runs()

    async def cut_it(sent: Any, number: int) -> list[Any]:
        del number
        proxy.cut(cut, containing=b"EVALSHA", times=2)
        return await sent  # type: ignore[no-any-return]

    pipelines.second = cut_it
    await drain(proxy.url, runs, ServerConfig(concurrency=SLOTS, burst=True), 1_000)
    assert proxy.cuts
    assert Counter({str(one): 1 for one in range(1_000)}) == runs
    check_invariants(redis_client)


@pytest.mark.long
@run_async
async def test_a_shutdown_waits_for_the_second_pipeline(
    redis_url: str,
    redis_client: redis.Redis,
    tasks: Tasks,
    pipelines: Pipelines,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it brings when the handlers have been waited for goes back to the front, in its order."""
    held, go_on, leave = asyncio.Event(), asyncio.Event(), Processor.leave
    brought: list[str] = []

    async def hold(sent: Any, number: int) -> list[Any]:
        del number
        results: list[Any] = await sent
        brought.extend(task.id for task in results[-1].tasks)
        held.set()
        await go_on.wait()
        return results

    async def leaving(processor: Processor) -> None:
        go_on.set()
        await leave(processor)

    pipelines.second = hold
    monkeypatch.setattr(Processor, "leave", leaving)
    runs = Runs()
    async with Client(redis_url) as client:
        await client.enqueue_many(Task("t", task_id=f"{one:04}") for one in range(5_000))
    async with serving(redis_url, runs, ServerConfig(concurrency=SLOTS)) as running:
        await held.wait()
        await running.server.shutdown()
    left = tasks.ids("pending")
    assert ([], 5_000, {1}) == (tasks.ids("active"), len(runs) + len(left), set(runs.values()))
    at = left.index(brought[0])
    assert brought == left[at : at + len(brought)]
    check_invariants(redis_client)


class Company:
    """A handler that notes which tasks run at the same time; some end in the turn in which they begin."""

    def __init__(self, turns: Callable[[int], int]) -> None:
        self.together: list[set[str]] = []
        self._turns = turns
        self._now: set[str] = set()

    async def __call__(self, task: Task) -> None:
        del task
        name = context().task_id
        self._now.add(name)
        self.together.append(set(self._now))
        for _ in range(self._turns(int(name))):
            await asyncio.sleep(0)
        self.together.append(set(self._now))
        self._now.discard(name)

    def of(self, name: str) -> list[set[str]]:
        """Return with whom a task ran."""
        return [group for group in self.together if name in group]


@run_async
async def test_h06_suspects_run_alone_with_two_pipelines(
    redis_url: str, tasks: Tasks, pipelines: Pipelines
) -> None:
    """A suspect waits for the other pipeline, and no other task is requested."""
    company = Company(lambda _number: 1)
    await run_with_suspects(redis_url, tasks, company, {150, 350}, ServerConfig(concurrency=SLOTS))
    assert 2 == pipelines.most


@run_async
async def test_h06_suspects_run_without_attempts_that_begin_in_a_later_turn(
    redis_url: str, tasks: Tasks, pipelines: Pipelines
) -> None:
    """Fifty that come before it have ended, and ten others, which run for longer, have not begun."""
    company = Company(lambda number: 500 if 50 <= number < 60 else 0)
    config = ServerConfig(concurrency=SLOTS - 1, prefetch=0)
    await run_with_suspects(redis_url, tasks, company, {60}, config)
    assert 1 == pipelines.most


async def run_with_suspects(
    url: str, tasks: Tasks, company: Company, suspects: set[int], config: ServerConfig
) -> None:
    """Run a server on 500 tasks, some of which have crashed before; each of those must run alone."""
    for number in range(500):
        extra = {"x:crashes": 2} if number in suspects else {}
        tasks.put(TaskState.PENDING, str(number), extra=extra)
    settings = dataclasses.replace(QUICK, silence_share=100.0)
    config = dataclasses.replace(config, burst=True)
    assert 0 == await make_server(url, config, settings).run(company, signals=False)
    for suspect in suspects:
        assert [{str(suspect)}] * 2 == company.of(str(suspect))


@run_async
async def test_an_idle_server_is_woken_by_one_pipeline(redis_url: str, pipelines: Pipelines) -> None:
    """A second one would look into a queue that has nothing more to give."""
    async with serving(redis_url, do_nothing, ServerConfig(concurrency=SLOTS)) as running:
        for number in range(5):
            await running.client.enqueue("t", task_id=str(number))
            await running.finished(str(number))
        await running.settled()
    assert 1 == pipelines.most


@run_async
async def test_what_has_ended_leaves_while_the_next_handlers_run(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one pipeline at a time, neither Redis nor the handlers wait for all of the others to end."""
    steps, send = [], Sender._exchange

    async def noting(sender: Sender, plans: Sequence[Any]) -> list[Any]:
        steps.append("sent")
        return await send(sender, plans)

    async def handle(task: Task) -> None:
        del task
        steps.append("ran")

    monkeypatch.setattr(Sender, "_exchange", noting)
    await drain(redis_url, handle, ServerConfig(concurrency=SLOTS - 1, prefetch=0, burst=True), 500)
    ran = [len(list(group)) for step, group in itertools.groupby(steps) if step == "ran"]
    assert 500 == sum(ran)
    # The first handlers may all run while a connection to a node of a cluster is being opened.
    assert 50 == max(ran[1:])
