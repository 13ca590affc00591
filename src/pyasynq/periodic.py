"""The periodic task manager: a scheduler whose entries come from a provider and may change while it runs.

async def tenants() -> list[PeriodicTaskConfig]:
    return [PeriodicTaskConfig(row.spec, Task("report", row.payload)) for row in await load()]

raise SystemExit(PeriodicTaskManager("redis://localhost:6379/0", tenants).run_forever())
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pyasynq._background.calls import CallingService
from pyasynq._background.runnable import Runnable
from pyasynq._broker.enqueueing.chunks import compose_checked, with_options
from pyasynq._checks import check_name, parse_positive_seconds, parse_seconds
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._exit_codes import EXIT_UNFINISHED
from pyasynq._scheduler.entry import free_id, new_entry
from pyasynq._scheduler.provider import ProviderCalls
from pyasynq.config import check_misfire
from pyasynq.errors import ConfigurationError, CronError, InvalidOptionError, describe_value
from pyasynq.events import PeriodicTaskRefused, SyncFailed
from pyasynq.options import DEFAULT_MAX_PAYLOAD, EnqueueOptions
from pyasynq.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

    from pyasynq._clock import Clock
    from pyasynq._redis.clients import RedisSource
    from pyasynq._scheduler.entry import ScheduleEntry
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
        task: the task that each tick enqueues.
        options: override the task's own, one by one.
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
    """A scheduler whose entries come from a provider function.

    The provider is called at the start and every `sync_interval`. Entries that it no longer returns are
    unregistered, new ones are registered, and the rest stays untouched. When it raises, or returns something
    invalid, everything stays as it is; only an entry with an invalid expression is left out. If the payload
    of a task changes, the task gets a new entry. This entry continues the ticks of the old entry, which has
    the same expression, type and queue. So `@every` fires even if the payload is different each time.

    Args:
        url: as for `Client`.
        provider: a coroutine function, or a plain one, which runs in a thread. Either may return an
            awaitable.
        sync_interval: time between two calls of the provider; 3 minutes by default.
        provider_timeout: time that a call of the provider may take; 60 seconds by default. Exceeding it
            counts as an error of the provider. A plain function is not called again before it has returned.
        config: time zone, hooks and heartbeat.
        middleware: client middleware around each enqueue, outermost first.
        clock: for tests.
        events: receive reports of what happens.

    Raises:
        ConfigurationError: for a URL, provider or interval that cannot work.
    """

    def __init__(
        self,
        url: RedisSource,
        provider: Provider,
        *,
        sync_interval: Duration = 180.0,
        provider_timeout: Duration = 60.0,
        config: SchedulerConfig | None = None,
        middleware: Iterable[ClientMiddleware] = (),
        clock: Clock = SYSTEM_CLOCK,
        events: Events | None = None,
    ) -> None:
        if not callable(provider):
            raise InvalidOptionError("provider", provider, "must be a function that returns periodic tasks")
        seconds = parse_positive_seconds("sync_interval", sync_interval)
        provider_seconds = parse_positive_seconds("provider_timeout", provider_timeout)
        self.scheduler = Scheduler(url, config, middleware=middleware, clock=clock, events=events)
        """The scheduler that fires the entries; entries that your code registers with it are left alone."""
        scheduler = self.scheduler
        super().__init__(
            scheduler.events,
            scheduler.calls,
            parse_seconds("shutdown_timeout", scheduler.config.shutdown_timeout),
        )
        self._provider = ProviderCalls(provider, provider_seconds, scheduler.calls)
        self._clock = clock
        self._provided: dict[str, str] = {}
        """Ids of the entries of provided tasks, by a key made from the task's content."""
        self._synchronizing = asyncio.Lock()
        self._sync = _Sync(self, self._provider, seconds)

    async def start(self) -> None:
        """Call the provider, register the tasks that it returns, start to fire ticks, and return.

        Raises:
            SchedulerStateError: when the manager was started before.
            ConfigurationError: when the provider returns something invalid.
            Exception: what the provider raises; nothing is left running.
            RedisError: when Redis cannot be reached, refuses us, or is too old; nothing is left running.
        """
        self.scheduler.check_new()
        self.scheduler.begin_log()
        await self.synchronize()
        await self._sync.start()
        try:
            await self.scheduler.start()
        except BaseException:
            await self._sync.stop()
            raise

    async def stop(self) -> None:
        """Stop calling the provider and firing ticks; the entries stay visible."""
        await self._sync.stop(self._shutdown_seconds)
        await self.scheduler.stop()

    async def shutdown(self) -> None:
        """Stop calling the provider, and shut the scheduler down. Idempotent.

        It does not wait for a running call of the provider.
        """
        if not await self._sync.stop(self._shutdown_seconds):
            self.exit_code = EXIT_UNFINISHED
        await self.scheduler.shutdown()
        self.exit_code = max(self.exit_code, self.scheduler.exit_code)

    def sync_soon(self) -> None:
        """Request a call of the provider now, not after the interval, because its answer has changed."""
        self._sync.wake()

    async def synchronize(self) -> None:
        """Call the provider, and bring the entries in line with its answer: all of them, or none.

        An entry of the provider that was unregistered by hand is registered again.

        Raises:
            ConfigurationError: when it returns something invalid; nothing has changed then.
            TimeoutError: when it does not return in time; nothing has changed then.
            Exception: what the provider raises; nothing has changed then.
        """
        async with self._synchronizing:
            self._apply(self._identify(await self._provider.ask()))

    def _apply(self, wanted: Mapping[str, PeriodicTaskConfig]) -> None:
        entries = self.scheduler.entries
        known = {key: entry_id for key, entry_id in self._provided.items() if entry_id in entries}
        kept = {key: entry_id for key, entry_id in known.items() if key in wanted}
        leaving = [entry_id for key, entry_id in known.items() if key not in wanted]
        joining, refused = self._make_entries(wanted, kept, entries.keys() - set(leaving))
        predecessors = self._pair(leaving, joining.values())
        self.scheduler.replace_entries(leaving, list(joining.values()), predecessors)
        self._provided = kept | {key: entry.id for key, entry in joining.items()}
        for event in refused:
            self.scheduler.events.emit(event)

    def _identify(self, answer: Iterable[object]) -> dict[str, PeriodicTaskConfig]:
        """Return the provider's tasks by keys made from their content; equal tasks get different keys."""
        wanted: dict[str, PeriodicTaskConfig] = {}
        for one in answer:
            if not isinstance(one, PeriodicTaskConfig):
                raise ConfigurationError(
                    f"the provider returned {describe_value(type(one))}, which is not a PeriodicTaskConfig"
                )
            check_name("spec", one.spec)
            check_misfire(one.misfire)
            compose_checked(one.task, one.options, now=self._clock.now(), max_payload=DEFAULT_MAX_PAYLOAD)
            key = free_id(f"{one.misfire} {one.spec}", with_options(one.task, one.options), wanted)
            wanted[key] = one
        return wanted

    def _make_entries(
        self, wanted: Mapping[str, PeriodicTaskConfig], kept: Collection[str], taken: Collection[str]
    ) -> tuple[dict[str, ScheduleEntry], list[PeriodicTaskRefused]]:
        """Return the new entries by key, and an event for each task refused for its invalid expression."""
        joining: dict[str, ScheduleEntry] = {}
        refused = []
        ids = set(taken)
        for key, one in wanted.items():
            if key in kept:
                continue
            task = with_options(one.task, one.options)
            try:
                joining[key] = new_entry(one.spec, task, one.misfire, self.scheduler.config.zone, ids)
            except CronError as error:
                refused.append(PeriodicTaskRefused(one.spec, one.task.type, error))
            else:
                ids.add(joining[key].id)
        return joining, refused

    def _pair(self, leaving: Iterable[str], joining: Iterable[ScheduleEntry]) -> dict[str, str]:
        """Return the id of the old entry for each new entry with the same expression, type and queue."""
        free: defaultdict[tuple[str, str, str], deque[str]] = defaultdict(deque)
        for entry in self.scheduler.find_entries(leaving):
            free[entry.spec, entry.task.type, entry.queue].append(entry.id)
        pairs = {}
        for entry in joining:
            if old := free[entry.spec, entry.task.type, entry.queue]:
                pairs[entry.id] = old.popleft()
        return pairs


class _Sync(CallingService):
    """Service that calls the provider at every interval; the manager's start makes the first call."""

    name = "periodic task sync"

    def __init__(self, manager: PeriodicTaskManager, provider: ProviderCalls, interval: float) -> None:
        super().__init__(manager.events, manager.scheduler.calls)
        self._manager = manager
        self._provider = provider
        self.first_rest = self._interval = interval

    def interrupt(self) -> None:
        """End the wait for a running call of the provider, because the manager stops."""
        self._provider.interrupt()

    async def round(self) -> float:
        """Update the entries; after an error of the provider, leave all unchanged."""
        try:
            await self._manager.synchronize()
        except Exception as error:  # noqa: BLE001 - the provider may raise anything; it is called again
            self.events.emit(SyncFailed(error))
        return self._interval
