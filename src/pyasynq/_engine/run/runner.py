"""Runs attempts: open the context, call the handler, see what came of it, decide, hand it to be settled."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import sys
from functools import partial
from inspect import isawaitable
from types import CoroutineType
from typing import TYPE_CHECKING

from pyasynq._engine.executor.pool import current_children
from pyasynq._engine.handlers.routes import received_task, result_bytes
from pyasynq._engine.handlers.threads import current_threads
from pyasynq._engine.run.attempt import RUNNING
from pyasynq._engine.run.begin import may_begin, token_ending
from pyasynq._engine.run.conclusion import broken_off, conclude
from pyasynq._engine.run.outcome import (
    NO_RESULT,
    Ending,
    Failed,
    Succeeded,
    Unhandled,
    wish_of,
)
from pyasynq._engine.run.slot_table import RunningAttempts
from pyasynq._engine.settle.released import drop_frames
from pyasynq.context import current_task
from pyasynq.control import Cancel, Snooze, control_of
from pyasynq.errors import HandlerNotFoundError, LeaseExpiredError, ResultTooLargeError
from pyasynq.events import LeaseLost, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.executor.pool import Children
    from pyasynq._engine.handlers.routes import Route
    from pyasynq._engine.handlers.threads import HandlerThreads
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq.task import Task


_log = logging.getLogger("pyasynq")


class Runner:
    """Starts attempts and knows how many slots they hold. At most one asyncio task for each attempt."""

    def __init__(self, parts: Parts, threads: HandlerThreads, children: Children | None = None) -> None:
        self._parts = parts
        self._router = parts.router
        self._config = parts.config
        self._keeps_frames = parts.settings.keep_frames
        self._events = parts.events
        self._clock = parts.clock
        self._redis_time = parts.redis_time
        self._threads = threads
        self._begin_call = self._call_confirmed if token_ending(parts) else self._call
        self._begin_task = _task_maker(asyncio.get_running_loop())
        self._context = contextvars.copy_context()
        """What the context of every attempt begins as."""
        self._context.run(current_threads.set, threads)
        if children is not None:
            self._context.run(current_children.set, children)
        self.running = RunningAttempts()
        """Their handlers, or error handlers, have not ended."""
        self.on_end: Callable[[Attempt], None] = lambda _attempt: None
        """Called with an attempt that has left its slot."""
        self.on_unknown: Callable[[str], None] = lambda _queue: None
        """Called with the queue of a task that was returned to it, because there is no handler here."""

    def start(self, attempt: Attempt) -> None:
        """Run an attempt in an asyncio task of its own."""
        self.running.add(attempt)
        task = self._begin_task(self._run(attempt), name=attempt.id, context=self._context.copy())
        # An eager task has taken its first step by now, and often its last.
        if not task.done():
            attempt.task = task
            if attempt.cause is not None and attempt.phase is RUNNING:
                task.cancel()

    async def _run(self, attempt: Attempt) -> None:
        ending: Ending = NO_RESULT
        raised: BaseException | None = None
        try:
            now = self._clock.monotonic()
            attempt.begin(monotonic=now, unix_time=self._redis_time.timestamp(now))
            current_task.set(attempt)
            task = received_task(attempt.message)
            route: Route | None = None
            if attempt.cause is None and now < attempt.lease_until and now < attempt.deadline:
                try:
                    route = self._router.route(task.type)
                    result = self._begin_call(attempt, task, route)
                    # As `awaited` does, in this coroutine.
                    while result is not None and (type(result) is CoroutineType or isawaitable(result)):
                        result = await result
                    if result is not None:
                        ending = self._ending(attempt, result)
                except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its own task's failure
                    raised = error
                    ending = self._failed(task, error)
            else:
                self._refuse(attempt)
            if attempt.cause is not None:
                ending = broken_off(attempt)
            # Otherwise shutdown has put the task back already, or nobody is left to write anything.
            if attempt.phase is RUNNING:
                if type(ending) is Unhandled:
                    self.on_unknown(attempt.queue)
                conclude(self._parts, attempt, task, route, ending)
            if type(ending) is Failed and self._config.error_handler is not None:
                await self._tell_error_handler(task, ending.error)
        finally:
            # attempt -> task -> its context -> attempt would live until the garbage collector runs, and so
            # would an error, whose traceback holds this frame.
            attempt.task = None
            ending = NO_RESULT
            self.running.remove(attempt)
            self.on_end(attempt)
            if raised is not None and not self._keeps_frames:
                drop_frames(raised)
            raised = None

    def _call(self, attempt: Attempt, task: Task, route: Route | None) -> object:
        """Call the handler. What it gives back, now or when it is awaited, is the result."""
        if route is None:
            raise HandlerNotFoundError(task.type, self._router.types())
        if self._events.wants(TaskStarted):
            self._events.emit(TaskStarted(attempt.queue, attempt.id, task.type, attempt.message.retried))
        return self._threads.call(route.call, task) if route.plain else route.call(task)

    async def _call_confirmed(self, attempt: Attempt, task: Task, route: Route | None) -> object:
        """Call the handler once Redis knows that it begins; return None without a call if it must not."""
        if await may_begin(self._parts, attempt):
            return self._call(attempt, task, route)
        return None

    def _refuse(self, attempt: Attempt) -> None:
        """Say why an attempt whose time is over before it has begun is broken off."""
        if attempt.cause is not None:
            return
        if attempt.has_lease(attempt.started):
            attempt.cause = attempt.timeout_error()
        else:
            # This process stood still since it took the task; by now another worker may run it.
            attempt.cause = LeaseExpiredError()
            self._events.emit(LeaseLost(attempt.queue, attempt.id))

    def _ending(self, attempt: Attempt, result: object) -> Ending:
        wish = control_of(result)
        if wish is not None:
            return Failed(wish)
        data = result_bytes(result, attempt.message.type)
        limit = self._config.max_result
        # Without retention nothing is sent of it.
        if data is not None and len(data) > limit and attempt.message.retention > 0:
            return Failed(ResultTooLargeError(len(data), limit))
        return Succeeded(data)

    def _failed(self, task: Task, error: BaseException) -> Ending:
        # By its type: an error of the user's may raise when it is asked for its class.
        unknown = type(error) is HandlerNotFoundError and error.task_type == task.type
        if unknown and self._config.on_unknown == "return":
            return Unhandled(error)
        return Failed(error)

    async def _tell_error_handler(self, task: Task, error: BaseException) -> None:
        handler = self._config.error_handler
        # A coroutine that is being closed by the interpreter may not wait for anything.
        if handler is None or type(error) is GeneratorExit:
            return
        try:
            if isinstance(wish_of(error), Cancel | Snooze):
                return
            told = handler(task, error)
            if isawaitable(told):
                await told
        except BaseException:  # noqa: BLE001 - reported; the outcome is decided and does not change
            _log.exception("the error handler raised for a task of type %r", task.type)


def _task_maker(loop: asyncio.AbstractEventLoop) -> Callable[..., asyncio.Task[None]]:
    """Return what makes asyncio tasks: eager ones, where Python has them and the loop asks for no others.

    Most handlers end at their first step, or wait soon: eager tasks take that step without the loop.
    """
    if loop.get_task_factory() is not None:
        return loop.create_task
    # uvloop's own `create_task` sets the name after one was made up.
    if sys.version_info >= (3, 12):
        return partial(asyncio.Task, loop=loop, eager_start=True)
    return partial(asyncio.Task, loop=loop)
