"""Attempts whose ending cannot be worked out: each becomes an ordinary failure of its task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.consumer import ConsumerConfig
from pyasynq.events import Outcome, SettleDelayed
from tests.fix_consumer import consuming
from tests.fix_engine import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq.task import Task
    from tests.factories import Tasks


class ShapelessError(Exception):
    """An error that cannot be asked for its class."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")

    @__class__.setter
    def __class__(self, value: Any) -> None:
        raise RuntimeError("no class")


class ExitingError(Exception):
    """An error whose text ends the interpreter."""

    def __str__(self) -> NoReturn:
        raise SystemExit(7)


def _exit(*_: object) -> NoReturn:
    raise SystemExit(3)


@pytest.mark.parametrize("kind", [ShapelessError, ExitingError])
@run_async
async def test_an_error_that_cannot_be_written_down_is_an_ordinary_failure(
    redis_url: str, tasks: Tasks, kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """The task is retried with a plain text, the log names it, and the worker goes on. (D09)"""

    async def handle(task: Task) -> None:
        if task.payload == b"bad":
            raise kind

    async with serving(redis_url, handle, ServerConfig(retry_delay=3600)) as running:
        await running.client.enqueue("t", b"bad", task_id="a")
        while not tasks.ids("retry"):
            await running.next_round("processor")
        await running.client.enqueue("t", b"good", task_id="b")
        assert Outcome.SUCCEEDED is (await running.finished("b")).outcome
        await running.settled()
    assert ["a"] == tasks.ids("retry")
    message = decode_task_message(tasks.fields("a")["msg"])
    assert 1 == message.retried
    assert kind.__name__ in message.error_msg
    assert "the outcome of task a (t, queue default) could not be computed" in caplog.messages


@pytest.mark.parametrize("rule", ["is_failure", "retry_delay"])
@run_async
async def test_a_rule_that_exits_is_replaced_by_the_default(redis_url: str, tasks: Tasks, rule: str) -> None:
    """The handler's error is still the error of the task. (D09)"""

    async def handle(task: Task) -> None:
        raise ValueError("no such user")

    async with serving(redis_url, handle, ServerConfig(**{rule: _exit})) as running:  # type: ignore[arg-type]
        await running.client.enqueue("t", task_id="a")
        while not tasks.ids("retry"):
            await running.next_round("processor")
    assert "ValueError: no such user" in decode_task_message(tasks.fields("a")["msg"]).error_msg


@run_async
async def test_a_router_that_raises_is_an_ordinary_failure(redis_url: str, tasks: Tasks) -> None:
    """As when an annotation of a typed task cannot be resolved. (D09)"""

    class Unsure:
        def route(self, task_type: str) -> NoReturn:
            raise LookupError(f"where is {task_type}?")

        def routes(self) -> tuple[()]:
            return ()

        def types(self) -> tuple[()]:
            return ()

    async with serving(redis_url, Unsure(), ServerConfig(retry_delay=3600)) as running:
        await running.client.enqueue("t", task_id="a")
        while not tasks.ids("retry"):
            await running.next_round("processor")
    assert "LookupError: where is t?" in decode_task_message(tasks.fields("a")["msg"]).error_msg


@run_async
async def test_a_consumer_settles_an_error_that_cannot_be_written_down(redis_url: str, tasks: Tasks) -> None:
    """The error counts as a failure, and the attempt ends. (D09)"""
    async with consuming(redis_url, ConsumerConfig(retry_delay=3600)) as c:
        await c.enqueue("a")
        async with c.consumer.take(wait=5) as [attempt]:
            await attempt.retry(ExitingError())
    assert ["a"] == tasks.ids("retry")


@run_async
async def test_no_error_of_a_driver_loses_the_outcomes_that_it_was_given(
    redis_url: str, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are tried again for any class of error. (D09)"""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handle(task: Task) -> None:
        begun.set()
        await go_on.wait()

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        await begun.wait()
        engine = running.server._engine
        assert engine is not None
        send, broken = engine._driver.run_unshielded, [RuntimeError("out of threads")]

        async def breaking(plans: Any) -> Any:
            if broken and any(plan.__name__ == "settle_done" for plan in plans):
                raise broken.pop()
            return await send(plans)

        monkeypatch.setattr(engine._driver, "run_unshielded", breaking)
        go_on.set()
        await running.recorder.wait(SettleDelayed)
        await running.settled()
    assert {} == tasks.fields("a")
