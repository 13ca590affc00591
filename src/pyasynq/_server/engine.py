"""One running server: its parts, put together, started in order and stopped in the reverse."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from pyasynq._broker.driver import AsyncDriver, BlockingDriver
from pyasynq._broker.leases import list_expired
from pyasynq._broker.results import write_result
from pyasynq._broker.server_facts import require_supported, server_facts
from pyasynq._broker.subscription import Subscription
from pyasynq._broker.wakeup import Watcher
from pyasynq._server.abandoned import AbandonedLeases
from pyasynq._server.attempt import Phase
from pyasynq._server.group_routes import GroupRoutes
from pyasynq._server.intake import Intake
from pyasynq._server.loop_watch import LoopWatch
from pyasynq._server.outcome import Requeue
from pyasynq._server.overdue import OverdueRule
from pyasynq._server.parts import Parts
from pyasynq._server.redis_time import RedisTime
from pyasynq._server.roster import Roster
from pyasynq._server.runner import Runner, ServerStopping
from pyasynq._server.server_record import ServerRecord
from pyasynq._server.services.aggregator import Aggregator
from pyasynq._server.services.deadlines import Deadlines
from pyasynq._server.services.forwarder import Forwarder
from pyasynq._server.services.health_check import HealthCheck
from pyasynq._server.services.heartbeater import Heartbeater
from pyasynq._server.services.janitor import Janitor
from pyasynq._server.services.processor import Processor
from pyasynq._server.services.recoverer import Recoverer
from pyasynq._server.services.subscriber import Subscriber
from pyasynq._server.services.syncer import Syncer
from pyasynq._server.settle_queue import SettleQueue
from pyasynq._server.start_checks import check_server
from pyasynq._server.threads import HandlerThreads
from pyasynq._server.wake_up import WakeUp
from pyasynq._wire.keys import CANCEL_CHANNEL
from pyasynq.errors import LeaseExpiredError
from pyasynq.events import AttemptAbandoned, ShutdownWaiting
from pyasynq.options import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.redis_url import RedisTarget
    from pyasynq._broker.server_facts import ServerFacts
    from pyasynq._clock import Clock
    from pyasynq._server.attempt import Attempt
    from pyasynq._server.routes import Router
    from pyasynq._server.service import Service
    from pyasynq._server.settings import EngineSettings
    from pyasynq.config import ServerConfig
    from pyasynq.context import RunningTask
    from pyasynq.events import Events, ServerWarning

_CLIENT_NAME = "pyasynq-server"


class Engine:
    """Everything of one run of a server, from start to shutdown. It belongs to one event loop.

    Attributes:
        finished: done when the server should be shut down by itself: burst, max_tasks, or stuck handlers.
        task_state: what the lifespan yielded.
    """

    def __init__(
        self,
        target: RedisTarget,
        router: Router,
        config: ServerConfig,
        settings: EngineSettings,
        *,
        clock: Clock,
        events: Events,
        task_state: Any,
        owns_process: bool,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.task_state = task_state
        self.server_id = str(uuid.uuid4())
        self.finished: asyncio.Future[None] = self.loop.create_future()
        self.stuck = False
        self.ready = False
        """Whether the start is complete and the shutdown has not begun."""
        self._taking = True
        self.put_back = 0
        """How many unfinished tasks went back to their queues at shutdown."""
        self._target = target
        self._config = config
        self._settings = settings
        self._clock = clock
        self._events = events
        self._owns_process = owns_process
        self._router = router
        self._started: list[Service] = []
        self._warned: set[str] = set()
        self._driver = AsyncDriver(target, client_name=_CLIENT_NAME, clock=clock, on_warning=self._warn)
        self._beat_driver = BlockingDriver(
            target,
            client_name=_CLIENT_NAME,
            clock=clock,
            # Its thread is the heartbeat's; events belong to the loop.
            on_warning=lambda warning: self.loop.call_soon_threadsafe(self._warn, warning),
        )
        self._redis_time = RedisTime(clock)
        self._roster = Roster(config.queues)
        self._threads = HandlerThreads()
        self._settles = SettleQueue(
            config,
            settings,
            roster=self._roster,
            events=events,
            clock=clock,
            redis_time=self._redis_time,
        )

    async def start(self) -> None:
        """Look at the server, then start all services.

        Raises:
            RedisError: when Redis cannot be reached, refuses us, or is too old; nothing is left running.
        """
        try:
            facts = await self._driver.run(server_facts())
            require_supported(facts)
            self._redis_time.learn(facts.redis_now)
            check_server(facts, self._clock, self._settings, self._events)
            await self._try_rights()
            for service in self._build(facts):
                await service.start()
                self._started.append(service)
        except BaseException:
            await self._stop_services()
            await self.close()
            raise
        self._record.status = "active"
        self.ready = True
        self._heartbeater.beat_now()

    async def _try_rights(self) -> None:
        """Run a script that changes nothing on the keys of each queue, as all services are about to do."""
        now = self._clock.redis_now()
        plans = [list_expired(queue, limit=1, now=now) for queue in self._config.queues]
        for result in await self._driver.run_batch(plans):
            if isinstance(result, Exception):
                raise result

    def _build(self, facts: ServerFacts) -> tuple[Service, ...]:
        parts = self._parts = Parts(
            server_id=self.server_id,
            config=self._config,
            settings=self._settings,
            events=self._events,
            clock=self._clock,
            redis_time=self._redis_time,
            driver=self._driver,
            router=self._router,
            roster=self._roster,
            settles=self._settles,
        )
        self._runner = Runner(parts, self._threads)
        self._wake_up = WakeUp(self._make_watcher)
        self._intake = Intake(parts, self._runner, self)
        self._intake.taking = self._taking
        self._rule = rule = OverdueRule(self._config, self._settings)
        started = self._redis_time.now().to_datetime()
        self._record = ServerRecord(self.server_id, self._config, self._settings, started)
        deadlines = Deadlines(parts, rule)
        deadlines.on_stuck = self._give_up
        watch = LoopWatch(deadlines, self._settings, self._clock, self._events)
        self._heartbeater = Heartbeater(
            parts, self._beat_driver, self._record, rule, watch, owns_process=self._owns_process
        )
        self._processor = Processor(parts, self._runner, self._intake, self._wake_up)
        forwarder = Forwarder(parts, self._wake_up)
        self._connect_bells(forwarder)
        group_routes = GroupRoutes(self._config, self._router)
        self._aggregator = Aggregator(parts, group_routes, self._threads)
        health = (HealthCheck(parts),) if self._config.health_check is not None else ()
        # Stopped in the reverse order: what sends stops before what receives. The syncer and the heartbeater
        # outlive the processor, so that late outcomes are still written and leases renewed while it drains.
        return (
            self._heartbeater,
            Syncer(parts),
            deadlines,
            *health,
            Subscriber(parts, self._subscribe),
            Recoverer(parts, facts),
            Janitor(parts),
            forwarder,
            self._processor,
            *((self._aggregator,) if group_routes else ()),
        )

    def _connect_bells(self, forwarder: Forwarder) -> None:
        processor = self._processor
        self._runner.on_end = processor.wake
        self._settles.on_put = processor.wake
        processor.on_idle = self._finish

        def changed(key: str) -> None:
            if forwarder.owns(key):
                forwarder.wake()
            elif self._intake.board.changed(key):
                processor.wake()

        self._wake_up.listen(changed)

    def stop_taking(self) -> None:
        """Take no more tasks; what runs goes on. During the start, the processor will not begin to take."""
        self._taking = False
        if hasattr(self, "_intake"):
            self._intake.taking = False
        if not self.ready:
            return
        self._processor.wake()
        self._aggregator.taking = False
        self._record.status = "stopped"
        self._heartbeater.beat_now()

    def expect_exit(self) -> None:
        """Let the heartbeat's thread end the process if a blocked event loop does not do it in time."""
        if not self.ready:
            return
        patience = self._shutdown_timeout + self._cancel_timeout + self._settings.exit_margin
        self._heartbeater.exit_by = self._clock.monotonic() + patience

    @property
    def _shutdown_timeout(self) -> float:
        return seconds_of("shutdown_timeout", self._config.shutdown_timeout)

    @property
    def _cancel_timeout(self) -> float:
        return seconds_of("cancel_timeout", self._config.cancel_timeout)

    async def drain(self) -> list[Attempt]:
        """Wait for attempts, cancel those that take too long, stop all services; return what still runs."""
        self.stop_taking()
        self.ready = False
        if self._runner.running:
            self._events.emit(ShutdownWaiting(len(self._runner.running), self._shutdown_timeout))
        aggregating = asyncio.ensure_future(self._aggregator.wait_until_idle(self._shutdown_timeout))
        if not await self._runner.wait_until_idle(self._shutdown_timeout):
            self._settles.hold_requeues()
            now = self._clock.monotonic()
            for attempt in list(self._runner.running):
                if attempt.cancel(ServerStopping(), monotonic=now):
                    self.put_back += 1
                elif attempt.phase is Phase.SETTLING and attempt.task is not None:
                    # Its outcome is decided; what takes so long is the error handler.
                    attempt.task.cancel()
            await self._runner.wait_until_idle(self._cancel_timeout)
            self._settles.release_requeues()
        await aggregating
        await self._stop_services()
        running = self._runner.running
        # The roster has them in the order in which they were taken, which is that in which they go back.
        return [one for one in self._roster if one in running and one.phase is not Phase.SETTLING]

    async def give_back(self, running: list[Attempt]) -> None:
        """Put back tasks whose handlers still run; the process must end right after it.

        Inside somebody else's program it cannot: the tasks come back when the handlers or the program have
        ended, and their leases have lapsed after that.
        """
        if not self._owns_process:
            self._abandon(running)
            return
        now = self._clock.monotonic()
        for attempt in running:
            if self.stuck and self._rule.is_overdue(attempt, now):
                # It is why the process ends: another server recovers it, and counts the crash.
                continue
            attempt.phase = Phase.SETTLING
            self._settles.put(attempt, Requeue())
            self.put_back += 1
        await self._processor.leave()

    def _abandon(self, running: list[Attempt]) -> None:
        for attempt in running:
            attempt.phase = Phase.ABANDONED
            self._events.emit(AttemptAbandoned(attempt.queue, attempt.id, attempt.message.type))
        if running:
            driver = BlockingDriver(self._target, client_name=_CLIENT_NAME, clock=self._clock)
            AbandonedLeases(running, self._parts, self._rule, driver).keep()

    async def close(self) -> None:
        """Close threads and connections."""
        self._threads.close()
        await self._driver.close()
        self._beat_driver.close()

    async def _stop_services(self) -> None:
        while self._started:
            await self._started.pop().stop()
        if hasattr(self, "_wake_up"):
            await self._wake_up.close()

    def _finish(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)

    def _give_up(self) -> None:
        # An attempt that nobody can stop holds its slot for ever; only a new process gets it back.
        self.stuck = True
        self._finish()

    def _make_watcher(self, on_change: Callable[[str], object]) -> Watcher:
        return Watcher(self._target, on_change, on_warning=self._warn)

    def _warn(self, warning: ServerWarning) -> None:
        """Report what Redis refuses; several connections may find out the same."""
        if warning.code not in self._warned:
            self._warned.add(warning.code)
            self._events.emit(warning)

    def _subscribe(self) -> Subscription:
        return Subscription(self._target, CANCEL_CHANNEL)

    async def write_result(self, task: RunningTask, data: bytes) -> None:
        """Store a handler's result, if the task is still its attempt's."""
        attempt = self._roster.get(task.queue, task.id)
        if attempt is not task:
            raise LeaseExpiredError
        # The heartbeat's thread may renew before this arrives.
        attempt.expect_renewals(self._redis_time.now().ceiling, self._settings.lease)
        if not await self._driver.run(
            write_result(task.queue, task.id, attempt.token, data, lease_score=attempt.lease_score),
        ):
            raise LeaseExpiredError
