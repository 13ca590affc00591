"""The scheduler: enqueues periodic tasks when they are due.

    scheduler = Scheduler("redis://localhost:6379/0")
    scheduler.register("*/5 * * * *", Task("report:refresh"), queue="low")
    raise SystemExit(scheduler.run_forever())

Run as many as you like, on as many hosts: each tick is enqueued once.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import TYPE_CHECKING, Final

from pyasynq._background.calls import CallsInProgress
from pyasynq._background.node_services import NodeQueues, NodeServices
from pyasynq._background.redis_time import RedisTime
from pyasynq._background.runnable import Runnable
from pyasynq._background.time_limits import TimeLeft
from pyasynq._broker.enqueueing.chunks import as_task, compose_checked, with_options
from pyasynq._checks import seconds_of
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.server_record import host_name
from pyasynq._exit_codes import EXIT_UNFINISHED
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.facts import require_supported, server_facts
from pyasynq._redis.url import parse_redis_url
from pyasynq._scheduler.book import EntryBook
from pyasynq._scheduler.entry import new_entry
from pyasynq._scheduler.firing import Firing
from pyasynq._scheduler.logs import attach_log
from pyasynq._scheduler.services import EntriesHeartbeat, SchedulerParts, Ticker
from pyasynq.config import SchedulerConfig, check_misfire
from pyasynq.errors import SchedulerStateError
from pyasynq.events import Events, SchedulerStateChanged
from pyasynq.options import DEFAULT_MAX_PAYLOAD
from pyasynq.server import ServerState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Unpack

    from pyasynq._background.service import Service
    from pyasynq._clock import Clock
    from pyasynq._redis.clients import RedisSource
    from pyasynq._scheduler.entry import ScheduleEntry
    from pyasynq.client import ClientMiddleware
    from pyasynq.config import Misfire
    from pyasynq.options import EnqueueOptions
    from pyasynq.task import Task

_LEAST_STOP_SECONDS: Final = 1.0
"""Seconds that a service gets even if the time of a shutdown is over: usually it needs milliseconds."""


class Scheduler(Runnable):
    """Enqueues tasks at the ticks of cron expressions.

    There is no leader: any number of schedulers with the same entries may run, and each tick is enqueued
    once. Times are those of Redis, so a host with a wrong clock does no harm. A scheduler is used once:
    start and shutdown belong to one event loop, and so do register and unregister while it runs.

    Args:
        url: where Redis is, such as `redis://localhost:6379/0`; or as for `Client`.
        config: location, hooks, heartbeat.
        middleware: client middleware around each enqueue, outermost first.
        clock: for tests.
        events: where to report what happens; the scheduler makes its own unless given.

    Raises:
        ConfigurationError: for a URL that cannot work.
    """

    def __init__(
        self,
        url: RedisSource,
        config: SchedulerConfig | None = None,
        *,
        middleware: Iterable[ClientMiddleware] = (),
        clock: Clock = SYSTEM_CLOCK,
        events: Events | None = None,
    ) -> None:
        self.config = config if config is not None else SchedulerConfig()
        self.calls = CallsInProgress()
        """Hooks and middleware that have not returned; the periodic task manager adds its provider."""
        super().__init__(
            events if events is not None else Events(),
            self.calls,
            seconds_of("shutdown_timeout", self.config.shutdown_timeout),
        )
        self._target = parse_redis_url(url)
        self.id = f"{host_name()}:{os.getpid()}:{uuid.uuid4()}"
        """The scheduler's id in Redis: host, process, and a random part."""
        self._middleware = tuple(middleware)
        self._clock = clock
        self._book = EntryBook(self.events)
        self._state = ServerState.NEW
        self._driver: AsyncDriver | None = None
        self._ticker: Service | None = None
        self._firing: Firing | None = None
        self._heartbeat: EntriesHeartbeat | None = None
        self._is_logged = False

    @property
    def state(self) -> ServerState:
        """Whether the scheduler is new, active, stopped (fires no more) or closed."""
        return self._state

    @property
    def entries(self) -> Mapping[str, Task]:
        """The tasks by the ids of their entries, with all options, in the order of registration."""
        return {entry.id: entry.task for entry in self._book}

    def register(
        self,
        spec: str,
        task: Task | str,
        payload: bytes | None = None,
        *,
        misfire: Misfire = "skip",
        **options: Unpack[EnqueueOptions],
    ) -> str:
        """Enqueue this task at every tick of an expression; before the start or while the scheduler runs.

        Args:
            spec: five fields, as in `*/5 * * * *`, or `@every 1h30m`, `@daily` and so on; a zone of its own
                stands in front, as in `CRON_TZ=Europe/Berlin 0 9 * * *`.
            task: a `Task`, or the type of one. A tick's task has the id `<entry>:<Unix time of the tick>`
                unless `task_id` is given.
            payload: beside a type only.
            misfire: what to do about ticks that fell due while no scheduler ran or could reach Redis:
                `skip` them (those up to a minute late are fired if this scheduler was there), fire the last
                one `once`, or fire `all`.
            **options: see `EnqueueOptions`; they win over the task's own, setting by setting.

        Returns:
            the entry's id, a hash of expression, task and options: the same in every scheduler and after
            every restart. Entries that are equal get different ids.

        Raises:
            CronError: for an expression that cannot be read.
            InvalidOptionError: for an option, or the payload, that cannot be.
            UnknownOptionError: for a misspelt option.
            PayloadTooLargeError: for a payload over 8 MB.
        """
        check_misfire(misfire)
        task = as_task(task, payload)
        compose_checked(task, options, now=self._clock.now(), max_payload=DEFAULT_MAX_PAYLOAD)
        task = with_options(task, options)
        entry = new_entry(spec, task, misfire, self.config.zone, self._book.ids)
        self._book.add(entry)
        self._changed()
        return entry.id

    def unregister(self, entry_id: str) -> None:
        """Fire an entry no more, and have its history removed.

        Raises:
            ScheduleNotFoundError: when there is no such entry.
        """
        self._book.remove(entry_id)
        self._changed()

    def find_entries(self, entry_ids: Iterable[str]) -> list[ScheduleEntry]:
        """Return entries by their ids, for the periodic task manager."""
        wanted = set(entry_ids)
        return [entry for entry in self._book if entry.id in wanted]

    def replace_entries(
        self, leaving: Sequence[str], joining: Sequence[ScheduleEntry], predecessors: Mapping[str, str]
    ) -> None:
        """Unregister some entries and register others, for the periodic task manager.

        `predecessors` names for some of the new ids the entries whose ticks they take over.

        Raises:
            ScheduleNotFoundError: when an entry that is to leave does not exist; nothing has changed then.
        """
        self._book.replace(leaving, joining, predecessors)
        if leaving or joining:
            self._changed()

    def _changed(self) -> None:
        if self._ticker is not None and self._heartbeat is not None:
            self._ticker.wake()
            self._heartbeat.wake()

    async def start(self) -> None:
        """Begin to fire, and return.

        Raises:
            SchedulerStateError: when the scheduler was started before.
            RedisError: when Redis cannot be reached, refuses us, or is too old; nothing is left running.
        """
        self.check_new()
        self.begin_log()
        self._set_state(ServerState.ACTIVE)
        self._driver = AsyncDriver(
            self._target,
            client_name="pyasynq-scheduler",
            clock=self._clock,
            on_warning=self.events.emit,
        )
        try:
            await self._start_services(self._driver)
        except BaseException:
            await self.shutdown()
            raise

    def begin_log(self) -> None:
        """Write what happens to the logger `pyasynq`, from now on. Twice is harmless."""
        if not self._is_logged:
            self._is_logged = True
            attach_log(self.events, self._target.address, self._book)

    def check_new(self) -> None:
        """Raise `SchedulerStateError` when the scheduler was started before."""
        if self._state is not ServerState.NEW:
            raise SchedulerStateError(
                f"the scheduler is {self._state}; a scheduler starts once, make another one"
            )

    async def _start_services(self, driver: AsyncDriver) -> None:
        redis_time = RedisTime(self._clock)
        facts = await driver.run(server_facts())
        require_supported(facts)
        redis_time.learn(facts.redis_now)
        self._ticker, self._heartbeat = self._assemble(driver, redis_time)
        await self._heartbeat.start()
        await self._ticker.start()

    def _assemble(self, driver: AsyncDriver, redis_time: RedisTime) -> tuple[Service, EntriesHeartbeat]:
        parts = SchedulerParts(
            self.id, self.config, self.events, self._clock, redis_time, driver, self._book, self.calls
        )
        self._firing = Firing(
            self.config,
            self._middleware,
            driver=driver,
            clock=self._clock,
            redis_time=redis_time,
            events=self.events,
            calls=self.calls,
        )
        ticker = self._make_ticker(parts, self._firing)
        return ticker, EntriesHeartbeat(parts, ticker)

    @staticmethod
    def _make_ticker(parts: SchedulerParts, firing: Firing) -> Service:
        """Return a ticker; on a cluster one for each node, so that no tick waits for the node of others."""
        if not parts.driver.target.is_cluster:
            return Ticker(parts, firing)
        nodes = NodeQueues(parts.driver, lambda: tuple(sorted({entry.queue for entry in parts.book})))
        return NodeServices(Ticker.name, parts.events, nodes, lambda _, queues: Ticker(parts, firing, queues))

    async def stop(self) -> None:
        """Fire no more; the entries are still shown.

        A tick that is being fired is finished, unless a hook hangs longer than `shutdown_timeout`.
        """
        if self._state is ServerState.ACTIVE and self._ticker is not None:
            self._set_state(ServerState.STOPPED)
            await self._ticker.stop(self._shutdown_seconds)

    async def shutdown(self) -> None:
        """Finish the ticks that are being fired, take the entries away, and close.

        It waits `shutdown_timeout` for hooks and middleware, cancels the rest, and reports what hung.

        What was enqueued stays, and so do histories and last ticks: the next scheduler goes on from there.
        Twice is harmless. A cancelled caller does not undo the shutdown.
        """
        if self._state is ServerState.CLOSED:
            return
        self._set_state(ServerState.CLOSED)
        await asyncio.shield(asyncio.ensure_future(self._shut_down()))

    async def _shut_down(self) -> None:
        left = TimeLeft(self._shutdown_seconds, least=_LEAST_STOP_SECONDS)
        # The ticker goes first: what it fires at the end is still shown and recorded.
        for service in (self._ticker, self._heartbeat):
            if service is not None and not await service.stop(left()):
                self.exit_code = EXIT_UNFINISHED
        if self._driver is not None:
            await self._driver.close()
        if self._firing is not None:
            await self._firing.close()

    def _set_state(self, state: ServerState) -> None:
        self._state = state
        self.events.emit(SchedulerStateChanged(self.id, state.value))
