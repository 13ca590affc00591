"""The aggregator of a server, on a real Redis."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._backoff import Backoff
from pyasynq._wire.messages import decode_task_message
from pyasynq.app import App
from pyasynq.config import GroupRule, ServerConfig
from pyasynq.errors import ConfigurationError, DuplicateTaskError, TaskIDConflictError
from pyasynq.events import (
    AggregationDeclined,
    AggregationFailed,
    AggregationLost,
    MessageQuarantined,
    ServerStateChanged,
    SetsReclaimed,
    TasksAggregated,
)
from pyasynq.task import Task, TaskState
from tests.fix_engine import QUICK, do_nothing, serving
from tests.fix_kit import sound_kit
from tests.fix_proxy import Cut, Proxy
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import redis

    from pyasynq.config import GroupAggregator
    from tests.factories import Tasks
    from tests.fix_engine import Running

AT_ONCE = dataclasses.replace(
    QUICK,
    lease=1,
    aggregation_interval=0.05,
    aggregation_first_rest=0.05,
    aggregation_longest_rest=0.1,
)
"""A young Redis is waited for as long as a lease; here that is not long."""


@contextlib.asynccontextmanager
async def aggregating(url: str, aggregator: GroupAggregator | App, **config: Any) -> AsyncIterator[Running]:
    """Run a server that leaves tasks where they are and aggregates; two members make a group due."""
    settings: dict[str, Any] = {"group_max_size": 2, "shutdown_timeout": 5} | config
    handler: Any = do_nothing
    if isinstance(aggregator, App):
        handler = aggregator
    else:
        settings["group_aggregator"] = aggregator
    async with serving(url, handler, ServerConfig(**settings), AT_ONCE) as running:
        yield running


async def later(group: str, tasks: list[Task]) -> Task:
    """Make a task that stays where it can be looked at."""
    return Task("digest", b"+".join(sorted(task.payload or b"" for task in tasks)), process_in=3600)


async def enqueue(running: Running, group: str, *payloads: bytes, **options: Any) -> None:
    """Add tasks to a group, in one call."""
    tasks = [Task("event", payload, group=group, **options) for payload in payloads]
    assert all(await running.client.enqueue_many(tasks))


async def aggregated(running: Running, times: int) -> None:
    """Wait until this many sets have become tasks."""
    while len(running.recorder.of(TasksAggregated)) < times:
        await running.recorder.wait(TasksAggregated, new=True)


def digests(tasks: Tasks) -> list[tuple[str, bytes]]:
    """Return id and payload of what was made of groups, by payload."""
    made = [(one, decode_task_message(tasks.fields(one)["msg"]).payload) for one in tasks.ids("scheduled")]
    return sorted(made, key=lambda pair: pair[1])


@run_async
async def test_a_due_group_becomes_one_task_that_is_run(redis_url: str, tasks: Tasks) -> None:
    """The function gets name, types, payloads and headers, oldest first; the task has the set's id."""
    given = []
    ran: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    async def make(group: str, members: list[Task]) -> Task:
        given.append((group, [(task.type, task.payload, dict(task.headers)) for task in members]))
        return Task("digest", b"both", queue="elsewhere")

    async def handle(task: Task) -> None:
        ran.set_result(task.payload)

    config = ServerConfig(group_aggregator=make, group_max_size=2)
    async with serving(redis_url, handle, config, AT_ONCE) as running:
        await enqueue(running, "user:1", b"1", b"2", headers={"tenant": "a"})
        made = await running.recorder.wait(TasksAggregated)
        assert ("default", "user:1", 2) == (made.queue, made.group, made.tasks)
        assert b"both" == await ran
        assert made.task_id == (await running.finished(made.task_id)).task_id
    assert [("user:1", [("event", payload, {"tenant": "a"}) for payload in (b"1", b"2")])] == [
        (group, sorted(members)) for group, members in given
    ]
    assert (set(), {}) == (tasks.groups(), tasks.sets())


