"""Outcomes of tasks on a real Redis, for each way an attempt can end."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.context import context
from pyasynq.errors import RevokeTask, SkipRetry, TaskNotFoundError, TaskTimeoutError
from pyasynq.events import Outcome, TaskFinished
from tests.fix_engine import serving
from tests.fix_kit import sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    import redis

    from pyasynq.task import Task
    from tests.factories import Tasks


@run_async
async def test_a_task_is_run_and_gone(redis_url: str, redis_client: redis.Redis, tasks: Tasks) -> None:
    """Enqueue, handler, done: nothing is left but the counters."""
    seen = []

    async def handle(task: Task) -> None:
        seen.append((task.type, task.payload, dict(task.headers)))

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t:x", b"payload", task_id="a", headers={"k": "v"})
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()
    assert [("t:x", b"payload", {"k": "v"})] == seen
    assert {} == tasks.fields("a")
    assert b"1" == redis_client.get(tasks.keys.processed)


@run_async
async def test_a_failure_is_retried_with_its_error_and_trace(redis_url: str, tasks: Tasks) -> None:
    """One retry is spent; message, trace and due time are written."""

    async def handle(task: Task) -> None:
        del task
        raise ValueError("broken \ud800 thing")

    config = ServerConfig(retry_delay=lambda retried, error, task: 600)
    async with serving(redis_url, handle, config) as running:
        await running.client.enqueue("t", task_id="a")
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        await running.settled()
    fields = tasks.fields("a")
    message = decode_task_message(fields["msg"])
    assert 1 == message.retried
    assert message.error_msg.startswith("ValueError: broken ? thing [test_server_outcomes.py:")
    assert 599 <= tasks.scores("retry")["a"] - message.last_failed_at <= 601
    assert b"ValueError" in fields["x:trace"]


def test_a_failed_task_is_forwarded_and_succeeds_later() -> None:
    """Retry, forward, second attempt; nothing is left of the task."""

    async def handle(task: Task) -> None:
        del task
        if context().retried == 0:
            raise ValueError("not yet")

    with sound_kit(handle, config=ServerConfig(retry_delay=lambda retried, error, task: 90)) as kit:
        info = kit.sync_client.enqueue("t", task_id="a")
        assert [Outcome.RETRIED] == [
            attempt.outcome for attempt in kit.advance_sync(seconds=89, raises=False)
        ]
        assert [Outcome.SUCCEEDED] == [attempt.outcome for attempt in kit.advance_sync(seconds=1)]
        with pytest.raises(TaskNotFoundError):
            kit.inspector.task_info(info.queue, "a")


@pytest.mark.parametrize(
    ("error", "state"),
    [(SkipRetry("no"), b"archived"), (RevokeTask(), None), (ValueError(), b"retry")],
)
@run_async
async def test_skip_retry_archives_and_revoke_forgets(
    redis_url: str,
    tasks: Tasks,
    error: Exception,
    state: bytes | None,
) -> None:
    """The handler chooses by what it raises."""

    async def handle(task: Task) -> None:
        del task
        raise error

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a", retention=60)
        await running.finished("a")
        await running.settled()
    assert state == tasks.fields("a").get("state")


@run_async
async def test_w36_the_last_attempt_archives(redis_url: str, tasks: Tasks) -> None:
    """With no retry left a failure is for good, and as in Asynq it is not counted as one more retry."""

    async def handle(task: Task) -> None:
        del task
        raise ValueError("no")

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a", max_retry=0)
        assert Outcome.ARCHIVED is (await running.finished("a")).outcome
        await running.settled()
    assert ["a"] == tasks.ids("archived")
    assert 0 == decode_task_message(tasks.fields("a")["msg"]).retried
    assert {"processed": 1, "failed": 1} == tasks.counts()


@run_async
async def test_w36_a_task_that_its_handler_revokes_counts_as_processed_and_not_as_failed(
    redis_url: str, tasks: Tasks
) -> None:
    """As in Asynq: a revoked task does not count as a failure."""

    async def handle(task: Task) -> None:
        raise RevokeTask

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        await running.settled()
    assert {"processed": 1} == tasks.counts()


@run_async
async def test_an_error_that_is_not_a_failure_spends_nothing(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """`is_failure` False: a retry without retried and without a counter."""

    async def handle(task: Task) -> None:
        del task
        raise BlockingIOError

    config = ServerConfig(is_failure=lambda error: not isinstance(error, BlockingIOError))
    async with serving(redis_url, handle, config) as running:
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        await running.settled()
    assert 0 == decode_task_message(tasks.fields("a")["msg"]).retried
    assert redis_client.get(tasks.keys.processed) is None


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, StopIteration]
)
@pytest.mark.parametrize("plain", [False, True])
@run_async
async def test_whatever_a_handler_raises_is_its_own_tasks_failure(
    redis_url: str, tasks: Tasks, kind: type[BaseException], plain: bool
) -> None:
    """Any BaseException, in coroutines and threads; the next task runs as if nothing had been."""

    async def handle(task: Task) -> None:
        if task.type == "bad":
            raise kind

    def handle_plain(task: Task) -> None:
        if task.type == "bad":
            raise kind

    async with serving(redis_url, handle_plain if plain else handle) as running:
        await running.client.enqueue("bad", task_id="a")
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        await running.client.enqueue("good", task_id="b")
        assert Outcome.SUCCEEDED is (await running.finished("b")).outcome
        await running.settled()
    assert ["a"] == tasks.ids("retry")


@run_async
async def test_functions_of_the_user_that_raise_lose_no_settle(redis_url: str, tasks: Tasks) -> None:
    """`is_failure`, retry delay, error handler and event subscribers are replaced by the defaults."""

    def broken(*args: Any, **named: Any) -> Any:
        raise RuntimeError(args, named)

    async def handle(task: Task) -> None:
        del task
        raise ValueError("no")

    config = ServerConfig(is_failure=broken, retry_delay=broken, error_handler=broken)
    async with serving(redis_url, handle, config) as running:
        running.server.events.subscribe(TaskFinished, broken)
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        await running.settled()
    message = decode_task_message(tasks.fields("a")["msg"])
    assert 1 == message.retried
    assert 14 <= tasks.scores("retry")["a"] - message.last_failed_at <= 46


@pytest.mark.parametrize("limit", ["timeout", "deadline"])
@run_async
async def test_an_attempt_that_takes_too_long_is_cancelled_and_retried(
    redis_url: str, tasks: Tasks, limit: str
) -> None:
    """Timeout and deadline: the coroutine gets CancelledError, the message Go's words."""
    cleaned = asyncio.Event()

    async def handle(task: Task) -> None:
        del task
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    async with serving(redis_url, handle) as running:
        in_a_second = datetime.now(UTC) + timedelta(seconds=1)
        options: Any = {"timeout": 1} if limit == "timeout" else {"deadline": in_a_second}
        await running.client.enqueue("t", task_id="a", **options)
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        await running.settled()
    assert cleaned.is_set()
    assert "context deadline exceeded" == decode_task_message(tasks.fields("a")["msg"]).error_msg


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
@run_async
async def test_a_timeout_says_its_limit_and_where_the_handler_stood(
    redis_url: str, tasks: Tasks, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """In the log and in the kept traceback, through all coroutines; Redis' message keeps Go's words. (D37)"""
    ended = threading.Event()

    async def fetch() -> None:
        await asyncio.sleep(3600)

    async def handle(task: Task) -> None:
        del task
        await fetch()

    def handle_plain(task: Task) -> None:
        del task
        while not context().cancelled:
            ended.wait(0.01)

    handler, name = (handle, "fetch") if kind == "coroutine" else (handle_plain, "handle_plain")
    async with serving(redis_url, handler) as running:
        await running.client.enqueue("t", task_id="a", timeout=1)
        error = (await running.finished("a")).error
        await running.settled()
    assert isinstance(error, TaskTimeoutError)
    assert 1.0 == error.limit
    place = rf"test_server_outcomes\.py:\d+ in {name}"
    assert re.fullmatch(f"context deadline exceeded after 1 s at {place}", str(error))
    assert "context deadline exceeded" == decode_task_message(tasks.fields("a")["msg"]).error_msg
    trace = tasks.fields("a")["x:trace"].decode()
    assert f", in {name}\n" in trace
    assert "pyasynq/_server" not in trace
    assert "_bootstrap" not in trace
    assert re.search(f"context deadline exceeded after 1 s at {place}; attempt 1", caplog.text)


@run_async
async def test_a_task_past_its_deadline_fails_without_being_run(redis_url: str, tasks: Tasks) -> None:
    """The handler is not called."""
    called = []

    async def handle(task: Task) -> None:
        called.append(task)

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a", deadline=datetime.now(UTC) - timedelta(hours=1))
        await running.finished("a")
        await running.settled()
    assert [] == called
    assert "context deadline exceeded" == decode_task_message(tasks.fields("a")["msg"]).error_msg
