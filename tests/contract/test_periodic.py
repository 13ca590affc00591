"""The periodic task manager on a real server."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.errors import ConfigurationError, CronError, InvalidOptionError, SchedulerStateError
from pyasynq.events import PeriodicTaskRefused, RoundFinished, SyncFailed, TickFired
from pyasynq.periodic import PeriodicTaskConfig, PeriodicTaskManager
from pyasynq.server import ServerState
from pyasynq.task import Task
from tests.contract.test_scheduler import NOON, Clock
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HOURLY = PeriodicTaskConfig("@hourly", Task("report", b"{}"), {"queue": "low"})
DAILY = PeriodicTaskConfig("@daily", Task("backup"))


class Provider:
    """Returns what the test puts in, or raises it."""

    def __init__(self, *configs: Any) -> None:
        self.answer: Iterable[Any] | Exception = configs
        self.threads: set[int] = set()

    def __call__(self) -> Iterable[Any]:
        self.threads.add(threading.get_ident())
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def ask_again(manager: PeriodicTaskManager) -> None:
    """Have the provider asked, and wait until what it returned is done."""
    await next_round(manager, "periodic task sync", manager.sync_soon)


async def next_round(manager: PeriodicTaskManager, service: str, wake: Callable[[], None]) -> None:
    """Wake a service, and wait for the end of a round."""
    ended = asyncio.Event()

    def finished(event: RoundFinished) -> None:
        if event.service == service:
            ended.set()

    stop = manager.scheduler.events.subscribe(RoundFinished, finished)
    wake()
    await ended.wait()
    stop()


def registered(manager: PeriodicTaskManager) -> list[str]:
    """Return the types of the registered tasks."""
    return [task.type for task in manager.scheduler.entries.values()]


@run_async
async def test_entries_are_what_the_provider_returns(redis_url: str) -> None:
    """Missing tasks are unregistered, new ones registered, and the rest keeps its entry."""
    provider = Provider(HOURLY)
    async with PeriodicTaskManager(redis_url, provider) as manager:
        [(first, task)] = manager.scheduler.entries.items()
        assert ("report", "low") == (task.type, task.options["queue"])
        before = next(iter(manager.scheduler._book))
        provider.answer = [HOURLY, DAILY]
        await ask_again(manager)
        assert ["report", "backup"] == registered(manager)
        assert before is next(iter(manager.scheduler._book))
        provider.answer = [DAILY]
        await ask_again(manager)
        assert ["backup"] == registered(manager)
        assert first not in manager.scheduler.entries
    assert ServerState.CLOSED is manager.scheduler.state


@run_async
async def test_w28_equal_tasks_count(redis_url: str) -> None:
    """One is registered as often as the provider returns it, and no entry is left over."""
    provider = Provider(DAILY, DAILY)
    async with PeriodicTaskManager(redis_url, provider) as manager:
        assert ["backup", "backup"] == registered(manager)
        provider.answer = [DAILY]
        await ask_again(manager)
        assert ["backup"] == registered(manager)
        provider.answer = []
        await ask_again(manager)
        assert [] == registered(manager)


@pytest.mark.parametrize(
    "changed",
    [
        PeriodicTaskConfig("@hourly", Task("report", b"{}", headers={"a": "b"}), {"queue": "low"}),
        PeriodicTaskConfig("@hourly", Task("report", b"{}", max_retry=1), {"queue": "low"}),
        PeriodicTaskConfig("@hourly", Task("report", b"{}"), {"queue": "low"}, misfire="all"),
    ],
)
def test_w28_headers_and_the_tasks_own_options_make_a_difference(
    redis_url: str, changed: PeriodicTaskConfig
) -> None:
    """Asynq would go on enqueueing the old task."""

    async def test() -> None:
        provider = Provider(HOURLY)
        async with PeriodicTaskManager(redis_url, provider) as manager:
            before = next(iter(manager.scheduler._book))
            provider.answer = [changed]
            await ask_again(manager)
            [after] = manager.scheduler._book
            assert before is not after
            assert after.task.headers == changed.task.headers

    asyncio.run(test())


@pytest.mark.parametrize(
    "answer",
    [OSError("database is away"), [HOURLY, "DAILY"], [PeriodicTaskConfig("", Task("t"))], [HOURLY, None]],
)
def test_all_stays_as_it_is_when_the_provider_fails(redis_url: str, answer: Any) -> None:
    """It is reported, and the provider is asked again."""

    async def test() -> None:
        provider = Provider(HOURLY)
        failures: list[Exception] = []
        async with PeriodicTaskManager(redis_url, provider) as manager:
            manager.scheduler.events.subscribe(SyncFailed, lambda event: failures.append(event.error))
            provider.answer = answer
            await ask_again(manager)
            assert ["report"] == registered(manager)
            assert 1 == len(failures)
            provider.answer = [DAILY]
            await ask_again(manager)
            assert ["backup"] == registered(manager)

    asyncio.run(test())


@run_async
async def test_an_expression_that_cannot_be_read_is_left_out_alone(redis_url: str) -> None:
    """One tenant's mistake is not everybody's."""
    refused: list[PeriodicTaskRefused] = []
    manager = PeriodicTaskManager(redis_url, Provider(PeriodicTaskConfig("nonsense", Task("t")), DAILY))
    manager.scheduler.events.subscribe(PeriodicTaskRefused, refused.append)
    async with manager:
        assert ["backup"] == registered(manager)
    assert [("nonsense", "t", CronError)] == [(one.spec, one.task_type, type(one.error)) for one in refused]


@pytest.mark.parametrize(
    ("answer", "error"),
    [(OSError("database is away"), OSError), ([1], ConfigurationError), (None, TypeError)],
)
def test_the_first_answer_must_be_right(redis_url: str, answer: Any, error: type[Exception]) -> None:
    """Otherwise the start fails, and nothing is left running."""

    async def test() -> None:
        provider = Provider()
        provider.answer = answer
        manager = PeriodicTaskManager(redis_url, provider)
        with pytest.raises(error):
            await manager.start()
        assert {asyncio.current_task()} == asyncio.all_tasks()

    asyncio.run(test())


@run_async
async def test_a_plain_provider_runs_in_a_thread(redis_url: str) -> None:
    """It may block, as database drivers do; a coroutine function is awaited."""
    provider = Provider(DAILY)
    async with PeriodicTaskManager(redis_url, provider):
        assert threading.get_ident() not in provider.threads

    async def coroutine() -> list[PeriodicTaskConfig]:
        return [DAILY]

    async with PeriodicTaskManager(redis_url, coroutine) as manager:
        assert ["backup"] == registered(manager)
        await manager.stop()
        assert ServerState.STOPPED is manager.scheduler.state


@run_async
async def test_a_manager_starts_once(redis_url: str) -> None:
    """A second start is an error, as it is for a scheduler."""
    manager = PeriodicTaskManager(redis_url, Provider(DAILY))
    async with manager:
        with pytest.raises(SchedulerStateError):
            await manager.start()
    await manager.shutdown()


@pytest.mark.parametrize("settings", [{"provider": None}, {"sync_interval": 0}, {"sync_interval": -1}])
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    """The error names the setting."""
    with pytest.raises(InvalidOptionError, match=next(iter(settings))):
        PeriodicTaskManager("redis://localhost", **{"provider": Provider(), **settings})


@run_async
async def test_every_fires_although_the_payload_changes_at_every_sync(redis_url: str) -> None:
    """The entry is another one each time, and goes on with the ticks of the one before. (D60)"""
    clock = Clock()
    answers = itertools.count()

    def provider() -> list[PeriodicTaskConfig]:
        return [PeriodicTaskConfig("@every 10s", Task("report", b"%d" % next(answers)))]

    fired: list[float] = []
    manager = PeriodicTaskManager(redis_url, provider, clock=clock)
    events = manager.scheduler.events
    events.subscribe(TickFired, lambda event: fired.append((event.tick - NOON).total_seconds()))
    async with manager:
        for _ in range(8):
            await ask_again(manager)
            await round_of(manager)
            clock.move(4)
            await round_of(manager)
    assert [10, 20, 30] == fired


async def round_of(manager: PeriodicTaskManager) -> None:
    """Have the ticker make a round that begins after this."""
    for _ in range(2):
        await next_round(manager, "scheduler", manager.scheduler._ticker.wake)  # type: ignore[union-attr]


@run_async
async def test_an_entry_that_replaces_another_is_fired_at_no_tick_of_the_past(redis_url: str) -> None:
    """Nor twice for one that was fired, though missed ticks are made up for. (D60)"""
    clock = Clock()
    provider = Provider(PeriodicTaskConfig("@every 10s", Task("report", b"1"), misfire="all"))
    fired: list[float] = []
    manager = PeriodicTaskManager(redis_url, provider, clock=clock)
    events = manager.scheduler.events
    events.subscribe(TickFired, lambda event: fired.append((event.tick - NOON).total_seconds()))
    async with manager:
        await round_of(manager)
        clock.move(25)
        await round_of(manager)
        assert [10, 20] == fired
        provider.answer = [PeriodicTaskConfig("@every 10s", Task("report", b"2"), misfire="all")]
        await ask_again(manager)
        await round_of(manager)
        assert [10, 20] == fired
        clock.move(5)
        await round_of(manager)
    assert [10, 20, 30] == fired
