"""Schedulers and periodic task managers whose ticks a kit fires."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyasynq.errors import ConfigurationError
from pyasynq.periodic import PeriodicTaskManager

if TYPE_CHECKING:
    from pyasynq._background.redis_time import RedisTime
    from pyasynq._background.service import Service
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq.events import Events
    from pyasynq.scheduler import Scheduler
    from pyasynq.testing._time import VirtualClock


class _Timer:
    """Adapter of a scheduler to virtual time; it keeps entries and due times between calls of the kit."""

    def __init__(self, scheduler: Scheduler | PeriodicTaskManager, clock: VirtualClock) -> None:
        manager = scheduler if isinstance(scheduler, PeriodicTaskManager) else None
        self.scheduler = scheduler.scheduler if isinstance(scheduler, PeriodicTaskManager) else scheduler
        self._manager = manager
        self._sync = manager._sync if manager is not None else None  # noqa: SLF001 - the kit runs its rounds
        self._clock = clock
        self._sync_at = -math.inf if manager is not None else math.inf
        self._tick_at = -math.inf
        self._synced = False
        self._ticker: Service | None = None

    @property
    def next_due(self) -> float:
        return min(self._sync_at, self._tick_at)

    def begin(self, driver: AsyncDriver, redis_time: RedisTime) -> None:
        self._ticker, _ = self.scheduler._assemble(driver, redis_time)  # noqa: SLF001 - parts that are not started
        self._tick_at = -math.inf

    async def round(self) -> None:
        now = self._clock.now().timestamp
        if self._manager is not None and self._sync is not None and now >= self._sync_at:
            if self._synced:
                rest = await self._sync.round()
            else:
                # As at the start of a real manager, an error of the first synchronization is raised.
                await self._manager.synchronize()
                rest, self._synced = self._sync.first_rest, True
            self._sync_at = now + rest
            self._tick_at = -math.inf
        if self._ticker is not None and now >= self._tick_at:
            self._tick_at = now + await self._ticker.round()


class Schedules:
    """All schedulers of a kit."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._timers: list[_Timer] = []

    def add(self, scheduler: Scheduler | PeriodicTaskManager) -> None:
        """Fire the ticks of a scheduler from now on.

        Raises:
            ConfigurationError: when the scheduler does not use the kit's clock.
        """
        timer = _Timer(scheduler, self._clock)
        if timer.scheduler._clock is not self._clock:  # noqa: SLF001 - needed only here
            kind = type(scheduler).__name__
            raise ConfigurationError(
                f"this {kind} uses another clock: make it with {kind}(kit.url, ..., clock=kit.clock)"
            )
        self._timers.append(timer)

    @property
    def events(self) -> list[Events]:
        """The events of the schedulers."""
        return [timer.scheduler.events for timer in self._timers]

    def begin(self, driver: AsyncDriver, redis_time: RedisTime) -> None:
        """Give all schedulers the driver and clock of one call of the kit."""
        for timer in self._timers:
            timer.begin(driver, redis_time)

    async def round(self) -> None:
        """Fire the ticks of all schedulers that are due now."""
        for timer in self._timers:
            await timer.round()

    @property
    def next_due(self) -> float:
        """Unix time of the next due tick or synchronization, in seconds; infinity if there is none."""
        return min((timer.next_due for timer in self._timers), default=math.inf)
