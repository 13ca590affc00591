"""How a periodic task manager asks its provider, and how its entries change; no Redis is needed for that."""

from __future__ import annotations

import asyncio
import threading
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.errors import ConfigurationError, InvalidOptionError
from pyasynq.periodic import PeriodicTaskConfig, PeriodicTaskManager
from pyasynq.task import Task
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

HOURLY = PeriodicTaskConfig("@hourly", Task("report"))
DAILY = PeriodicTaskConfig("@daily", Task("backup"))
WEEKLY = PeriodicTaskConfig("@weekly", Task("cleanup"))
URL = "redis://localhost"


class Provider:
    """Returns what the test puts in."""

    def __init__(self, *configs: Any) -> None:
        self.answer: Any = configs

    def __call__(self) -> Any:
        return self.answer


def types(manager: PeriodicTaskManager) -> list[str]:
    """Return the types of the registered tasks."""
    return [task.type for task in manager.scheduler.entries.values()]


@pytest.mark.parametrize(
    "bad",
    [
        PeriodicTaskConfig("@hourly", Task("t"), {"durable": True}),
        PeriodicTaskConfig("@hourly", Task("t"), {"until": "start"}),
        PeriodicTaskConfig("@hourly", Task("t"), {"max_retry": -1}),
        PeriodicTaskConfig("@hourly", Task("t", timeout=10**12)),
    ],
)
@run_async
async def test_one_bad_entry_takes_no_other_away(bad: PeriodicTaskConfig) -> None:
    """All entries are made before any is changed; nothing changes when one is refused. (D52)"""
    provider = Provider(HOURLY, DAILY)
    manager = PeriodicTaskManager(URL, provider)
    await manager.synchronize()
    before = list(manager.scheduler.entries)
    provider.answer = [DAILY, bad, WEEKLY]
    with pytest.raises(InvalidOptionError):
        await manager.synchronize()
    assert before == list(manager.scheduler.entries)
    provider.answer = [DAILY, WEEKLY]
    await manager.synchronize()
    assert ["backup", "cleanup"] == types(manager)


@run_async
async def test_an_entry_that_was_unregistered_by_hand_does_not_end_the_round() -> None:
    """Neither when it leaves the provider, nor when the provider still returns it: then it comes back.

    Defect D52.
    """
    provider = Provider(HOURLY, DAILY)
    manager = PeriodicTaskManager(URL, provider)
    await manager.synchronize()
    first, second = manager.scheduler.entries
    manager.scheduler.unregister(first)
    provider.answer = [DAILY, WEEKLY]
    await manager.synchronize()
    assert ["backup", "cleanup"] == types(manager)
    manager.scheduler.unregister(second)
    await manager.synchronize()
    assert ["cleanup", "backup"] == types(manager)


@run_async
async def test_a_task_that_was_registered_by_hand_stays() -> None:
    """Also when the provider returns the same one and takes it back. (D52)"""
    provider = Provider(HOURLY)
    manager = PeriodicTaskManager(URL, provider)
    own = manager.scheduler.register("@hourly", Task("report"))
    await manager.synchronize()
    assert 2 == len(manager.scheduler.entries)
    provider.answer = []
    await manager.synchronize()
    assert [own] == list(manager.scheduler.entries)


async def tenants() -> list[PeriodicTaskConfig]:
    """Return one task."""
    return [HOURLY]


@wraps(tenants)
def wrapped() -> Any:
    """Call a coroutine function, as a plain decorator does."""
    return tenants()


class CallableObject:
    """An object whose call is a coroutine."""

    async def __call__(self) -> list[PeriodicTaskConfig]:
        return [HOURLY]


def lazily() -> Iterator[PeriodicTaskConfig]:
    """Yield one task, from a thread that may block."""
    assert threading.current_thread() is not threading.main_thread()
    yield HOURLY


@pytest.mark.parametrize(
    "provider",
    [tenants, wrapped, lambda: tenants(), CallableObject(), lambda: [HOURLY], lazily],  # noqa: PLW0108 - no coroutine function
    ids=["coroutine function", "wrapper", "lambda", "object", "plain function", "generator"],
)
@run_async
async def test_an_awaitable_that_a_provider_returns_is_awaited(provider: Any) -> None:
    """Every form of a function is a provider. (D59)"""
    manager = PeriodicTaskManager(URL, provider)
    await manager.synchronize()
    assert ["report"] == types(manager)


async def never() -> list[PeriodicTaskConfig]:
    """Hang, as a query without a time limit does."""
    await asyncio.Event().wait()
    return []


@run_async
async def test_a_provider_has_a_time_limit() -> None:
    """The entries stay as they are, and the provider is asked again. (D53)"""
    answers = iter([tenants, never, never])

    async def provide() -> list[PeriodicTaskConfig]:
        return await next(answers)()

    manager = PeriodicTaskManager(URL, provide, provider_timeout=0.01)
    await manager.synchronize()
    for _ in range(2):
        with pytest.raises(TimeoutError, match=r"has not returned within 0.01 s \(provider_timeout\)"):
            await manager.synchronize()
    assert ["report"] == types(manager)


@run_async
async def test_a_plain_provider_that_hangs_is_not_called_again() -> None:
    """A thread cannot be stopped, and threads that hang would pile up. (D53)"""
    called, may_return, calls = threading.Event(), threading.Event(), list[int]()

    def hang() -> list[PeriodicTaskConfig]:
        calls.append(1)
        called.set()
        may_return.wait()
        return [HOURLY]

    manager = PeriodicTaskManager(URL, hang, provider_timeout=0.01)
    with pytest.raises(TimeoutError, match="has not returned within"):
        await manager.synchronize()
    with pytest.raises(TimeoutError, match="has not returned from an earlier call"):
        await manager.synchronize()
    assert called.wait(60)
    assert 1 == len(calls)
    may_return.set()
    assert manager._provider._running is not None
    await asyncio.wait({manager._provider._running})
    manager._provider._timeout = 60
    await manager.synchronize()
    assert 2 == len(calls)


@pytest.mark.parametrize("limit", [0, -1, "soon"])
def test_a_time_limit_that_cannot_be_is_refused(limit: Any) -> None:
    """It must be more than 0 seconds. (D53)"""
    with pytest.raises(InvalidOptionError, match="provider_timeout"):
        PeriodicTaskManager(URL, Provider(), provider_timeout=limit)


@run_async
async def test_an_asynchronous_generator_is_not_an_answer() -> None:
    """It says so, and does not count as an empty answer."""

    async def generator() -> AsyncIterator[PeriodicTaskConfig]:
        yield HOURLY

    manager = PeriodicTaskManager(URL, generator)  # type: ignore[arg-type]
    with pytest.raises((TypeError, ConfigurationError)):
        await manager.synchronize()
