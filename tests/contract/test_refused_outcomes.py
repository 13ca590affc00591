"""Outcomes that Redis, or the server itself, refuses for good: each attempt ends all the same."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, context, testing
from pyasynq._broker.results import write_result
from pyasynq._redis.driver import AsyncDriver, BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.consumer import ConsumerConfig
from pyasynq.errors import (
    InvalidOptionError,
    RedisReplyError,
    RedisValueTooLargeError,
    ResultTooLargeError,
    SettleError,
)
from pyasynq.events import Outcome, RoundFailed, SettleDelayed, SettleRefused, TaskFinished
from tests import child_tasks
from tests.fix_consumer import consuming
from tests.fix_engine import serving
from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.task import Task
    from tests.factories import Tasks
    from tests.fix_children import Serve
    from tests.fix_engine import Running
    from tests.invariants import RedisClient

MEGABYTE = 1 << 20
LATER = ServerConfig(retry_delay=3600)


@pytest.fixture
def small_values(redis_client: RedisClient) -> Iterator[None]:
    """Have Redis refuse values over one megabyte, the smallest limit that it has."""
    before = redis_client.config_get("proto-max-bulk-len")["proto-max-bulk-len"]
    redis_client.config_set("proto-max-bulk-len", MEGABYTE)
    yield
    redis_client.config_set("proto-max-bulk-len", before)


@pytest.fixture
def small_buffers(redis_client: RedisClient) -> Iterator[None]:
    """Have Redis close connections without a word on which it is sent more than a megabyte."""
    before = redis_client.config_get("client-query-buffer-limit")["client-query-buffer-limit"]
    redis_client.config_set("client-query-buffer-limit", MEGABYTE)
    yield
    redis_client.config_set("client-query-buffer-limit", before)


def error_of(tasks: Tasks, task_id: str) -> str:
    """Return the error that a task's message carries."""
    return decode_task_message(tasks.fields(task_id)["msg"]).error_msg


async def in_state(running: Running, tasks: Tasks, state: str) -> None:
    """Wait until there are tasks in a state."""
    while not tasks.ids(state):
        await running.next_round("syncer")


@pytest.mark.single_server
@pytest.mark.parametrize("kind", ["asyncio", "blocking"])
def test_a_value_that_redis_refuses_for_its_size_is_an_error_of_its_own_call(
    redis_url: str, small_values: None, kind: str
) -> None:
    """Redis closes the connection; its last words say why, and the other calls are sent again. (D04)"""
    plans = [
        write_result("q", "a", "t", data, lease_score=1)
        for data in (b"x", bytes(MEGABYTE + 1), b"x", bytes(8 * MEGABYTE), b"x")
    ]
    target = parse_redis_url(redis_url)
    results: list[Any]
    if kind == "blocking":
        driver = BlockingDriver(target)
        results = driver.run_batch(plans)
        driver.close()
    else:

        async def run() -> list[Any]:
            driver = AsyncDriver(target)
            try:
                return await driver.run_batch(plans)
            finally:
                await driver.close()

        results = asyncio.run(run())
    too_large = RedisValueTooLargeError
    assert [bool, too_large, bool, too_large, bool] == [type(result) for result in results]


@pytest.mark.single_server
@run_async
async def test_a_result_that_redis_refuses_is_an_ordinary_failure_of_the_task(
    redis_url: str, tasks: Tasks, small_values: None
) -> None:
    """It is not sent again and again; the task is retried, and others are not held up. (D04)"""

    async def handle(task: Task) -> bytes:
        return bytes(2 * MEGABYTE) if task.payload == b"large" else b"small"

    async with serving(redis_url, handle, LATER) as running:
        await running.client.enqueue("t", b"large", task_id="a", retention=60)
        await running.client.enqueue("t", b"small", task_id="b", retention=60)
        await in_state(running, tasks, "retry")
        await in_state(running, tasks, "completed")
        await running.settled()
        refused = await running.recorder.wait(SettleRefused)
        outcomes = [one.outcome for one in running.recorder.of(TaskFinished) if one.task_id == "a"]
    assert ("default", "a") == refused[:2]
    assert [Outcome.SUCCEEDED, Outcome.RETRIED] == outcomes
    assert ["a"] == tasks.ids("retry")
    assert "refused because of its size" in error_of(tasks, "a")
    assert b"small" == tasks.fields("b")["result"]


@pytest.mark.single_server
@run_async
async def test_a_failure_that_redis_refuses_archives_its_task_unchanged(
    redis_url: str, tasks: Tasks, small_values: None
) -> None:
    """A payload just under the limit leaves no room for an error in the message. (D04)"""

    async def handle(task: Task) -> None:
        raise ValueError("x" * 1000)

    async with serving(redis_url, handle, LATER) as running:
        await running.client.enqueue("t", bytes(MEGABYTE - 100), task_id="a")
        await in_state(running, tasks, "archived")
        await running.settled()
    fields = tasks.fields("a")
    assert b"refused because of its size" in fields["x:trace"]
    assert MEGABYTE - 100 == len(decode_task_message(fields["msg"]).payload)


