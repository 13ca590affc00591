"""Awaitables that plain functions return: each door awaits them on the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, Mux
from pyasynq.events import Outcome, TasksAggregated
from tests import child_tasks
from tests.child_tasks import traced
from tests.contract.test_server_groups import aggregating, digests, enqueue, later
from tests.fix_engine import serving
from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.task import Task
    from tests.factories import Tasks
    from tests.fix_children import Serve


async def _pass_on(task: Task, call_next: Any) -> Any:
    return await call_next(task)


@pytest.mark.parametrize("middleware", [(), (_pass_on,)], ids=["plain", "middleware"])
@run_async
async def test_a_plain_wrapper_around_a_coroutine_function_is_awaited_in_a_server(
    redis_url: str, tasks: Tasks, middleware: tuple[Any, ...]
) -> None:
    """The handler runs on the loop's thread, and what it returns is the result. (D05)"""
    app, threads = App(redis_url, middleware=middleware), []

    @app.task("double", result_ttl=60)
    @traced
    async def double(number: int) -> int:
        await asyncio.sleep(0)
        threads.append(threading.current_thread())
        return number * 2

    async with serving(redis_url, app), app:
        assert 8 == await (await double.enqueue(number=4)).result(timeout=10)
    assert [threading.current_thread()] == threads


@run_async
async def test_what_a_plain_wrapper_raises_later_is_the_failure_of_its_task(
    redis_url: str, tasks: Tasks
) -> None:
    """The task does not succeed before its coroutine has run. (D05)"""
    app = App(redis_url)

    @app.task("fail", max_retry=0)
    @traced
    async def fail() -> None:
        raise ValueError("no such user")

    async with serving(redis_url, app) as running, app:
        await fail.options(task_id="a").enqueue()
        assert Outcome.ARCHIVED is (await running.finished("a")).outcome


@run_async
async def test_a_coroutine_function_that_forgets_to_await_is_awaited_too(
    redis_url: str, tasks: Tasks
) -> None:
    """An `async def` wrapper may return the coroutine that it has wrapped. (D05)"""
    app, mux, ran = App(redis_url), Mux(), []

    async def note() -> str:
        ran.append(1)
        return "noted"

    @app.task("typed", result_ttl=60)
    async def typed() -> str:
        return note()  # type: ignore[return-value]

    async def raw(task: Task) -> Any:
        return note()

    mux.handle("raw", raw)

    async with serving(redis_url, app), app:
        assert "noted" == await (await typed.enqueue()).result(timeout=10)
    async with serving(redis_url, mux) as running:
        await running.client.enqueue("raw", retention=60, task_id="b")
        await running.finished("b")
        await running.settled()
        assert b"noted" == tasks.fields("b")["result"]
    assert [1, 1] == ran


@run_async
async def test_a_plain_wrapper_is_awaited_in_a_child_process(serve: Serve) -> None:
    """On the loop of the child. (D05)"""
    async with serve():
        handle = await child_tasks.traced_double.enqueue(number=4)
        assert 8 == await handle.result(timeout=30)


@pytest.mark.parametrize("executor", [None, "process"])
def test_the_test_kit_awaits_a_plain_wrapper_and_knows_its_result(executor: Any) -> None:
    """As a value of its own type, as it does for other handlers. (D05)"""
    app = make_app()

    async def double(number: int) -> tuple[int, int]:
        await asyncio.sleep(0)
        return number, number * 2

    if executor is None:
        task: Any = app.task("double")(traced(double))
    else:
        task = child_tasks.traced_double
        app = child_tasks.app
    with sound_kit(app) as kit:
        task.enqueue_sync(number=4)
        [attempt] = kit.drain_sync()
    assert ((4, 8) if executor is None else 8) == attempt.result


@pytest.mark.parametrize("kind", ["plain", "async"])
@run_async
async def test_an_awaitable_that_an_aggregator_returns_is_awaited(
    redis_url: str, tasks: Tasks, kind: str
) -> None:
    """A plain wrapper around a coroutine function, or a coroutine function that returns one. (D59)"""

    async def returns_one(group: str, members: list[Task]) -> Any:
        return later(group, members)

    aggregators: dict[str, Callable[..., Any]] = {"plain": traced(later), "async": returns_one}
    async with aggregating(redis_url, aggregators[kind]) as running:
        await enqueue(running, "g", b"1", b"2")
        await running.recorder.wait(TasksAggregated)
    assert [b"1+2"] == [payload for _, payload in digests(tasks)]
