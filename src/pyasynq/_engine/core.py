"""Common base of all engines: connections, leases, settles, recovery, and the server's record.

The engine of a server adds handlers. The engine of a consumer adds callers, which take tasks themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pyasynq._background.node_services import NodeQueues, NodeServices
from pyasynq._background.redis_time import RedisTime
from pyasynq._background.service import stop_services
from pyasynq._background.time_limits import TimeLeft, shutdown_limit
from pyasynq._broker.leases import list_expired
from pyasynq._broker.results import write_result
from pyasynq._checks import parse_seconds
from pyasynq._engine.engine_parts import Parts
from pyasynq._engine.handlers.routes import check_result_size, describe_routes
from pyasynq._engine.lease.roster import Roster
from pyasynq._engine.lease.stuck_rule import OverdueRule
from pyasynq._engine.loop_watch import LoopWatch
from pyasynq._engine.run.attempt import expect_renewals
from pyasynq._engine.run.runner import conclude_refused
from pyasynq._engine.server_record import ServerRecordBuilder
from pyasynq._engine.services.deadlines import Deadlines
from pyasynq._engine.services.forwarder import Forwarder, is_delayed_key
from pyasynq._engine.services.heartbeater import Heartbeater
from pyasynq._engine.services.janitor import Janitor
from pyasynq._engine.services.measurer import Measurer
from pyasynq._engine.services.outbox_relay import OutboxRelay
from pyasynq._engine.services.peer_watch import PeerWatch
from pyasynq._engine.services.processor import Processor
from pyasynq._engine.services.progress_writer import ProgressWriter
from pyasynq._engine.services.publisher import Publisher
from pyasynq._engine.services.queue_look import QueueLook
from pyasynq._engine.services.recoverer import Recoverer
from pyasynq._engine.services.statistician import Statistician
from pyasynq._engine.services.subscriber import Subscriber
from pyasynq._engine.services.syncer import Syncer
from pyasynq._engine.settle.settle_queue import SettleQueue
from pyasynq._engine.take.intake import Intake
from pyasynq._engine.take.queue_board import QueueBoard
from pyasynq._engine.tally import Tally
from pyasynq._redis.driver import AsyncDriver, BlockingDriver
from pyasynq._redis.facts import check_clock, check_eviction, read_redis_facts, require_supported
from pyasynq._redis.key_watcher import Watcher
from pyasynq._redis.subscription import Subscription
from pyasynq._wire.history import ProgressReport
from pyasynq._wire.keys import CANCEL_CHANNEL
from pyasynq.errors import ConfigurationError, LeaseExpiredError, ServerStateError
from pyasynq.events import AttemptTraced, QueueChanged, WorkerMeasured
from pyasynq.task_types import served_types

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pyasynq._background.node_services import MakeService
    from pyasynq._background.service import Service
    from pyasynq._clock import Clock
    from pyasynq._engine.handlers.routes import Router
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.settings import EngineSettings
    from pyasynq._engine.take.sink import Sink
    from pyasynq._redis.facts import RedisFacts
    from pyasynq._redis.url import RedisTarget
    from pyasynq.config import ServerConfig
    from pyasynq.context import RunningTask
    from pyasynq.events import Events, RedisWarning
    from pyasynq.limits import Queue

_T = TypeVar("_T")

CLIENT_NAME = "pyasynq-server"


class EngineCore:
    """Base of an engine, which takes, leases, settles and recovers tasks.

    An engine belongs to one event loop, and is started and closed once.

    A subclass defines the demand for tasks (`_make_sink`), the shutdown, and its additional services.

    Attributes:
        task_state: the value of `context().state` in handlers.
        ready: whether the start is complete and the shutdown has not begun.
        team: name of the team that runs it, for its record; set before the start.
        version: version of the application, for its record; set before the start.
        noun: `server` or `consumer`, as error messages call it.
    """

    noun = "server"

    def __init__(
        self,
        target: RedisTarget,
        router: Router,
        config: ServerConfig,
        settings: EngineSettings,
        *,
        clock: Clock,
        events: Events,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.task_state: Any = None
        self.server_id = str(uuid.uuid4())
        self.team = ""
        self.version = ""
        self.ready = False
        self._taking = True
        self._target = target
        self._config = config
        self._settings = settings
        self._clock = clock
        self._events = events
        self._owns_process = False
        self._router = router
        self._started: list[Service] = []
        self._lasting = 0
        """Number of services that stop last, after the lifespan: they renew leases and write outcomes.
        """
        self._warned: set[str] = set()
        self._changed_delayed: set[str] = set()
        """Keys of delayed tasks whose changes Redis has reported.

        Written by the watcher, taken by the forwarders.
        """
        self._driver = AsyncDriver(target, client_name=CLIENT_NAME, clock=clock, on_warning=self._warn)
        self._beat_driver = BlockingDriver(
            target,
            client_name=CLIENT_NAME,
            clock=clock,
            # The heartbeat's thread calls this; only the event loop may emit events.
            on_warning=lambda warning: self.loop.call_soon_threadsafe(self._warn, warning),
        )
        self._redis_time = RedisTime(clock)
        self._board = QueueBoard(config.queues, config.queue)
        self._roster = Roster(self._board.known)
        self._settles = SettleQueue(
            config,
            settings,
            roster=self._roster,
            events=events,
            clock=clock,
            redis_time=self._redis_time,
        )

    async def start(self) -> None:
        """Check the Redis server, then start all services.

        Raises:
            RedisError: when Redis cannot be reached, refuses us, or is too old; nothing is left running.
        """
        try:
            facts = await self._driver.run(read_redis_facts())
            require_supported(facts)
            self._redis_time.learn(facts.redis_now)
            check_clock(facts, self._clock, self._settings.max_clock_skew, self._events)
            await self._check_eviction(facts)
            await self._try_rights(self._board.names)
            for service in self._build(facts):
                await service.start()
                self._started.append(service)
        except BaseException:
            await self.undo_start()
            raise
        self._record.status = "active"
        self.ready = True
        self._heartbeater.beat_now()

    async def undo_start(self) -> None:
        """Stop the services that have started, and close connections. Idempotent."""
        self.ready = False
        await self._stop_services(self.time_left())
        await self.close()

    async def _check_eviction(self, facts: RedisFacts) -> None:
        """Warn once if Redis, or a node of the cluster, evicts tasks."""
        every: Sequence[RedisFacts | Exception] = [facts]
        if self._target.is_cluster:
            every = await self._driver.run_batch([read_redis_facts(place) for place in self._driver.places])
        for one in every:
            if isinstance(one, Exception):
                raise one
            if check_eviction(one, self._events):
                return

    async def _try_rights(self, queues: Sequence[str]) -> None:
        """Run a read-only script on the keys of each queue, to find missing rights (ACL) at the start."""
        now = self._clock.redis_now()
        plans = [list_expired(queue, limit=1, now=now) for queue in queues]
        for result in await self._driver.run_batch(plans):
            if isinstance(result, Exception):
                raise result

    async def add_queue(self, name: str, settings: Queue) -> None:
        """Serve one more queue; see `Server.add_queue`."""
        self._require_unserved(name)
        await self._try_rights([name])
        if not self.ready:
            raise ServerStateError(f"the {self.noun} was shut down meanwhile")
        # Another asyncio task may have added the same queue during the await.
        self._require_unserved(name)
        self._board.add(name, settings)
        self._on_queues_changed(name, "added")

    def set_queue(self, name: str, settings: Queue) -> None:
        """Replace the settings of a queue; see `Server.set_queue`."""
        self._require_served(name)
        self._board.change(name, settings)
        self._on_queues_changed(name, "changed")

    def remove_queue(self, name: str) -> None:
        """Stop serving a queue; see `Server.remove_queue`."""
        self._require_served(name)
        if len(self._board.names) == 1:
            raise ConfigurationError(
                f"{name!r} is the only queue of this {self.noun}, and it needs one: add another one first"
            )
        self._intake.requeue_waiting(name)
        self._board.remove(name)
        self._on_queues_changed(name, "removed")

    def _require_served(self, queue: str) -> None:
        if queue not in self._board.settings:
            raise ConfigurationError(
                f"this {self.noun} does not serve queue {queue!r}: name it in the queues of its "
                f"configuration, besides {', '.join(self._board.names)}, or add it while it runs"
            )

    def _require_unserved(self, queue: str) -> None:
        if queue in self._board.settings:
            raise ConfigurationError(f"this {self.noun} serves queue {queue!r} already")

    def _on_queues_changed(self, name: str, change: str) -> None:
        self._intake.serve()
        self._look.wake()
        self._forwarder.wake()
        self._processor.wake()
        self._events.emit(QueueChanged(self.server_id, name, change))

    def _make_sink(self, parts: Parts) -> Sink:
        """Make the sink, which receives the taken tasks: handler slots or pending `take()` calls."""
        raise NotImplementedError

    def _receivers(self) -> tuple[Service, ...]:
        """Return additional services, which are stopped after the processor."""
        return ()

    def _senders(self) -> tuple[Service, ...]:
        """Return additional services, which are stopped before the processor."""
        return ()

    def _build(self, facts: RedisFacts) -> tuple[Service, ...]:
        parts = self._parts = Parts(
            server_id=self.server_id,
            config=self._config,
            settings=self._settings,
            events=self._events,
            clock=self._clock,
            redis_time=self._redis_time,
            driver=self._driver,
            router=self._router,
            board=self._board,
            roster=self._roster,
            settles=self._settles,
            tally=self._make_tally(),
        )
        sink = self._make_sink(parts)
        self._watcher = self._make_watcher(self._on_key_changed, self._watch_lost)
        self._intake = Intake(parts, sink, self)
        self._intake.taking = self._taking
        self._settles.on_refused = partial(conclude_refused, parts)
        self._settles.batches.is_ordered = self._board.is_ordered
        self._rule = rule = OverdueRule(self._config, self._settings)
        started = self._redis_time.now().to_datetime()
        types = served_types(describe_routes(self._router))
        self._record = ServerRecordBuilder(
            self.server_id, self._config, self._board, self._settings, started, types
        )
        self._deadlines = Deadlines(parts, rule)
        watch = LoopWatch(self._deadlines, self._settings, self._clock, self._events, parts.roster.snapshot)
        self._record.blocked_seconds = watch.get_blocked_seconds
        self._record.team = self.team
        self._record.version = self.version
        self._heartbeater = Heartbeater(
            parts, self._beat_driver, self._record, rule, watch, owns_process=self._owns_process
        )
        self._processor = Processor(parts, sink, self._intake, self._watcher)
        self._progress_writer = ProgressWriter(parts)
        self._forwarder = self._make_for_each_node(
            Forwarder.name, lambda _, queues: Forwarder(parts, queues, self._watcher, self._changed_delayed)
        )
        self._recoverer = self._make_recoverer(facts.uptime_seconds)
        self._look = self._make_look()
        self._settles.on_put = self._processor.wake
        self._relay = OutboxRelay(parts)
        self._settles.on_endings = self._relay.take
        publisher = (Publisher(parts),) if self._config.event_stream_lengths else ()
        counters = self._make_counters(parts)
        self._lasting = len(publisher) + len(counters) + 3
        # Stopped in reverse order: senders before receivers. The syncer and the heartbeater outlive the
        # processor, so that late outcomes are still written and leases renewed while it drains. The publisher
        # and the counters stop last, because they report on the other services. The relay stops after the
        # syncer, because late outcomes have callbacks too. The queue look starts before the services that use
        # its readings, except the relay.
        return (
            *publisher,
            *counters,
            self._relay,
            self._heartbeater,
            Syncer(parts),
            self._progress_writer,
            self._deadlines,
            *self._receivers(),
            Subscriber(parts, self._subscribe),
            self._look,
            self._recoverer,
            self._make_for_each_node(Janitor.name, lambda _, queues: Janitor(parts, queues)),
            PeerWatch(parts, self._board.limited_queues),
            self._forwarder,
            self._processor,
            *self._senders(),
        )

    def _make_tally(self) -> Tally | None:
        if not self._config.statistics and not self._events.wants(WorkerMeasured):
            return None
        tally = Tally()
        tally.listen(self._events)
        return tally

    def _make_counters(self, parts: Parts) -> tuple[Service, ...]:
        """Make the services that publish counts of ended attempts, for metrics and statistics."""
        if parts.tally is None:
            return ()
        measurer = Measurer(parts, parts.tally, self._slot_count())
        statistician = Statistician(parts, parts.tally)
        wanted = (
            (self._events.wants(WorkerMeasured), measurer),
            (self._config.statistics, statistician),
        )
        return tuple(service for is_wanted, service in wanted if is_wanted)

    def _slot_count(self) -> int:
        """Return the number of attempts that may run at once; 0 for a consumer, which runs no handlers."""
        return 0

    def _make_for_each_node(self, name: str, make: MakeService) -> Service:
        """Make one service for all queues, or on a cluster one for each node."""
        parts = self._parts
        if not self._target.is_cluster:
            return make("", lambda: parts.queues)
        return NodeServices(name, self._events, NodeQueues(self._driver, lambda: parts.queues), make)

    def _make_recoverer(self, uptime_seconds: float) -> Service:
        parts = self._parts
        # A node that joins while the engine runs may replace a failed one: treat its Redis as just restarted.
        return self._make_for_each_node(
            Recoverer.name, lambda _, queues: Recoverer(parts, queues, 0.0 if self.ready else uptime_seconds)
        )

    def _make_look(self) -> Service:
        def wake(node: str) -> None:
            self._recoverer.wake_for(node)
            self._forwarder.wake_for(node)

        return self._make_for_each_node(
            QueueLook.name,
            lambda _, queues: QueueLook(
                self._parts, queues, self._watcher, on_look=wake, on_find=self._processor.wake
            ),
        )

    def _on_key_changed(self, key: str) -> None:
        """Tell the forwarder and the intake that Redis reported a change of this key (client tracking)."""
        self._note_delayed(key)
        if self._intake.changed(key):
            self._processor.wake()

    def _watch_lost(self, key: str) -> None:
        """Tell the forwarder and the intake that Redis may not have reported a change of this key."""
        self._note_delayed(key)
        self._intake.watch_lost(key)
        self._processor.wake()

    def _note_delayed(self, key: str) -> None:
        if is_delayed_key(key):
            self._changed_delayed.add(key)
            self._forwarder.wake()

    def stop_taking(self) -> None:
        """Take no more tasks; running ones continue.

        During the start, this keeps the processor from beginning.
        """
        self._taking = False
        if hasattr(self, "_intake"):
            self._intake.taking = False
        if not self.ready:
            return
        self._processor.wake()
        self._record.status = "stopped"
        self._heartbeater.beat_now()

    @property
    def _shutdown_timeout(self) -> float:
        return parse_seconds("shutdown_timeout", self._config.shutdown_timeout)

    @property
    def _cancel_timeout(self) -> float:
        return parse_seconds("cancel_timeout", self._config.cancel_timeout)

    async def close(self) -> None:
        """Close the engine's connections to Redis."""
        await self._driver.close()
        self._beat_driver.close()

    def time_left(self) -> TimeLeft:
        """Start the countdown of a shutdown; return a callable that returns the seconds left."""
        return TimeLeft(shutdown_limit(self._config) + self._settings.shutdown_margin)

    async def _stop_services(self, left: TimeLeft, *, keep: int = 0) -> None:
        await stop_services(self._started, left, keep=keep)
        if hasattr(self, "_watcher"):
            await self._watcher.close()

    def _make_watcher(self, on_change: Callable[[str], object], on_loss: Callable[[str], object]) -> Watcher:
        return Watcher(self._target, on_change, on_loss=on_loss, on_warning=self._warn)

    def _warn(self, warning: RedisWarning) -> None:
        """Report a problem of Redis once, even if several connections find it."""
        if warning.code not in self._warned:
            self._warned.add(warning.code)
            self._events.emit(warning)

    def _subscribe(self) -> Subscription:
        return Subscription(self._target, CANCEL_CHANNEL)

    def finish_from_thread(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the loop and block the calling thread, a handler's, until it has ended."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def report_progress(self, task: RunningTask, done: float, total: float | None, note: str) -> None:
        """Record a handler's progress, in any thread; it is written soon."""
        attempt = cast("Attempt", task)
        attempt.progress = ProgressReport(done, total, note, self._clock.monotonic())
        if attempt.progress_queued:
            return
        attempt.progress_queued = True
        # A handler's thread can outlive the loop; then its progress is not written any more.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._progress_writer.report, attempt)

    def report_trace(self, task: RunningTask, seconds: float, trace_id: str, span_id: str) -> None:
        """Emit an event with the trace id and span id of an attempt, which metrics store as an exemplar."""
        if self._events.wants(AttemptTraced):
            self._events.emit(
                AttemptTraced(task.queue, task.message.type, seconds, task.waited, trace_id, span_id)
            )

    async def write_result(self, task: RunningTask, data: bytes) -> None:
        """Store a handler's result; raise LeaseExpiredError if its attempt does not own the task any more."""
        check_result_size(data, self._config.max_result)
        attempt = self._roster.get(task.queue, task.id)
        if attempt is not task:
            raise LeaseExpiredError
        # The heartbeat's thread may renew the lease before this call reaches Redis.
        expect_renewals([attempt], self._redis_time.now().ceiling, self._settings.lease)
        if not await self._driver.run(
            write_result(task.queue, task.id, attempt.token, data, lease_score=attempt.lease_score),
        ):
            raise LeaseExpiredError