@pytest.mark.single_server
@run_async
async def test_an_outcome_that_breaks_the_connection_without_a_word_ends_as_a_failure(
    redis_url: str, tasks: Tasks, small_buffers: None
) -> None:
    """It is sent alone, and blamed when Redis answers something else right after it. (D04)"""

    async def handle(task: Task) -> bytes:
        return bytes(3 * MEGABYTE) if task.payload == b"large" else b"small"

    async with serving(redis_url, handle, LATER) as running:
        engine = running.server._engine
        assert engine is not None
        engine._driver._state.timeout = 0.3
        await running.client.enqueue("t", b"large", task_id="a", retention=60)
        await in_state(running, tasks, "retry")
        await running.client.enqueue("t", b"small", task_id="b", retention=60)
        await running.finished("b")
        await running.settled()
    assert ["a"] == tasks.ids("retry")
    assert b"small" == tasks.fields("b")["result"]


class RefusingDriver(AsyncDriver):
    """A driver whose server answers some settles with an error that only it knows."""

    refused: set[str]
    error: Exception

    async def run_unshielded(self, plans: Any) -> Any:
        taken = [plan for plan in plans if plan.__name__ not in self.refused]
        results = iter(await super().run_unshielded(taken))
        return [self.error if plan.__name__ in self.refused else next(results) for plan in plans]


NOT_NOW = RedisReplyError("script was refused: ERR not at this hour")


def refuse(running: Running, *names: str, error: Exception = NOT_NOW) -> None:
    """Have the named plans refused from now on."""
    engine = running.server._engine
    assert engine is not None
    engine._driver.__class__ = RefusingDriver
    engine._driver.refused = set(names)  # type: ignore[attr-defined]
    engine._driver.error = error  # type: ignore[attr-defined]


@run_async
async def test_a_settle_that_is_answered_with_an_error_again_and_again_ends_as_a_failure(
    redis_url: str, tasks: Tasks
) -> None:
    """As managed servers answer with errors of their own what they will not take. (D04)"""

    async def handle(task: Task) -> bytes:
        return b"done"

    async with serving(redis_url, handle, LATER) as running:
        refuse(running, "settle_complete")
        await running.client.enqueue("t", task_id="a", retention=60)
        await in_state(running, tasks, "retry")
        await running.settled()
    assert "not at this hour" in error_of(tasks, "a")


async def six_delays(running: Running) -> None:
    """Wait until outcomes were refused six times."""
    for _ in range(6):
        await running.recorder.wait(SettleDelayed, new=True)


@pytest.mark.parametrize("key", ["active", "lease"])
@run_async
async def test_a_key_of_the_wrong_type_that_every_outcome_needs_is_not_the_fault_of_one(
    redis_url: str, redis_client: RedisClient, tasks: Tasks, key: str
) -> None:
    """However long it lasts: no task of the queue can be taken meanwhile, so the outcomes stay few."""
    started, harmed = asyncio.Event(), asyncio.Event()
    name = getattr(tasks.keys, key)

    async def handle(task: Task) -> None:
        started.set()
        await harmed.wait()

    async with serving(redis_url, handle, LATER) as running:
        await running.client.enqueue("t", task_id="a")
        await started.wait()
        redis_client.rename(name, f"{name}:aside")
        redis_client.set(name, "of the wrong type")
        harmed.set()
        # Each delay is a refusal; three tries alone come after the first one, and some do not count.
        delays = asyncio.create_task(six_delays(running))
        refusal = asyncio.create_task(running.recorder.wait(SettleRefused))
        _, pending = await asyncio.wait({delays, refusal}, return_when=asyncio.FIRST_COMPLETED)
        for one in pending:
            one.cancel()
        redis_client.delete(name)
        redis_client.rename(f"{name}:aside", name)
        await running.settled()
        refused = running.recorder.of(SettleRefused)
    assert ([], {}) == (refused, tasks.fields("a"))


@run_async
async def test_an_outcome_that_redis_refuses_fails_no_round_of_a_service(
    redis_url: str, tasks: Tasks
) -> None:
    """The failure that is written instead tells of it; the service is not said to try again."""

    async def handle(task: Task) -> bytes:
        return b"done"

    async with serving(redis_url, handle, LATER) as running:
        refuse(running, "settle_complete", error=RedisValueTooLargeError("script was refused for its size"))
        await running.client.enqueue("t", task_id="a", retention=60)
        await running.recorder.wait(SettleRefused)
        await in_state(running, tasks, "retry")
        await running.settled()
        failed = running.recorder.of(RoundFailed)
    assert [] == failed
    assert "Redis refuses the outcome of the attempt: script was refused" in error_of(tasks, "a")


