"""Firing one tick: hooks, client middleware, the broker, and the history."""

from __future__ import annotations

import enum
import inspect
import math
from typing import TYPE_CHECKING, Any

from pyasynq._broker.enqueueing.chunks import compose_checked
from pyasynq._broker.enqueueing.enqueue_rules import build_task_info
from pyasynq._broker.registrar_async import AsyncRegistrar
from pyasynq._broker.schedules import fire, record_enqueue_event
from pyasynq._clock import Instant
from pyasynq._wire.constants import STATISTICS_SECONDS
from pyasynq._wire.messages import SchedulerEnqueueEvent
from pyasynq.errors import (
    PyasynqError,
    RedisError,
    RedisUnavailableError,
    SchedulePausedError,
    TickTakenError,
)
from pyasynq.events import HookFailed, RedisWarning, TickFailed, TickFired, TickPaused
from pyasynq.options import DEFAULT_MAX_PAYLOAD
from pyasynq.task import EnqueueStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from pyasynq._background.calls import CallsInProgress
    from pyasynq._background.redis_time import RedisTime
    from pyasynq._clock import Clock
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq._scheduler.entry import ScheduleEntry
    from pyasynq.client import CallNext, ClientMiddleware
    from pyasynq.config import SchedulerConfig
    from pyasynq.events import Events
    from pyasynq.task import Task, TaskInfo


class FiringOutcome(enum.Enum):
    """The outcome of firing a tick."""

    DONE = "done"
    FAILED = "failed"
    """The enqueue failed: fire the tick again."""
    UNREACHABLE = "unreachable"
    """The node of the queue could not be reached: fire the tick again."""


class Firing:
    """Fires ticks for one scheduler."""

    def __init__(
        self,
        config: SchedulerConfig,
        middleware: Sequence[ClientMiddleware],
        *,
        driver: AsyncDriver,
        clock: Clock,
        redis_time: RedisTime,
        events: Events,
        calls: CallsInProgress,
    ) -> None:
        self._config = config
        self._middleware = tuple(middleware)
        self._driver = driver
        self._clock = clock
        self._time = redis_time
        self._events = events
        self._calls = calls
        self._registrar = AsyncRegistrar(driver)
        self._failing: dict[str, datetime] = {}
        """Ticks reported as failed and being retried, by entry id."""

    async def fire(self, entry: ScheduleEntry, tick: datetime) -> FiringOutcome:
        """Fire a tick and record it in the entry's timetable."""
        task = entry.build_tick_task(tick)
        if self._failing.get(entry.id) != tick:
            await self._call("pre_enqueue", self._config.pre_enqueue, task)
        try:
            info = await self._send(entry, tick, task)
        except SchedulePausedError:
            entry.timetable.fired(tick)
            self._events.emit(TickPaused(entry.id, entry.spec, task.type, tick))
        except TickTakenError as taken:
            entry.timetable.fired(Instant(taken.last).to_datetime())
        except RedisError as error:
            await self._report_failure(entry, tick, task, error, retried=True)
            return (
                FiringOutcome.UNREACHABLE
                if isinstance(error, RedisUnavailableError)
                else FiringOutcome.FAILED
            )
        except Exception as error:  # noqa: BLE001 - an event; a refused task would be refused again
            entry.timetable.leave_out(tick)
            await self._report_failure(entry, tick, task, error, retried=False)
        else:
            entry.timetable.fired(tick)
            if info.enqueue_status in {EnqueueStatus.ENQUEUED, EnqueueStatus.REPLACED}:
                await self._report_success(entry, tick, info)
            else:
                await self._call("post_enqueue", self._config.post_enqueue, info, None)
        self._failing.pop(entry.id, None)
        return FiringOutcome.DONE

    async def close(self) -> None:
        """Stop registering queue names; to be called when the driver is closed."""
        await self._registrar.close()

    async def _send(self, entry: ScheduleEntry, tick: datetime, task: Task) -> TaskInfo:
        if not self._middleware:
            return await self._enqueue(entry, tick, task)
        with self._calls.note("the client middleware"):
            return await self._bind_middleware(entry, tick)(task)

    def _bind_middleware(self, entry: ScheduleEntry, tick: datetime) -> CallNext:
        """Return the function that passes a task through all middleware, and enqueues it."""

        async def innermost(task: Task) -> TaskInfo:
            return await self._enqueue(entry, tick, task)

        call_next: CallNext = innermost
        for middleware in reversed(self._middleware):
            call_next = _wrap(middleware, call_next)
        return call_next

    async def _enqueue(self, entry: ScheduleEntry, tick: datetime, task: Task) -> TaskInfo:
        now = self._time.now()
        composed = compose_checked(task, {}, now=now, max_payload=DEFAULT_MAX_PAYLOAD)
        seconds = int(tick.timestamp())
        plan = fire(composed, entry_id=entry.id, tick=seconds, now=self._clock.redis_now())
        fired = await self._registrar.run_one(plan, composed.settings.queue)
        if fired.is_paused:
            raise SchedulePausedError(entry.id, seconds)
        if fired.result is None:
            raise TickTakenError(entry.id, seconds, fired.last)
        if fired.result.error is not None:
            raise fired.result.error
        return build_task_info(composed, fired.result, now)

    async def _report_success(self, entry: ScheduleEntry, tick: datetime, info: TaskInfo) -> None:
        self._events.emit(TickFired(entry.id, entry.spec, info.type, info.queue, info.id, tick))
        await self._call("post_enqueue", self._config.post_enqueue, info, None)
        now = self._time.now().to_datetime()
        following = entry.timetable.next
        ttl = STATISTICS_SECONDS
        if following is not None:
            # The history of a yearly task must last from one enqueue to the next.
            ttl += max(0, math.ceil((following - now).total_seconds()))
        event = SchedulerEnqueueEvent(task_id=info.id, enqueue_time=now)
        recording = self._driver.start_task(self._record(entry, event, ttl))
        if not self._driver.target.is_cluster:
            # In a cluster the history may be on an unreachable node, and the next tick must not wait for it.
            await self._driver.wait_for(recording)

    async def _record(self, entry: ScheduleEntry, event: SchedulerEnqueueEvent, ttl: int) -> None:
        try:
            await self._driver.run(record_enqueue_event(entry.id, event, ttl=ttl))
        except PyasynqError as error:
            text = f"the enqueue of task {event.task_id} is missing in the history of its schedule: {error}"
            self._events.emit(RedisWarning("schedule-history", text))

    async def _report_failure(
        self, entry: ScheduleEntry, tick: datetime, task: Task, error: Exception, *, retried: bool
    ) -> None:
        if self._failing.get(entry.id) == tick:
            return
        if retried:
            self._failing[entry.id] = tick
        self._events.emit(TickFailed(entry.id, entry.spec, task.type, tick, error, retried))
        await self._call("post_enqueue", self._config.post_enqueue, None, error)
        await self._call("error_handler", self._config.error_handler, task, error)

    async def _call(self, name: str, hook: Callable[..., Any] | None, *args: object) -> None:
        if hook is None:
            return
        try:
            with self._calls.note(f"the hook {name}"):
                answer = hook(*args)
                if inspect.isawaitable(answer):
                    await answer
        except Exception as error:  # noqa: BLE001 - reported; a hook's error changes nothing
            self._events.emit(HookFailed(name, error))


def _wrap(middleware: ClientMiddleware, call_next: CallNext) -> CallNext:
    return lambda task: middleware(task, call_next)