@run_async
async def test_a_plain_function_aggregates_in_a_thread(redis_url: str, tasks: Tasks) -> None:
    """The event loop goes on meanwhile."""
    threads = []

    def make(group: str, members: list[Task]) -> Task:
        threads.append(threading.current_thread())
        return Task("digest", group.encode(), process_in=60)

    async with aggregating(redis_url, make) as running:
        await enqueue(running, "g", b"1", b"2")
        await running.recorder.wait(TasksAggregated)
    assert [b"g"] == [payload for _, payload in digests(tasks)]
    assert threading.main_thread() not in threads


def test_h11_none_drops_nothing() -> None:
    """The set stays until its deadline, an event says so; then the members go back and are offered again."""
    answers: list[Task | None] = [None, Task("digest", process_in=60)]

    async def make(group: str, members: list[Task]) -> Task | None:
        return answers.pop(0)

    config = ServerConfig(group_aggregator=make, group_max_size=2)
    with sound_kit(do_nothing, config=config) as kit:
        for payload in (b"1", b"2"):
            kit.sync_client.enqueue("t", payload, group="g")
        first = kit.advance_sync(seconds=119)
        then = kit.advance_sync(seconds=1)
        kit.assert_enqueued("digest", count=1)
        kit.refute_enqueued("t")
    assert (AggregationDeclined("default", "g", 2),) == first.events
    assert [SetsReclaimed, TasksAggregated] == [type(event) for event in then.events]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
@pytest.mark.parametrize("plain", [False, True])
@run_async
async def test_h11_what_the_function_raises_leaves_its_tasks_for_the_next_round(
    redis_url: str, tasks: Tasks, error: BaseException, plain: bool
) -> None:
    """After a rest that grows with every failure in a row; then they become one task, and nothing is lost."""
    errors = [error] * 3

    def make(group: str, members: list[Task]) -> Task:
        if errors:
            raise errors.pop()
        return Task("digest", b"%d" % len(members), process_in=60)

    async def make_in_loop(group: str, members: list[Task]) -> Task:
        return make(group, members)

    async with aggregating(redis_url, make if plain else make_in_loop) as running:
        await enqueue(running, "g", b"1", b"2")
        await running.recorder.wait(TasksAggregated)
        failures = running.recorder.of(AggregationFailed)
    assert 3 == len(failures)
    assert all(failure[:3] == ("default", "g", error) and failure.rest > 0 for failure in failures)
    assert [b"2"] == [payload for _, payload in digests(tasks)]


@run_async
async def test_a_function_that_returns_no_task_has_failed(redis_url: str, tasks: Tasks) -> None:
    """The error names what it returned."""

    async def make(group: str, members: list[Task]) -> Any:
        return b"bytes"

    async with aggregating(redis_url, make) as running:
        await enqueue(running, "g", b"1", b"2")
        failed = await running.recorder.wait(AggregationFailed)
    assert isinstance(failed.error, ConfigurationError)
    assert "returned bytes" in str(failed.error)
    assert 2 == len(tasks.members("g")), "the shutdown has put them back"