@run_async
async def test_an_attempt_of_which_nothing_can_be_written_is_left_to_be_recovered(
    redis_url: str, tasks: Tasks
) -> None:
    """Its lease is not renewed any more, and shutdown does not wait for it. (D04)"""

    async def handle(task: Task) -> None: ...

    async with serving(redis_url, handle, LATER) as running:
        refuse(running, "settle_done", "settle_retry", "settle_archive")
        await running.client.enqueue("t", task_id="a")
        await running.recorder.wait(SettleRefused, lambda event: "recovered" in event.remedy)
        await running.settled()
    assert ["a"] == tasks.ids("active")


@pytest.mark.single_server
@run_async
async def test_a_consumer_hears_that_redis_refuses_its_result(
    redis_url: str, tasks: Tasks, small_values: None
) -> None:
    """From the call that settles; its attempt has failed. (D04)"""
    async with consuming(redis_url, ConsumerConfig(retry_delay=3600)) as c:
        await c.client.enqueue("t", task_id="a", retention=60)
        async with c.consumer.take(wait=5) as [attempt]:
            with pytest.raises(SettleError, match="size"):
                await attempt.done(bytes(2 * MEGABYTE))
        while not tasks.ids("retry"):
            await c.next_round("syncer")


# The limit of our own.


@run_async
async def test_a_result_over_max_result_is_an_ordinary_failure_and_is_not_sent(
    redis_url: str, tasks: Tasks
) -> None:
    """Only where it would be kept. (D04)"""

    async def handle(task: Task) -> bytes:
        return bytes(11)

    async with serving(redis_url, handle, ServerConfig(max_result=10, retry_delay=3600)) as running:
        await running.client.enqueue("t", task_id="a", retention=60)
        await running.client.enqueue("t", task_id="b")
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        assert Outcome.SUCCEEDED is (await running.finished("b")).outcome
        await running.settled()
    assert "ResultTooLargeError: the result has 11 bytes and the limit is 10" in error_of(tasks, "a")


@run_async
async def test_write_result_refuses_what_is_over_max_result(redis_url: str, tasks: Tasks) -> None:
    """Before anything is sent, from coroutines and threads. (D04)"""
    app, raised = App(redis_url), []

    @app.task("coroutine")
    async def coroutine() -> None:
        with pytest.raises(ResultTooLargeError) as caught:
            await context().write_result(bytes(11))
        raised.append(caught.value.size)

    @app.task("thread")
    def thread() -> None:
        with pytest.raises(ResultTooLargeError) as caught:
            context().write_result_sync(bytes(11))
        raised.append(caught.value.size)

    async with serving(redis_url, app, ServerConfig(max_result=10)) as running, app:
        for number, task in enumerate((coroutine, thread)):
            await task.options(task_id=str(number)).enqueue()
            assert Outcome.SUCCEEDED is (await running.finished(str(number))).outcome
    assert [11, 11] == raised


@run_async
async def test_a_consumer_keeps_the_attempt_whose_result_is_over_max_result(
    redis_url: str, tasks: Tasks
) -> None:
    """It may settle it with a smaller one. (D04)"""
    async with consuming(redis_url, ConsumerConfig(max_result=10)) as c:
        await c.client.enqueue("t", task_id="a", retention=60)
        async with c.consumer.take(wait=5) as [attempt]:
            with pytest.raises(ResultTooLargeError):
                await attempt.write_result(bytes(11))
            with pytest.raises(ResultTooLargeError):
                await attempt.done(bytes(11))
            await attempt.done(bytes(10))
    assert bytes(10) == tasks.fields("a")["result"]


@run_async
async def test_max_result_holds_in_child_processes(serve: Serve) -> None:
    """The limit holds for a handler's return value and for results that it writes. (D04)"""
    async with serve(ServerConfig(concurrency=4, max_result=10, retry_delay=3600)) as running:
        await child_tasks.large.options(task_id="returned").enqueue(how="return")
        await child_tasks.large.options(task_id="written").enqueue(how="write")
        for task_id in ("returned", "written"):
            finished = await running.finished(task_id)
            assert isinstance(finished.error, ResultTooLargeError)


def test_max_result_holds_in_the_test_kit() -> None:
    """As in a server, and in the context of a handler that is called as a function. (D04)"""
    app = make_app()

    @app.task("large", result_ttl=60)
    async def large() -> bytes:
        return bytes(11)

    with sound_kit(app, config=ServerConfig(max_result=10)) as kit:
        large.enqueue_sync()
        with pytest.raises(ResultTooLargeError):
            kit.drain_sync()
    with testing.task_context(), pytest.raises(ResultTooLargeError):
        context().write_result_sync(bytes(8_000_001))


@pytest.mark.parametrize("value", [0, True, "8 MB", 600_000_000])
def test_max_result_is_a_number_of_bytes_that_redis_can_take(value: Any) -> None:
    """Checked where it is given. (D04)"""
    with pytest.raises(InvalidOptionError, match="max_result"):
        ServerConfig(max_result=value)
