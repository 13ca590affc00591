"""A consumer of pyasynq on the real Redis of a test, and everything that it reports."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasynq import events as all_events
from pyasynq.client import Client
from pyasynq.consumer import Consumer, ConsumerConfig
from tests.fix_engine import QUICK, Recorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyasynq._engine.consumer_engine import ConsumerEngine
    from pyasynq._engine.settings import EngineSettings


@dataclass
class Consuming:
    """A consumer at work, a client of the same Redis, and what the consumer reports."""

    consumer: Consumer
    client: Client
    recorder: Recorder

    @property
    def engine(self) -> ConsumerEngine:
        """The engine that runs."""
        engine = self.consumer._engine
        assert engine is not None
        return engine

    async def enqueue(self, *ids: str, queue: str = "default") -> None:
        """Enqueue tasks with these ids."""
        for task_id in ids:
            await self.client.enqueue("t", task_id.encode(), task_id=task_id, queue=queue)

    async def finished(self, task_id: str) -> all_events.TaskFinished:
        """Wait until an attempt at a task has ended."""
        return await self.recorder.wait(all_events.TaskFinished, lambda event: event.task_id == task_id)

    async def next_round(self, service: str) -> None:
        """Wait until a service has finished one more round."""
        await self.recorder.wait(all_events.RoundFinished, lambda event: event.service == service, new=True)


@asynccontextmanager
async def consuming(
    url: str, config: ConsumerConfig | None = None, settings: EngineSettings = QUICK
) -> AsyncIterator[Consuming]:
    """Run a consumer for the duration of a block, and close it afterwards."""
    consumer = Consumer(url, config)
    consumer._settings = settings
    recorder = Recorder(consumer.events)
    async with Client(url) as client, consumer:
        yield Consuming(consumer, client, recorder)


def be_impatient(c: Consuming) -> None:
    """Shorten the timeout of calls to Redis, so that a test of an outage is short."""
    for driver in (c.engine._driver, c.engine._beat_driver):
        driver._state.timeout = 0.2
