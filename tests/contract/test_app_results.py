"""Handles: what a handler returned arrives where it was enqueued, as the type that its annotation names."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from pyasynq.app import App
from pyasynq.config import ServerConfig
from pyasynq.errors import (
    InvalidOptionError,
    PayloadDecodingError,
    ResultNotKeptError,
    TaskDeletedError,
    TaskFailedError,
    TaskNotFoundError,
    WaitTimeoutError,
)
from pyasynq.inspector import Inspector
from pyasynq.task import TaskEnd, TaskState
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.factories import Tasks
    from tests.invariants import RedisClient

WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@dataclass
class Report:
    """What a handler may return."""

    name: str
    made: datetime


def make_app(url: str) -> App:
    """Return an app with a handler for each way to have a result, or none."""
    app = App(url)

    @app.task("report", result_ttl=60, queue="reports")
    async def report(name: str) -> Report:
        return Report(name, WHEN)

    @app.task("resize", result_ttl=timedelta(minutes=1))
    def resize(path: str) -> bytes:
        return path.encode()

    @app.task("nothing", result_ttl=60)
    async def nothing() -> None: ...

    @app.task("find", result_ttl=60)
    async def find(name: str) -> str | None:
        return name or None

    @app.task("unkept")
    async def unkept() -> int:
        return 1

    @app.task("broken", result_ttl=60)
    async def broken() -> int:
        return "no number"  # type: ignore[return-value]

    @app.task("fail", result_ttl=60, max_retry=0)
    async def fail() -> int:
        raise ValueError("no such user")

    @app.task("flaky", result_ttl=60, retry_delay=lambda *_: 0)
    async def flaky(attempts: int) -> int:
        from pyasynq import context  # noqa: PLC0415 - as users write it

        if context().retried < attempts:
            raise ValueError("not yet")
        return context().retried

    add_dropping_tasks(app)
    return app


def add_dropping_tasks(app: App) -> None:
    """Declare handlers whose results cannot be stored."""

    @app.task("untyped", result_ttl=60)
    async def untyped():  # type: ignore[no-untyped-def] # noqa: ANN202 - as users write it
        return WHEN

    @app.task("maybe", result_ttl=60, retry_delay=lambda *_: 0)
    def maybe() -> int | None:
        from pyasynq import context  # noqa: PLC0415 - as users write it

        if not context().retried:
            raise ValueError("not yet")
        return "secret"  # type: ignore[return-value]


@asynccontextmanager
async def working(url: str) -> AsyncIterator[App]:
    """An app and a worker of it."""
    app, worker = make_app(url), make_app(url)
    server = worker.server(ServerConfig(queues={"default": 1, "reports": 1}))
    await server.start(worker)
    try:
        yield app
    finally:
        await app.close()
        await server.shutdown()


@run_async
async def test_a_result_is_what_the_handler_returned(redis_url: str, redis_client: RedisClient) -> None:
    """The result has the annotated type, from coroutines and from plain handlers; also None."""
    async with working(redis_url) as app:
        tasks = app.tasks
        handle = await tasks["report"].enqueue(name="x")
        assert Report("x", WHEN) == await handle.result(10)
        assert TaskEnd.COMPLETED is (await handle.wait()).end
        assert b"a.png" == await (await tasks["resize"].enqueue("a.png")).result(10)
        assert await (await tasks["nothing"].enqueue()).result(10) is None
        assert await (await tasks["find"].enqueue("")).result(10) is None
        assert "x" == await (await tasks["find"].enqueue("x")).result(10)


@run_async
async def test_a_result_can_be_read_by_its_id_elsewhere(redis_url: str, redis_client: RedisClient) -> None:
    """In another process, typed and as bytes; the queue is the declared one unless another is named."""
    async with working(redis_url) as app:
        [sent, other] = await app.enqueue_many(
            [app.tasks["report"].task(name="x"), app.tasks["report"].options(queue="default").task(name="y")]
        )
        assert sent.task_id is not None
        assert other.task_id is not None
        async with make_app(redis_url) as elsewhere:
            report = elsewhere.tasks["report"]
            assert Report("x", WHEN) == await report.handle(sent.task_id).result(10)
            assert Report("y", WHEN) == await report.handle(other.task_id, queue="default").result(10)
            assert Report("y", WHEN) == await report.options(queue="default").handle(other.task_id).result(10)
            stored = await elsewhere.handle(sent.task_id, "reports").result()
            assert stored is not None
            assert stored.startswith(b'{"name":"x"')
            assert TaskEnd.COMPLETED is (await elsewhere.handle(other.task_id).wait()).end
            assert f"<TaskHandle {sent.task_id} in queue 'reports'>" == repr(report.handle(sent.task_id))
            with pytest.raises(TaskNotFoundError, match=r"id=nope in queue 'reports'"):
                await report.handle("nope").result()


@run_async
async def test_threads_read_results_too(redis_url: str, redis_client: RedisClient) -> None:
    """`enqueue_sync` returns a handle that blocks."""
    async with working(redis_url) as app:
        report = app.tasks["report"]

        def work() -> None:
            handle = report.enqueue_sync(name="x")
            assert Report("x", WHEN) == handle.result(10)
            assert TaskEnd.COMPLETED is handle.wait(1).end
            assert Report("x", WHEN) == report.handle_sync(handle.id).result(1)
            assert app.handle_sync(handle.id, "reports").result(0) is not None
            with pytest.raises(TaskFailedError, match="no such user"):
                app.tasks["fail"].enqueue_sync().result(10)
            with pytest.raises(ResultNotKeptError, match="keeps no result"):
                app.tasks["unkept"].enqueue_sync().result(10)

        await asyncio.to_thread(work)


@run_async
async def test_a_result_that_was_dropped_is_an_error_for_those_who_wait(
    redis_url: str, redis_client: RedisClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Not None, also where the annotation allows that; the reason names no value. (D11)"""
    reasons = {
        "untyped": "the result of task 'untyped': JSON cannot carry datetime here without an annotation",
        "maybe": r"the result of task 'maybe': expected int \| None, got str",
    }
    async with working(redis_url) as app:
        for name, reason in reasons.items():
            handle = await app.tasks[name].enqueue()
            with pytest.raises(ResultNotKeptError, match=f"succeeded, but the result was dropped: {reason}"):
                await handle.result(10)
            assert TaskEnd.COMPLETED is (await handle.wait(10)).end
            with pytest.raises(ResultNotKeptError, match="the result was dropped"):
                await app.handle(handle.id).result(10)
    assert "annotate the parameter" not in caplog.text
    assert "secret" not in caplog.text


