"""Limits of an aggregator's result and of its time, on a real Redis."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App
from pyasynq._exit_codes import EXIT_OVERDUE
from pyasynq.config import ServerConfig
from pyasynq.errors import PayloadTooLargeError, RedisValueTooLargeError, ReplyLostError
from pyasynq.events import AggregationFailed, AggregationOverdue, RoundFailed, TasksAggregated
from pyasynq.task import Task
from tests.contract.test_refused_outcomes import MEGABYTE, small_buffers, small_values
from tests.contract.test_server_groups import AT_ONCE, aggregating, enqueue, later
from tests.fix_engine import do_nothing, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.config import GroupAggregator
    from tests.factories import Tasks

__all__ = ["small_buffers", "small_values"]


def _is_of(group: str, event: TasksAggregated) -> bool:
    return event.group == group


async def large(group: str, tasks: list[Task]) -> Task:
    """Make a task of three megabytes."""
    return Task("digest", bytes(3 * MEGABYTE), process_in=3600)


@pytest.fixture
def hanging() -> Iterator[threading.Event]:
    """Ends the calls that wait for it, at the latest at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def hang(hanging: threading.Event) -> GroupAggregator:
    """Return a plain aggregator that does not return."""

    def wait(group: str, members: list[Task]) -> None:
        hanging.wait()

    return wait


@pytest.mark.single_server
@run_async
async def test_a_task_that_redis_refuses_is_a_failed_aggregation(
    redis_url: str, tasks: Tasks, small_values: None
) -> None:
    """It is told, and the members stay in their group. (D54)"""
    async with aggregating(redis_url, large) as running:
        await enqueue(running, "g", b"1", b"2")
        failed = await running.recorder.wait(AggregationFailed)
    assert isinstance(failed.error, RedisValueTooLargeError)
    assert 2 == len(tasks.members("g"))


@pytest.mark.single_server
@run_async
async def test_a_task_that_breaks_the_connection_each_time_is_a_failed_aggregation(
    redis_url: str, tasks: Tasks, small_buffers: None
) -> None:
    """Each break is told; the third one in a Redis that answers otherwise is the last. (D54)"""
    async with aggregating(redis_url, large) as running:
        engine = running.server._engine
        assert engine is not None
        engine._driver._state.timeout = 0.3
        await enqueue(running, "g", b"1", b"2")
        await running.recorder.wait(RoundFailed, lambda event: event.service == "aggregation")
        failed = await running.recorder.wait(AggregationFailed)
    assert isinstance(failed.error, ReplyLostError)
    assert 2 == len(tasks.members("g"))


@pytest.mark.parametrize("owner", ["config", "app"])
@run_async
async def test_what_an_aggregator_returns_is_checked_against_max_payload(
    redis_url: str, tasks: Tasks, owner: str
) -> None:
    """That of the server, or of the app that has declared it; nothing is sent. (D54)"""
    app = App(redis_url, max_payload=2)
    app.aggregator(later)
    aggregator: Any = app if owner == "app" else later
    limits = {} if owner == "app" else {"max_payload": 2}
    async with aggregating(redis_url, aggregator, **limits) as running:
        await enqueue(running, "g", b"1", b"2")
        failed = await running.recorder.wait(AggregationFailed)
    assert isinstance(failed.error, PayloadTooLargeError)
    assert [] == tasks.ids("scheduled")


@run_async
async def test_a_plain_aggregator_that_hangs_is_reported_and_ends_the_worker_with_code_4(
    redis_url: str, tasks: Tasks, hang: GroupAggregator
) -> None:
    """As a handler that hangs; its tasks go back into their group. (D55)"""
    settings = dataclasses.replace(AT_ONCE, aggregation_timeout=0.05, overdue_after=0.01, overdue_again=0.01)
    config = ServerConfig(group_aggregator=hang, group_max_size=2, overdue_limit=0.3, shutdown_timeout=0)
    async with serving(redis_url, do_nothing, config, settings) as running:
        await enqueue(running, "g", b"1", b"2")
        overdue = await running.recorder.wait(AggregationOverdue)
        engine = running.server._engine
        assert engine is not None
        await engine.finished
        await running.server.shutdown()
        assert EXIT_OVERDUE == running.server.exit_code
    assert ("default", "g") == overdue[:2]
    assert len(running.recorder.of(AggregationOverdue)) > 1
    assert 2 == len(tasks.members("g"))


@run_async
async def test_all_places_held_by_calls_that_hang_end_the_worker_sooner(
    redis_url: str, tasks: Tasks, hang: GroupAggregator
) -> None:
    """As all slots held by handlers that are overdue do. (D55)"""
    settings = dataclasses.replace(AT_ONCE, aggregation_timeout=0.05, stuck_grace=0.1)
    config = ServerConfig(group_aggregator=hang, group_max_size=2, shutdown_timeout=0)
    async with serving(redis_url, do_nothing, config, settings) as running:
        for group in ("a", "b", "c"):
            await enqueue(running, group, b"1", b"2")
        engine = running.server._engine
        assert engine is not None
        await engine.finished


@run_async
async def test_an_aggregator_that_hangs_leaves_the_others_their_places(
    redis_url: str, tasks: Tasks, hanging: threading.Event
) -> None:
    """It may take all that are shared, and each of the others has one of its own. (D55)"""
    app, begun = App(redis_url), asyncio.Semaphore(0)
    loop = asyncio.get_running_loop()

    @app.aggregator("slow:*")
    def hang(group: str, members: list[Task]) -> None:
        loop.call_soon_threadsafe(begun.release)
        hanging.wait()

    app.aggregator("one:*")(later)
    app.aggregator("two:*")(later)
    async with aggregating(redis_url, app, shutdown_timeout=0) as running:
        for number in range(5):
            await enqueue(running, f"slow:{number}", b"1", b"2")
        for _ in range(3):
            await begun.acquire()
        for group in ("one:a", "one:b", "two:a"):
            await enqueue(running, group, b"1", b"2")
        for group in ("one:a", "one:b", "two:a"):
            await running.recorder.wait(TasksAggregated, partial(_is_of, group))
        assert begun.locked()
        hanging.set()
