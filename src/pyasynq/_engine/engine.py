"""The engine of one running server, which calls handlers."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

from pyasynq._background.code_places import THREAD_PLACE, find_thread_place
from pyasynq._background.time_limits import report_place
from pyasynq._engine.core import CLIENT_NAME, EngineCore
from pyasynq._engine.executor.order import call_in_child
from pyasynq._engine.handlers.group_routes import GroupRoutes
from pyasynq._engine.handlers.routes import HasHooks, describe_routes
from pyasynq._engine.handlers.threads import HandlerThreads, current_threads
from pyasynq._engine.hook_runner import HookRunner
from pyasynq._engine.lease.abandoned import AbandonedLeases
from pyasynq._engine.lease.lease_errors import ServerStopping
from pyasynq._engine.run.attempt import Phase
from pyasynq._engine.run.outcome import REQUEUE
from pyasynq._engine.run.runner import Runner
from pyasynq._engine.services.health_check import HealthCheck
from pyasynq._engine.services.type_publisher import TypePublisher
from pyasynq._engine.take.sink import Slots
from pyasynq._exit_codes import EXIT_CLEAN, EXIT_OVERDUE, EXIT_UNFINISHED
from pyasynq._redis.driver import BlockingDriver
from pyasynq.events import AttemptAbandoned, Outcome, ShutdownHung, ShutdownWaiting, TasksPutBack, WorkerDied

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from pyasynq._background.service import Service
    from pyasynq._background.time_limits import TimeLeft
    from pyasynq._clock import Clock
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.executor.order import Program
    from pyasynq._engine.executor.pool import Children
    from pyasynq._engine.handlers.routes import Router
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.services.aggregator import Aggregator
    from pyasynq._engine.settings import EngineSettings
    from pyasynq._engine.supervisor.death_notes import DeathEvent
    from pyasynq._redis.url import RedisTarget
    from pyasynq.config import ServerConfig
    from pyasynq.events import Events
    from pyasynq.info import ServerAction
    from pyasynq.task import Task


class Engine(EngineCore):
    """One run of a server, from start to shutdown. Used by the event loop only.

    Attributes:
        task_state: the value that the lifespan yielded.
        finished: future that is done when the server should shut itself down: burst, max_tasks, or stuck
            handlers.
        put_back: number of unfinished tasks that went back to their queues at shutdown.
        has_children: whether handlers with `executor="process"` run in child processes, or in this one.
    """

    has_children = True

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
        super().__init__(target, router, config, settings, clock=clock, events=events)
        self.task_state = task_state
        self._owns_process = owns_process
        self.finished: asyncio.Future[None] = self.loop.create_future()
        self.on_request: Callable[[ServerAction], object] | None = None
        self.stuck = False
        self.put_back = 0
        self._threads = HandlerThreads()
        self._children: Children | None = None
        self._aggregator: Aggregator | None = None
        self._closing_children: asyncio.Task[None] | None = None
        self._hooks: HookRunner | None = None
        if isinstance(router, HasHooks) and router.hooks.watch_attempts:
            self._hooks = HookRunner(router.hooks, events)

    def _report_killed(self, attempt: Attempt, pid: int) -> None:
        if isinstance(attempt.cause, ServerStopping):
            self._events.emit(ShutdownHung(_describe(attempt), f"a place in the child process {pid}"))

    def _make_sink(self, parts: Parts) -> Slots:
        context = contextvars.copy_context()
        context.run(current_threads.set, self._threads)
        if self.has_children:
            context.run(call_in_child.set, self._call_in_child)
        self._runner = Runner(parts, self._threads, context)
        self._slots = Slots(parts, self._runner)
        return self._slots

    def _call_in_child(self, program: Program, task: Task) -> Coroutine[Any, Any, object]:
        if self._children is None:
            # Most workers have no such handler; the declaration of one has loaded the module.
            from pyasynq._engine.executor.pool import Children  # noqa: PLC0415

            self._children = Children(self._config, self._settings, self._clock, self._redis_time)
            self._children.on_killed = self._report_killed
        return self._children.call(program, task)

    def _slot_count(self) -> int:
        return self._config.concurrency

    def _receivers(self) -> tuple[Service, ...]:
        self._deadlines.on_stuck = self._give_up
        self._slots.on_end = self._processor.wake
        self._runner.on_unknown = self._intake.give_head_start
        self._processor.on_idle = self._finish
        self._heartbeater.on_request = self.on_request
        types = describe_routes(self._router)
        publisher = (TypePublisher(self._parts, types),) if types else ()
        return (*publisher, HealthCheck(self._parts)) if self._config.health_check is not None else publisher

    def _senders(self) -> tuple[Service, ...]:
        group_routes = GroupRoutes(self._config, self._router)
        if not group_routes:
            return ()
        from pyasynq._engine.services.aggregator import Aggregator  # noqa: PLC0415 - few servers have groups

        self._aggregator = Aggregator(self._parts, group_routes, self._threads)
        self._aggregator.on_stuck = self._give_up
        return (self._aggregator,)

    def call_hooks(self, event: DeathEvent) -> None:
        """Count a task that the supervisor has recovered from a dead worker, and call the hooks for it."""
        if self._parts.tally is not None and isinstance(event, WorkerDied):
            self._parts.tally.note_death(event)
        if self._hooks is not None:
            self._hooks.take(event)

    def stop_taking(self) -> None:
        """Take no more tasks, and aggregate no more groups; running ones continue."""
        super().stop_taking()
        if self._aggregator is not None:
            self._aggregator.taking = False

    def close_when_idle(self) -> None:
        """Take no more tasks, and set `finished` when no task runs any more."""
        self.stop_taking()
        if self.ready:
            self._processor.close_when_idle()

    def running_types(self) -> list[str]:
        """Return the type of each running task."""
        return [attempt.message.type for attempt in self._runner.running] if hasattr(self, "_runner") else []

    def outcomes(self) -> Mapping[Outcome, int]:
        """Return the number of ended attempts by outcome."""
        return self._parts.outcomes

    @property
    def unwritten(self) -> int:
        """Number of outcomes that Redis has not confirmed."""
        return self._settles.outstanding

    @property
    def exit_code(self) -> int:
        """The exit code of a process that ends after this shutdown."""
        if self.stuck:
            return EXIT_OVERDUE
        return EXIT_UNFINISHED if self.put_back else EXIT_CLEAN

    def end_process(self, code: int) -> None:
        """Put running tasks back, and end the process; do nothing before the services have started.

        Called from a thread: the event loop may be blocked.
        """
        if self._started:
            self._heartbeater.end_process(code, self._roster.snapshot())

    async def drain(self, left: TimeLeft) -> None:
        """Wait for attempts, cancel the slow ones, and stop services; `left` returns the seconds that remain.

        The heartbeat, the syncer and other services in `_lasting` go on: threads may still run handlers.
        """
        self.stop_taking()
        self.ready = False
        if self._runner.running:
            self._events.emit(ShutdownWaiting(len(self._runner.running), self._shutdown_timeout))
        aggregating = asyncio.ensure_future(self._finish_aggregations())
        if not await self._runner.running.wait_until_idle(self._shutdown_timeout):
            self._settles.hold_requeues()
            await self._cancel_running(left)
            self._settles.release_requeues()
        await aggregating
        if self._children is not None:
            self._closing_children = asyncio.ensure_future(self._children.close())
        # The heartbeat renews the leases of threads that keep running, and the syncer writes their outcomes.
        await self._stop_services(left, keep=self._lasting)

    async def _finish_aggregations(self) -> None:
        if self._aggregator is not None:
            await self._aggregator.wait_until_idle(self._shutdown_timeout)

    async def _cancel_running(self, left: TimeLeft) -> None:
        now = self._clock.monotonic()
        for attempt in list(self._runner.running):
            if attempt.cancel(ServerStopping(), monotonic=now):
                self.put_back += 1
            elif attempt.phase is Phase.SETTLING and attempt.task is not None:
                # The attempt's outcome is decided; only its error handler still runs.
                attempt.task.cancel()
        await self._runner.running.wait_until_idle(self._cancel_timeout)
        if self._children is not None:
            await asyncio.wait({asyncio.ensure_future(self._children.end_calls())}, timeout=left())

    async def give_back(self, left: TimeLeft) -> bool:
        """Put back the tasks whose handlers still run, and stop all services.

        Return whether any handler still runs.

        The process must end right after this call. A server inside another program cannot end the process: it
        abandons these tasks. They are recovered when their leases lapse, after the handlers or the program
        have ended. `left` returns the seconds that remain.
        """
        # The roster is in the order in which tasks were taken, so they go back in that order.
        left_over = [one for one in self._roster if one in self._runner.running]
        running = [one for one in left_over if one.phase is not Phase.SETTLING]
        for attempt in left_over:
            self._events.emit(_hung_handler(attempt))
        if self._owns_process:
            self._put_back(running)
        else:
            self._abandon(running)
        await asyncio.wait({asyncio.ensure_future(self._processor.leave())}, timeout=left())
        await self._stop_services(left)
        await self._wait_for_children(left)
        if self._hooks is not None:
            await self._hooks.close(left)
        if self.put_back:
            self._events.emit(TasksPutBack(self.put_back))
        return bool(running)

    async def _wait_for_children(self, left: TimeLeft) -> None:
        closing = self._closing_children
        if closing is None:
            return
        # Each child is killed at `cancel_timeout`; one blocked in the kernel ends by itself later.
        await asyncio.wait({closing}, timeout=left())
        if not closing.done():
            self._events.emit(ShutdownHung("the end of child processes", report_place(closing)))

    def _put_back(self, running: list[Attempt]) -> None:
        now = self._clock.monotonic()
        for attempt in running:
            if self.stuck and self._rule.is_overdue(attempt, now):
                # The process ends because of this attempt: another server recovers its task, and counts a
                # crash.
                continue
            attempt.phase = Phase.SETTLING
            self._settles.put(attempt, REQUEUE)
            self._parts.outcomes[Outcome.REQUEUED] += 1
            # Attempts that were told to stop were counted at that time.
            self.put_back += not isinstance(attempt.cause, ServerStopping)

    def _abandon(self, running: list[Attempt]) -> None:
        for attempt in running:
            attempt.phase = Phase.ABANDONED
            self._events.emit(AttemptAbandoned(attempt.queue, attempt.id, attempt.message.type))
        if running:
            driver = BlockingDriver(self._target, client_name=CLIENT_NAME, clock=self._clock)
            AbandonedLeases(running, self._parts, self._rule, driver).keep()

    async def close(self) -> None:
        """Close threads and connections."""
        self._threads.close()
        await super().close()

    def _finish(self) -> None:
        if not self.finished.done():
            self.finished.set_result(None)

    def _give_up(self) -> None:
        # An attempt that cannot be stopped holds its slot for ever; only a new process gets it back.
        self.stuck = True
        self._finish()


def _hung_handler(attempt: Attempt) -> ShutdownHung:
    place = THREAD_PLACE
    if attempt.threads > 0:
        place = find_thread_place(attempt.thread_id)
    elif attempt.task is not None:
        place = report_place(attempt.task)
    return ShutdownHung(_describe(attempt), place)


def _describe(attempt: Attempt) -> str:
    return f"the handler of task {attempt.id} ({attempt.message.type})"