@run_async
async def test_each_way_to_have_no_result_has_an_error_of_its_own(redis_url: str, tasks: Tasks) -> None:
    """Not kept, failed for good, deleted, not there in time, of another type."""
    async with working(redis_url) as app:
        with pytest.raises(ResultNotKeptError, match="keeps no result"):
            await (await app.tasks["unkept"].enqueue()).result(10)
        with pytest.raises(ResultNotKeptError, match="has succeeded, but the result was dropped"):
            await (await app.tasks["broken"].enqueue()).result(10)
        with pytest.raises(TaskFailedError) as failed:
            await (await app.tasks["fail"].enqueue()).result(10)
        assert failed.value.error.startswith("ValueError: no such user")
        later = await app.tasks["report"].options(process_in=60).enqueue(name="x")
        with pytest.raises(WaitTimeoutError):
            await later.result(0.05)
        async with Inspector(redis_url) as inspector:
            await inspector.delete_task("reports", later.id)
        # It was enqueued a moment ago and is to be kept for a minute.
        with pytest.raises(TaskDeletedError):
            await later.result(10)
        assert TaskEnd.GONE is (await later.wait()).end
        handle = await app.tasks["resize"].enqueue("a.png")
        assert b"a.png" == await handle.result(10)
        with pytest.raises(PayloadDecodingError, match="the result of task 'flaky'"):
            await app.tasks["flaky"].handle(handle.id).result()


@run_async
async def test_a_task_that_was_ignored_has_never_been_there(redis_url: str) -> None:
    """It was not deleted, whatever retention it would have had."""
    async with make_app(redis_url) as app:
        report = app.tasks["report"].options(unique=60, on_duplicate="ignore")
        await report.enqueue(name="x")
        handle = await report.enqueue(name="x")
        with pytest.raises(TaskNotFoundError):
            await handle.result(10)
        with pytest.raises(TaskNotFoundError):
            report.enqueue_sync(name="x").result(10)


@run_async
async def test_a_result_comes_after_retries(redis_url: str, redis_client: RedisClient) -> None:
    """The wait goes on until the task succeeds."""
    async with working(redis_url) as app:
        assert 2 == await (await app.tasks["flaky"].enqueue(attempts=2)).result(30)


def test_a_result_ttl_is_a_retention(redis_url: str) -> None:
    """The interval is at least a second, and given once."""
    app = make_app(redis_url)
    assert {"retention": 60, "queue": "reports"} == app.tasks["report"].declared_options
    for ttl in (0, 0.5, -1, "1h"):
        with pytest.raises(InvalidOptionError, match=r"^result_ttl="):
            app.task("x", result_ttl=ttl)  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match=r"^result_ttl=60: is retention by another name"):
        app.task("x", result_ttl=60, retention=60)


def test_a_handle_needs_an_id_and_a_queue(redis_url: str) -> None:
    """Text, and not blank."""
    app = make_app(redis_url)
    for handle in (app.handle, app.handle_sync, app.tasks["report"].handle, app.tasks["report"].handle_sync):
        with pytest.raises(InvalidOptionError, match=r"^task_id="):
            handle("")
        with pytest.raises(InvalidOptionError, match=r"^queue="):
            handle("a", queue=" ")


@run_async
async def test_a_task_of_a_go_worker_gives_its_result_too(redis_url: str, tasks: Tasks) -> None:
    """If what it writes is JSON that fits the annotation."""
    tasks.put(TaskState.COMPLETED, "a", extra={"result": b'"x"'}, retention=60, completed_at=1_999_999_940)
    async with make_app(redis_url) as app:
        assert "x" == await app.tasks["find"].handle("a").result(0)
