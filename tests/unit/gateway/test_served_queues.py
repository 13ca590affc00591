"""Queues that an instance serves: started once, and dropped when others are used more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pyasynq.consumer import ConsumerConfig
from pyasynq.errors import RedisUnavailableError, ServerStateError
from pyasynq.gateway.leases.served_queues import ServedQueues
from tests.run_async import run_async


class FakeConsumer:
    """Records what is served."""

    made: list[FakeConsumer]
    fails = False

    def __init__(self, redis: str, config: ConsumerConfig, *, events: object) -> None:
        self.served = set(config.queues)
        self.made.append(self)

    async def start(self) -> None:
        await asyncio.sleep(0)
        if type(self).fails:
            raise RedisUnavailableError("redis://here", "it is away")

    async def serve(self, name: str) -> None:
        await asyncio.sleep(0)
        assert name not in self.served
        self.served.add(name)

    async def unserve(self, name: str) -> None:
        self.served.remove(name)

    async def close(self) -> None:
        self.served.clear()


@pytest.fixture
def consumers(monkeypatch: pytest.MonkeyPatch) -> list[FakeConsumer]:
    """The consumers that are made."""
    made: list[FakeConsumer] = []
    monkeypatch.setattr(FakeConsumer, "made", made, raising=False)
    monkeypatch.setattr(FakeConsumer, "fails", False)
    monkeypatch.setattr("pyasynq.gateway.leases.served_queues.Consumer", FakeConsumer)
    return made


def make(most: int = 3) -> ServedQueues:
    """Return the queues of an instance."""
    return ServedQueues("redis://here", ConsumerConfig(), most=most)


async def use(queues: ServedQueues, *names: str) -> Any:
    """Use queues for a moment."""
    async with queues.using(*names) as consumer:
        return consumer


@run_async
async def test_one_consumer_serves_all_queues_that_are_used(consumers: list[FakeConsumer]) -> None:
    """Also if they are first used at the same time, several times each."""
    queues = make()
    await asyncio.gather(*(use(queues, name) for name in "abcabc"))
    assert [{"a", "b", "c"}] == [one.served for one in consumers]
    await queues.close()


@run_async
async def test_the_least_recently_used_queue_is_dropped(consumers: list[FakeConsumer]) -> None:
    """A queue in use is not, however long ago its use began."""
    queues = make()
    async with queues.using("a"):
        for name in "bcbd":
            await use(queues, name)
        assert ("a", "c", "b", "d") == queues.names
        await use(queues, "e")
        assert {"a", "b", "d", "e"} - consumers[0].served <= {"b"}
    await use(queues, "f")
    assert 3 == len(consumers[0].served)
    assert set(queues.names) == consumers[0].served
    await queues.close()


@run_async
async def test_a_consumer_that_cannot_start_is_made_again_at_the_next_use(
    consumers: list[FakeConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that wait for it hear why."""
    queues = make()
    monkeypatch.setattr(FakeConsumer, "fails", True)
    results = await asyncio.gather(*(use(queues, "a") for _ in range(3)), return_exceptions=True)
    assert [RedisUnavailableError] * 3 == [type(one) for one in results]
    assert 1 == len(consumers)
    monkeypatch.setattr(FakeConsumer, "fails", False)
    assert await use(queues, "a") is consumers[1]
    await queues.close()


@run_async
async def test_nothing_is_served_after_the_close(consumers: list[FakeConsumer]) -> None:
    """Neither a queue that was served nor another."""
    queues = make()
    await use(queues, "a")
    await queues.close()
    for name in "ab":
        with pytest.raises(ServerStateError, match="closed"):
            await use(queues, name)


@run_async
async def test_a_queue_that_is_not_used_is_dropped(consumers: list[FakeConsumer]) -> None:
    """One in use is not, nor one of which a worker has tasks."""
    held = {"b"}
    queues = ServedQueues("redis://here", ConsumerConfig(), idle_seconds=0, is_held=held.__contains__)
    async with queues.using("a"):
        await use(queues, "b", "c")
        await queues.drop_idle()
        assert {"a", "b"} == consumers[0].served == set(queues.names)
    await use(queues, "c")
    await queues.drop_idle()
    assert {"b"} == consumers[0].served == set(queues.names)
    await queues.close()


@run_async
async def test_without_queues_there_is_no_consumer_until_the_next_use(
    consumers: list[FakeConsumer],
) -> None:
    """It would be shown as a server of its last queue."""
    queues = ServedQueues("redis://here", ConsumerConfig(), idle_seconds=0)
    await use(queues, "a")
    await queues.drop_idle()
    assert set() == consumers[0].served == set(queues.names)
    await queues.drop_idle()
    assert await use(queues, "a") is consumers[1]
    assert {"a"} == consumers[1].served
    await queues.close()


@run_async
async def test_a_queue_that_was_just_used_stays(consumers: list[FakeConsumer]) -> None:
    """Workers ask again and again."""
    queues = make()
    await use(queues, "a")
    await queues.drop_idle()
    assert {"a"} == consumers[0].served
    await queues.close()
