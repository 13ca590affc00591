"""A settled attempt leaves nothing in memory, also without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import Mux, context
from pyasynq._engine.run.settle_record import drop_frames
from pyasynq.config import ServerConfig
from pyasynq.events import TaskFinished
from tests.fix_engine import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq.task import Task
    from tests.factories import Tasks


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch the garbage collector off for a block."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Baggage:
    """An object in a handler's frame that a weak reference can watch."""


async def _fail() -> None:
    raise ValueError("in a group")


async def in_task_group() -> None:
    """Fail in a task group."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_fail())


async def in_cycle() -> None:
    """Fail with an error that its own frame keeps."""
    try:
        await _fail()
    except ValueError as error:
        kept = error
        raise kept from RuntimeError("on the way")


async def as_context() -> None:
    """Fail while an error is dealt with that its frame keeps."""
    kept: list[Exception] = []
    try:
        await in_task_group()
    except ExceptionGroup as group:
        kept.append(group)
        raise LookupError("instead")  # noqa: B904 - the context is what the test is about


KINDS = {one.__name__: one for one in (in_task_group, in_cycle, as_context)}


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("doors", ["plain", "middleware", "error_handler"])
@run_async
async def test_a_failed_attempt_is_free_without_the_collector(
    redis_url: str, tasks: Tasks, kind: str, doors: str
) -> None:
    """It lets go of its task, its payload and the frames of its handler, for any error. (D65)"""
    left: list[weakref.ref[Any]] = []

    async def handle(task: Task) -> None:
        baggage = Baggage()
        left.append(weakref.ref(baggage))
        left.append(weakref.ref(context()._task))
        await KINDS[kind]()

    async def pass_on(task: Task, call_next: Any) -> Any:
        return await call_next(task)

    async def told(task: Task, error: BaseException) -> None:
        await asyncio.sleep(0)

    mux = Mux()
    if doors == "middleware":
        mux.use(pass_on)
    mux.handle("t", handle)
    config = ServerConfig(error_handler=told if doors == "error_handler" else None)
    async with serving(redis_url, mux, config) as running:
        # The recorder of the tests keeps what it hears.
        running.server.events._subscriptions.pop(TaskFinished)
        with without_collector():
            for number in range(10):
                await running.client.enqueue("t", bytes(1000), task_id=str(number), max_retry=0)
            while len(tasks.ids("archived")) < 10:
                await running.next_round("processor")
            await running.settled()
            assert 20 == len(left)
            # The last beat of the heartbeat, and the last context of the loop, know some for a moment.
            for _ in range(20):
                if not any(one() for one in left):
                    break
                await running.next_round("heartbeater")
            assert [] == [one() for one in left if one() is not None]


@run_async
async def test_a_settled_attempt_drops_its_payload(redis_url: str, tasks: Tasks) -> None:
    """An object that keeps its context, such as a cancelled timer, keeps only what a context shows. (D65)"""
    kept: list[Any] = []

    async def handle(task: Task) -> None:
        kept.append(context())
        asyncio.get_running_loop().call_later(3600, print).cancel()

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", bytes(1_000_000), task_id="a", headers={"tenant": "b"})
        await running.finished("a")
        await running.settled()
    [one] = kept
    assert 1_000 > one._task.message.ByteSize()
    assert ("a", "t", {"tenant": "b"}, 0, 25) == (
        one.task_id,
        one.task_type,
        one.headers,
        one.retried,
        one.max_retry,
    )


def test_an_error_with_attributes_of_the_same_names_drops_its_frames() -> None:
    """Nothing that the class of an error says is believed. (D65)"""

    class Odd(ExceptionGroup[ValueError]):
        exceptions: Any = property(lambda self: 1 / 0)
        __cause__: Any = property(lambda self: 1 / 0)
        __traceback__: Any = property(lambda self: 1 / 0)

    part = ValueError("one")
    try:
        raise part
    except ValueError as error:
        odd = Odd("odd", [error])
    drop_frames(odd)
    assert None is part.__traceback__
