"""Task events while Redis cannot be reached."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pyasynq._background.redis_time import RedisTime
from pyasynq._engine.services.publisher import Publisher
from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS
from pyasynq.errors import RedisTLSError, RedisUnavailableError, ReplyLostError
from pyasynq.events import Events, EventsDropped, MessageQuarantined
from tests.fake_clock import FakeClock
from tests.run_async import run_async


class Driver:
    """Raises errors one after another, then notes the plans that it is given."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.published: list[bytes] = []

    async def run_batch(self, plans: list[Any]) -> list[Any]:
        if self.errors:
            raise self.errors.pop(0)
        for plan in plans:
            self.published += next(plan).args[2:]
        return [None] * len(plans)


def publisher_of(driver: Driver) -> Publisher:
    """Return a publisher of one queue's events."""
    parts = SimpleNamespace(
        events=Events(),
        config=SimpleNamespace(event_stream_lengths={"default": 100}),
        settings=DEFAULT_ENGINE_SETTINGS,
        driver=driver,
        redis_time=RedisTime(FakeClock(1_000)),
        server_id="s",
    )
    return Publisher(cast("Any", parts))


@pytest.mark.parametrize("error", [RedisTLSError("r:1", "expired"), RedisUnavailableError("r:1", "away")])
@run_async
async def test_events_are_kept_while_no_connection_can_be_made(error: RedisUnavailableError) -> None:
    """A certificate that has expired is renewed some day, and nothing was sent before. (D60)"""
    driver = Driver(error)
    publisher = publisher_of(driver)
    await publisher.enter()
    dropped: list[EventsDropped] = []
    publisher.events.subscribe(EventsDropped, dropped.append)
    publisher.events.emit(MessageQuarantined("default", "a", "bytes"))
    with pytest.raises(type(error)):
        await publisher.round()
    await publisher.round()
    assert 1 == len(driver.published)
    assert [] == dropped


@run_async
async def test_events_whose_reply_was_lost_count_as_dropped() -> None:
    """They may be published already, and none is published twice."""
    driver = Driver(ReplyLostError("r:1", "gone"))
    publisher = publisher_of(driver)
    await publisher.enter()
    dropped: list[EventsDropped] = []
    publisher.events.subscribe(EventsDropped, dropped.append)
    publisher.events.emit(MessageQuarantined("default", "a", "bytes"))
    with pytest.raises(ReplyLostError):
        await publisher.round()
    assert [EventsDropped("default", 1)] == dropped