@run_async
async def test_the_backoff_of_a_group_that_is_gone_is_forgotten(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """Groups may be named after users, and those whose aggregation failed are deleted by hand. (D29)"""
    # A round that has read the groups before would take both for gone.
    tasks.put(TaskState.AGGREGATING, "1", score=int(time.time()), group="there")
    async with aggregating(redis_url, later) as running:
        assert running.server._engine is not None
        aggregator = running.server._engine._aggregator
        assert aggregator is not None
        for group in ("there", "gone"):
            aggregator._backoffs["default", group] = Backoff(1.0, 2.0)
        async with asyncio.timeout(10):
            while ("default", "gone") in aggregator._backoffs:
                aggregator.wake()
                await asyncio.sleep(0.01)
        assert [("default", "there")] == list(aggregator._backoffs)


@run_async
async def test_an_aggregate_with_a_chosen_id_waits_for_its_namesake(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """An id or a lock of another task keeps members in their group until it is free."""
    tasks.put(TaskState.ARCHIVED, "daily")
    lock = tasks.keys.unique("digest", b"all")
    redis_client.set(lock, "somebody", ex=600)

    async def make(group: str, members: list[Task]) -> Task:
        return Task("digest", b"all", task_id="daily", unique=60, process_in=60)

    def failed_with(kind: type[Exception]) -> Any:
        return running.recorder.wait(AggregationFailed, lambda event: isinstance(event.error, kind), new=True)

    async with aggregating(redis_url, make) as running:
        await enqueue(running, "g", b"1", b"2")
        await failed_with(TaskIDConflictError)
        redis_client.zrem(tasks.keys.archived, "daily")
        redis_client.delete(tasks.keys.task("daily"))
        failed = await failed_with(DuplicateTaskError)
        assert "task 'somebody' in queue 'default' holds its lock" in str(failed.error)
        redis_client.delete(lock)
        assert "daily" == (await running.recorder.wait(TasksAggregated)).task_id
    assert b"daily" == redis_client.get(lock)


@run_async
async def test_groups_are_aggregated_three_at_once(redis_url: str, tasks: Tasks) -> None:
    """The next one begins when one ends; a fourth set is not even made before."""
    running_now, most = set(), 0
    go_on, begun = asyncio.Semaphore(0), asyncio.Semaphore(0)

    async def make(group: str, members: list[Task]) -> Task:
        nonlocal most
        running_now.add(group)
        most = max(most, len(running_now))
        begun.release()
        await go_on.acquire()
        running_now.remove(group)
        return await later(group, members)

    async with aggregating(redis_url, make) as running:
        for number in range(7):
            await enqueue(running, f"g{number}", b"a", b"b")
        for _ in range(3):
            await begun.acquire()
        await running.next_round("aggregator")
        assert 3 == len(tasks.sets())
        for _ in range(4):
            go_on.release()
            await begun.acquire()
        for _ in range(3):
            go_on.release()
        await aggregated(running, 7)
    assert 3 == most
    assert 7 == len(digests(tasks))


def test_the_rest_of_a_large_group_follows_set_by_set() -> None:
    """At most `group_max_size` at a time, one set after another; each task is in exactly one of them."""
    payloads = [b"%02d" % number for number in range(11)]
    config = ServerConfig(group_aggregator=later, group_max_size=3, group_grace_period=1)
    with sound_kit(do_nothing, config=config) as kit:
        for payload in payloads:
            kit.sync_client.enqueue("t", payload, group="g")
        kit.advance_sync(seconds=1)
        made = [task.payload.split(b"+") for task in kit.enqueued("digest")]
    assert [2, 3, 3, 3] == sorted(map(len, made))
    assert payloads == sorted(part for parts in made for part in parts)


@run_async
async def test_h11_the_deadline_of_a_set_is_renewed_while_the_function_runs(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """However long it takes."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def make(group: str, members: list[Task]) -> Task:
        begun.set()
        await go_on.wait()
        return await later(group, members)

    async with aggregating(redis_url, make) as running:
        await enqueue(running, "g", b"1", b"2")
        await begun.wait()
        [(name, deadline)] = tasks.sets().items()
        redis_client.zadd(tasks.keys.aggregation_sets, {f"{tasks.keys.group_prefix}{name}": deadline - 60})
        await running.next_round("aggregator")
        await running.next_round("aggregator")
        assert deadline <= tasks.sets()[name]
        go_on.set()
        await running.recorder.wait(TasksAggregated)


@pytest.mark.parametrize("plain", [False, True])
@run_async
async def test_h11_w31_a_set_that_was_taken_away_makes_no_task(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks, plain: bool
) -> None:
    """A coroutine is cancelled, what a thread returns is refused; the members become one task once."""
    begun, go_on = threading.Event(), threading.Event()
    calls, cancelled = [], []

    def make(group: str, members: list[Task]) -> Task:
        calls.append(group)
        if len(calls) == 1:
            begun.set()
            go_on.wait()
        return Task("digest", b"call %d" % len(calls), process_in=60)

    async def make_in_loop(group: str, members: list[Task]) -> Task:
        calls.append(group)
        if len(calls) == 1:
            begun.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(group)
                raise
        return Task("digest", b"call %d" % len(calls), process_in=60)

    async with aggregating(redis_url, make if plain else make_in_loop) as running:
        await enqueue(running, "g", b"1", b"2")
        await asyncio.to_thread(begun.wait)
        [name] = tasks.sets()
        key = f"{tasks.keys.group_prefix}{name}"
        pipeline = redis_client.pipeline()
        pipeline.zrem(tasks.keys.aggregation_sets, key)  # as a recoverer of Go would, without its deadline
        pipeline.rename(key, tasks.keys.group("g"))
        pipeline.execute()
        await running.next_round("aggregator")
        await running.next_round("aggregator")
        go_on.set()
        await running.recorder.wait(AggregationLost)
        await running.recorder.wait(TasksAggregated)
    assert [b"call 2"] == [payload for _, payload in digests(tasks)]
    assert ([] if plain else ["g"]) == cancelled


@run_async
async def test_a_shutdown_waits_for_an_aggregation(redis_url: str, tasks: Tasks) -> None:
    """A shutdown gives an aggregation as much time as it gives handlers."""
    begun = asyncio.Event()

    async def make(group: str, members: list[Task]) -> Task:
        begun.set()
        await running.recorder.wait(ServerStateChanged, lambda event: event.state == "closed")
        return await later(group, members)

    async with aggregating(redis_url, make) as running:
        await enqueue(running, "g", b"1", b"2")
        await begun.wait()
    assert [b"1+2"] == [payload for _, payload in digests(tasks)]


@pytest.mark.parametrize("plain", [False, True])
@run_async
async def test_a_shutdown_puts_back_what_takes_too_long(redis_url: str, tasks: Tasks, plain: bool) -> None:
    """They end at once, not after two minutes, and are not waited for."""
    begun, end = threading.Event(), threading.Event()

    def make(group: str, members: list[Task]) -> Task:
        begun.set()
        end.wait()
        return Task("digest")

    async def make_in_loop(group: str, members: list[Task]) -> Task:
        begun.set()
        await asyncio.Event().wait()
        return Task("digest")

    async with aggregating(
        redis_url, make if plain else make_in_loop, shutdown_timeout=0.1, cancel_timeout=0.1
    ) as running:
        await enqueue(running, "g", b"1", b"2")
        await asyncio.to_thread(begun.wait)
    end.set()
    assert ({"g"}, {}, 2) == (tasks.groups(), tasks.sets(), len(tasks.members("g")))
    assert [] == tasks.ids("pending")


@run_async
async def test_h21_a_member_that_cannot_be_decoded_does_not_hold_up_the_others(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """It is archived with the reason, the others become a task; alone it makes none."""
    # Before the server: it must not read them between the two writes.
    tasks.put(TaskState.AGGREGATING, "bad", "good", group="g", score=1)
    tasks.put(TaskState.AGGREGATING, "worse", group="h", score=1)
    redis_client.hset(tasks.keys.task("bad"), "msg", b"\xff\xff")
    redis_client.hset(tasks.keys.task("worse"), "msg", b"\xff\xff")
    async with aggregating(redis_url, later, group_max_size=0) as running:
        assert 1 == (await running.recorder.wait(TasksAggregated)).tasks
        while len(running.recorder.of(MessageQuarantined)) < 2:
            await running.recorder.wait(MessageQuarantined, new=True)
        await running.next_round("aggregator")
    assert {"bad", "worse"} == set(tasks.ids("archived"))
    assert 1 == len(digests(tasks))
    assert {} == tasks.sets()


@pytest.mark.single_server("a proxy serves one server")
@run_async
async def test_h01_a_lost_connection_does_not_make_the_function_run_twice(
    redis_url: str, tasks: Tasks
) -> None:
    """The result is written once, when Redis is back."""
    calls = []
    with Proxy(redis_url) as proxy:

        async def make(group: str, members: list[Task]) -> Task:
            calls.append(group)
            proxy.cut(Cut.BEFORE_REPLY, containing=b"digest", times=3)
            return await later(group, members)

        async with aggregating(proxy.url, make) as running:
            await enqueue(running, "g", b"1", b"2")
            assert 2 == (await running.recorder.wait(TasksAggregated)).tasks
    assert ["g"] == calls
    assert [b"1+2"] == [payload for _, payload in digests(tasks)]


@run_async
async def test_an_app_has_aggregators_for_some_groups(redis_url: str, tasks: Tasks) -> None:
    """The exact name first, then the longest beginning; other groups are left to other servers."""
    app = App(redis_url)

    @app.aggregator("user:*", max_size=2)
    def users(group: str, members: list[Task]) -> Task:
        return Task("digest", b"user", process_in=60)

    @app.aggregator("user:vip:*", max_size=1)
    async def important(group: str, members: list[Task]) -> Task:
        return Task("digest", b"vip", process_in=60)

    @app.aggregator("user:root", max_size=1)
    async def root(group: str, members: list[Task]) -> Task:
        return Task("digest", b"root", process_in=60)

    async with aggregating(redis_url, app, group_max_size=0) as running:
        await enqueue(running, "other", b"1", b"2", b"3")
        await enqueue(running, "user:1", b"1", b"2")
        await enqueue(running, "user:vip:1", b"1")
        await enqueue(running, "user:root", b"1")
        await aggregated(running, 3)
    assert [b"root", b"user", b"vip"] == [payload for _, payload in digests(tasks)]
    assert {"other"} == tasks.groups()


@run_async
async def test_the_configuration_has_rules_of_its_own_for_some_groups(redis_url: str, tasks: Tasks) -> None:
    """They win over those in the code."""
    app = App(redis_url)

    @app.aggregator(max_size=2)
    async def every(group: str, members: list[Task]) -> Task:
        return Task("digest", group.encode(), process_in=60)

    async with aggregating(redis_url, app, groups={"slow:*": GroupRule(max_size=3)}) as running:
        await enqueue(running, "slow:1", b"1", b"2")
        await enqueue(running, "slow:2", b"1", b"2", b"3")
        await enqueue(running, "g", b"1", b"2")
        await aggregated(running, 2)
        await running.next_round("aggregator")
    assert [b"g", b"slow:2"] == [payload for _, payload in digests(tasks)]
    assert {"slow:1"} == tasks.groups()


@run_async
async def test_w05_h11_a_scheduled_task_joins_its_group_when_it_is_due(redis_url: str, tasks: Tasks) -> None:
    """And is aggregated there, where Asynq delivers it singly."""
    async with aggregating(redis_url, later) as running:
        await enqueue(running, "g", b"1", process_in=0.01)
        await enqueue(running, "g", b"2")
        assert 2 == (await running.recorder.wait(TasksAggregated)).tasks
    assert [b"1+2"] == [payload for _, payload in digests(tasks)]


@run_async
async def test_w03_h11_a_server_without_an_aggregator_reclaims_too(redis_url: str, tasks: Tasks) -> None:
    """Tasks of a set are not listed; in their group they can be listed and run singly."""
    tasks.in_set("g", "dead", "a", "b", stale_at=1)
    async with serving(redis_url, do_nothing, settings=AT_ONCE) as running:
        assert ("default", 1, 2) == await running.recorder.wait(SetsReclaimed)
    assert ({"g"}, ["a", "b"]) == (tasks.groups(), list(tasks.members("g")))
