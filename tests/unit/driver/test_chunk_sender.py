from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.enqueueing.chunk_sender import ChunkSender
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq.errors import ReplyLostError
from pyasynq.task import EnqueueStatus, Task
from tests.run_async import run_async
from tests.unit.driver.test_coalesce import WaitingDriver, batcher_of, settle_down

if TYPE_CHECKING:
    from collections.abc import Iterator


class Read(list[Task]):
    """A chunk that knows whether it has been read."""

    is_read = False

    def __iter__(self) -> Iterator[Task]:
        self.is_read = True
        return super().__iter__()


def chunk(*names: str) -> Read:
    """Make a chunk of tasks with these ids."""
    return Read(Task("t", b"x" * len(name), task_id=name) for name in names)


def sender_of(driver: WaitingDriver) -> ChunkSender:
    """Make a sender over a driver of the test."""
    batchers = batcher_of(driver), batcher_of(driver, durable=True)
    return ChunkSender(batchers, {}, clock=SYSTEM_CLOCK, max_payload=2)


@run_async
async def test_the_next_chunk_is_composed_while_one_is_on_its_way() -> None:
    """It leaves when that one has been answered; the results come in the order of the tasks."""
    driver = WaitingDriver()
    sender = sender_of(driver)
    await sender.send(chunk("a", "b"))
    assert 1 == len(driver.batches)
    next_chunk = chunk("too large", "c")
    second = asyncio.create_task(sender.send(next_chunk))
    await settle_down()
    assert (True, 1) == (next_chunk.is_read, len(driver.batches))
    driver.open.set()
    await second
    assert 2 == len(driver.batches)
    results = await sender.finish()
    assert ["a", "b", None, "c"] == [result.task_id for result in results]
    assert [EnqueueStatus.ENQUEUED] * 2 + [EnqueueStatus.REFUSED, EnqueueStatus.ENQUEUED] == [
        result.status for result in results
    ]


@run_async
async def test_a_sender_that_is_cancelled_leaves_a_chunk_on_its_way() -> None:
    """A caller that waits for the results gets them at once; sent commands arrive."""
    driver = WaitingDriver()
    sender = sender_of(driver)
    await sender.send(chunk("a"))
    waiting = asyncio.create_task(sender.finish())
    await settle_down()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    driver.open.set()
    await asyncio.gather(*driver.started)
    assert [1] == driver.batches


@run_async
async def test_a_chunk_that_close_had_no_patience_for_may_have_arrived() -> None:
    """The caller was not cancelled; it gets the error that the reply is lost."""
    driver = WaitingDriver()
    sender = sender_of(driver)
    await sender.send(chunk("a"))
    driver.started[0].cancel()
    with pytest.raises(ReplyLostError):
        await sender.finish()
