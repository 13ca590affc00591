"""The scheduler: enqueues periodic tasks when they are due.

    scheduler = Scheduler("redis://localhost:6379/0")
    scheduler.register("*/5 * * * *", Task("report:refresh"), queue="low")
    raise SystemExit(scheduler.run_forever())

Run any number of schedulers, on any number of hosts: each tick is enqueued exactly once.
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
from pyasynq._checks import parse_seconds
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.server_record import host_name
from pyasynq._exit_codes import EXIT_UNFINISHED
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.facts import read_redis_facts, require_supported
from pyasynq._redis.url import parse_redis_url
from pyasynq._scheduler.book import EntryBook
from pyasynq._scheduler.entry import new_entry
from pyasynq._scheduler.firing import Firing
from pyasynq._scheduler.logs import attach_log
from pyasynq._scheduler.services import DueForwarder, EntriesHeartbeat, SchedulerParts, Ticker
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
"""Minimum seconds that a service gets to stop (grace period), even if the time of the shutdown is over."""


class Scheduler(Runnable):
    """Enqueues tasks at the ticks of cron expressions.

    There is no leader election: any number of schedulers with the same entries may run, and each tick is
    enqueued once. The clock of Redis decides, so a host with a wrong clock does no harm. A scheduler is used
    once: start and shutdown belong to one event loop, as do register and unregister while it runs.

    Args:
        url: where Redis is, such as `redis://localhost:6379/0`; or as for `Client`.
        config: time zone, hooks and heartbeat.
        middleware: client middleware around each enqueue, outermost first.
        clock: for tests.
        events: receive reports of what happens; by default the scheduler's own.

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
        """Running calls of hooks and middleware; the periodic task manager adds calls of its provider."""
        super().__init__(
            events if events is not None else Events(),
            self.calls,
            parse_seconds("shutdown_timeout", self.config.shutdown_timeout),
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
        self._forwarder: DueForwarder | None = None
        self._heartbeat: EntriesHeartbeat | None = None
        self._is_logged = False

    @property
    def state(self) -> ServerState:
        """Whether the scheduler is new, active, stopped (fires no more) or closed."""
        return self._state

    @property
    def entries(self) -> Mapping[str, Task]:
        """Tasks by entry id, with all options, in the order of registration."""
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
            spec: five fields, as in `*/5 * * * *`, or `@every 1h30m`, `@daily` and so on. A time zone may
                come first, as in `CRON_TZ=Europe/Berlin 0 9 * * *`.
            task: a `Task`, or the type of one. A tick's task has the id `<entry>:<Unix time of the tick>`
                unless `task_id` is given.
            payload: only with a type.
            misfire: what to do with ticks that became due while no scheduler ran or could reach Redis: `skip`
                them (the last one is still fired up to a minute late, also after a restart), fire only the
                last one (`once`), or fire `all`.
            **options: see `EnqueueOptions`; they override the task's own, one by one.

        Returns:
            the entry's id, a hash of expression, task and options: the same in every scheduler and after
            every restart. Equal entries get different ids.

        Raises:
            CronError: for an invalid expression.
            InvalidOptionError: for an invalid option or payload.
            UnknownOptionError: for a misspelt option.
            PayloadTooLargeError: for a payload over 8 MB.
        """
        check_misfire(misfire)
        task = as_task(task, payload)
        compose_checked(task, options, now=self._clock.now(), max_payload=DEFAULT_MAX_PAYLOAD)
        task = with_options(task, options)
        entry = new_entry(spec, task, misfire, self.config.zone, self._book.ids)
        self._book.add(entry)
        self._wake_services()
        return entry.id

    def unregister(self, entry_id: str) -> None:
        """Stop firing an entry. Its history is removed later.

        Raises:
            ScheduleNotFoundError: when there is no such entry.
        """
        self._book.remove(entry_id)
        self._wake_services()

    def find_entries(self, entry_ids: Iterable[str]) -> list[ScheduleEntry]:
        """Return the entries with these ids, for the periodic task manager."""
        wanted = set(entry_ids)
        return [entry for entry in self._book if entry.id in wanted]

    def replace_entries(
        self, leaving: Sequence[str], joining: Sequence[ScheduleEntry], predecessors: Mapping[str, str]
    ) -> None:
        """Unregister some entries and register others, for the periodic task manager.

        `predecessors` maps ids of new entries to the ids of the entries whose last ticks they inherit.

        Raises:
            ScheduleNotFoundError: when an entry to remove does not exist; nothing has changed then.
        """
        self._book.replace(leaving, joining, predecessors)
        if leaving or joining:
            self._wake_services()

    def _wake_services(self) -> None:
        if self._ticker is not None and self._heartbeat is not None:
            self._ticker.wake()
            self._heartbeat.wake()

    async def start(self) -> None:
        """Start to fire ticks, and return.

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
        """Log events to the logger `pyasynq` from now on. Idempotent."""
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
        facts = await driver.run(read_redis_facts())
        require_supported(facts)
        redis_time.learn(facts.redis_now)
        self._ticker, self._heartbeat = self._assemble(driver, redis_time)
        await self._heartbeat.start()
        await self._ticker.start()
        if self._forwarder is not None:
            await self._forwarder.start()

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
        if self.config.forward_queues:
            self._forwarder = DueForwarder(parts)
        ticker = self._make_ticker(parts, self._firing)
        return ticker, EntriesHeartbeat(parts, ticker)

    @staticmethod
    def _make_ticker(parts: SchedulerParts, firing: Firing) -> Service:
        """Make a ticker. On a cluster, make one for each node, so that no tick waits for another node."""
        if not parts.driver.target.is_cluster:
            return Ticker(parts, firing)
        nodes = NodeQueues(parts.driver, lambda: tuple(sorted({entry.queue for entry in parts.book})))
        return NodeServices(Ticker.name, parts.events, nodes, lambda _, queues: Ticker(parts, firing, queues))

    async def stop(self) -> None:
        """Fire no more ticks; the entries stay visible.

        A tick that is being fired is finished, unless a hook hangs longer than `shutdown_timeout`.
        """
        if self._state is ServerState.ACTIVE and self._ticker is not None:
            self._set_state(ServerState.STOPPED)
            await self._ticker.stop(self._shutdown_seconds)

    async def shutdown(self) -> None:
        """Finish the ticks that are being fired, remove the entries, and close.

        It waits `shutdown_timeout` for hooks and middleware, cancels the rest, and reports what hung.
        Enqueued tasks stay, as do histories and last ticks: the next scheduler continues from them.
        Idempotent. A cancelled caller does not undo the shutdown.
        """
        if self._state is ServerState.CLOSED:
            return
        self._set_state(ServerState.CLOSED)
        await asyncio.shield(asyncio.ensure_future(self._shut_down()))

    async def _shut_down(self) -> None:
        left = TimeLeft(self._shutdown_seconds, least=_LEAST_STOP_SECONDS)
        # The ticker stops first: its last ticks are still published and recorded.
        for service in (self._forwarder, self._ticker, self._heartbeat):
            if service is not None and not await service.stop(left()):
                self.exit_code = EXIT_UNFINISHED
        if self._driver is not None:
            await self._driver.close()
        if self._firing is not None:
            await self._firing.close()

    def _set_state(self, state: ServerState) -> None:
        self._state = state
        self.events.emit(SchedulerStateChanged(self.id, state.value))
