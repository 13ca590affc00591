"""The periodic task manager: a scheduler whose entries come from a provider and may change while it runs.

async def tenants() -> list[PeriodicTaskConfig]:
    return [PeriodicTaskConfig(row.spec, Task("report", row.payload)) for row in await load()]

raise SystemExit(PeriodicTaskManager("redis://localhost:6379/0", tenants).run_forever())
"""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pyasynq._broker.enqueueing.chunks import compose_checked, with_options
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._scheduler.entry import free_id
from pyasynq._scheduler.firing import MAX_PAYLOAD
from pyasynq._scheduler.runnable import Runnable
from pyasynq._server.service import Service
from pyasynq.config import check_misfire
from pyasynq.errors import ConfigurationError, CronError, InvalidOptionError
from pyasynq.events import PeriodicTaskRefused, SyncFailed
from pyasynq.options import EnqueueOptions, name_of, seconds_of
from pyasynq.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pyasynq._broker.drivers.redis_clients import RedisSource
    from pyasynq._clock import Clock
    from pyasynq.client import ClientMiddleware
    from pyasynq.config import Misfire, SchedulerConfig
    from pyasynq.events import Events
    from pyasynq.options import Duration
    from pyasynq.task import Task


@dataclass(frozen=True, slots=True)
class PeriodicTaskConfig:
    """One periodic task, as a provider returns it.

    Attributes:
        spec: the cron expression.
        task: what each tick enqueues.
        options: win over the task's own, setting by setting.
        misfire: as for `Scheduler.register`.
    """

    spec: str
    task: Task
    options: EnqueueOptions = field(default_factory=EnqueueOptions)
    misfire: Misfire = "skip"


Provider: TypeAlias = (
    "Callable[[], Iterable[PeriodicTaskConfig]] | Callable[[], Awaitable[Iterable[PeriodicTaskConfig]]]"
)


class PeriodicTaskManager(Runnable):
    """A scheduler whose entries are those that a provider returns.

    The provider is asked at the start and every `sync_interval`. What it no longer returns is unregistered,
    what is new is registered, and the rest is not touched. When it raises, or returns something that cannot
    be, everything stays as it is; an expression that cannot be read is left out alone.

    Args:
        url: as for `Client`.
        provider: a coroutine function, or a plain one, which runs in a thread.
        sync_interval: how often the provider is asked, 3 minutes unless given.
        config: location, hooks, heartbeat.
        middleware: client middleware around each enqueue, outermost first.
        clock: for tests.
        events: where to report what happens.

    Raises:
        ConfigurationError: for a URL, provider or interval that cannot work.
    """

    def __init__(
        self,
        url: RedisSource,
        provider: Provider,
        *,
        sync_interval: Duration = 180.0,
        config: SchedulerConfig | None = None,
        middleware: Iterable[ClientMiddleware] = (),
        clock: Clock = SYSTEM_CLOCK,
        events: Events | None = None,
    ) -> None:
        super().__init__()
        if not callable(provider):
            raise InvalidOptionError("provider", provider, "must be a function that returns periodic tasks")
        seconds = seconds_of("sync_interval", sync_interval)
        if seconds == 0:
            raise InvalidOptionError("sync_interval", sync_interval, "must be more than 0 seconds")
        self.scheduler = Scheduler(url, config, middleware=middleware, clock=clock, events=events)
        """What fires the entries; what is registered there by hand is not touched."""
        self._provider = provider
        self._clock = clock
        self._provided: dict[str, str] = {}
        """What identifies a provided task, and the id of its entry."""
        self._sync = _Sync(self, seconds)

    async def start(self) -> None:
        """Ask the provider, register what it returns, begin to fire, and return.

        Raises:
            SchedulerStateError: when the manager was started before.
            ConfigurationError: when the provider returns something that cannot be.
            Exception: what the provider raises; nothing is left running.
            RedisError: when Redis cannot be reached, refuses us, or is too old; nothing is left running.
        """
        self.scheduler.check_new()
        await self._sync.start()
        try:
            await self.scheduler.start()
        except BaseException:
            await self._sync.stop()
            raise

    async def stop(self) -> None:
        """Ask the provider no more, and fire no more; the entries are still shown."""
        await self._sync.stop()
        await self.scheduler.stop()

    async def shutdown(self) -> None:
        """Ask the provider no more, and shut the scheduler down. Twice is harmless."""
        await self._sync.stop()
        await self.scheduler.shutdown()

    def sync_soon(self) -> None:
        """Ask the provider now instead of after the interval, since what it returns has changed."""
        self._sync.wake()

    async def synchronize(self) -> None:
        """Ask the provider, and bring the entries to what it returns.

        Raises:
            ConfigurationError: when it returns something that cannot be; nothing has changed then.
            Exception: what the provider raises; nothing has changed then.
        """
        wanted = self._checked(await self._ask())
        for key in self._provided.keys() - wanted.keys():
            self.scheduler.unregister(self._provided.pop(key))
        for key, periodic in wanted.items():
            if key in self._provided:
                continue
            try:
                entry_id = self.scheduler.register(
                    periodic.spec, periodic.task, misfire=periodic.misfire, **periodic.options
                )
            except CronError as error:
                refused = PeriodicTaskRefused(periodic.spec, periodic.task.type, error)
                self.scheduler.events.emit(refused)
            else:
                self._provided[key] = entry_id

    async def _ask(self) -> Iterable[object]:
        provider: Callable[[], Any] = self._provider
        if inspect.iscoroutinefunction(provider):
            answer: Iterable[object] = await provider()
        else:
            answer = await asyncio.to_thread(provider)
        return answer

    def _checked(self, answer: Iterable[object]) -> dict[str, PeriodicTaskConfig]:
        """Return what the provider answered, by what identifies each; equal ones count."""
        wanted: dict[str, PeriodicTaskConfig] = {}
        for one in answer:
            if not isinstance(one, PeriodicTaskConfig):
                raise ConfigurationError(f"the provider returned {one!r}, which is no PeriodicTaskConfig")
            name_of("spec", one.spec)
            check_misfire(one.misfire)
            compose_checked(one.task, one.options, now=self._clock.now(), max_payload=MAX_PAYLOAD)
            key = free_id(f"{one.misfire} {one.spec}", with_options(one.task, one.options), wanted)
            wanted[key] = one
        return wanted


class _Sync(Service):
    """Asks the provider at every interval."""

    name = "periodic task sync"

    def __init__(self, manager: PeriodicTaskManager, interval: float) -> None:
        super().__init__(manager.scheduler.events)
        self._manager = manager
        self.first_rest = self._interval = interval

    async def enter(self) -> None:
        """Make the first entries; what goes wrong ends the start."""
        await self._manager.synchronize()

    async def round(self) -> float:
        """Bring the entries up to date, or leave all of them as they are."""
        try:
            await self._manager.synchronize()
        except Exception as error:  # noqa: BLE001 - whatever the provider raises; it is asked again
            self.events.emit(SyncFailed(error))
        return self._interval
