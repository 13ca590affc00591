"""Runs attempts: open the context, call the handler, see what came of it, decide, hand it to be settled."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING

from pyasynq._server.attempt import Phase
from pyasynq._server.outcome import (
    Done,
    Ending,
    Failed,
    Gone,
    PutBack,
    Succeeded,
    Unhandled,
    decide,
    outcome_of,
)
from pyasynq._server.routes import received_task
from pyasynq._server.rules import AttemptRules
from pyasynq._server.threads import current_threads
from pyasynq.context import current_task
from pyasynq.errors import HandlerNotFoundError, LeaseExpiredError, TaskTimeoutError
from pyasynq.events import TaskFinished, TaskStarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._server.attempt import Attempt
    from pyasynq._server.parts import Parts
    from pyasynq._server.routes import Route
    from pyasynq._server.threads import HandlerThreads
    from pyasynq.task import Task

_log = logging.getLogger("pyasynq")


class ServerStopping(Exception):  # noqa: N818 - a cause, not an error
    """Why shutdown cancels an attempt."""


class Runner:
    """Starts attempts and knows how many slots they hold. At most one asyncio task for each attempt."""

    def __init__(self, parts: Parts, threads: HandlerThreads) -> None:
        self._router = parts.router
        self._config = parts.config
        self._settings = parts.settings
        self._settles = parts.settles
        self._events = parts.events
        self._clock = parts.clock
        self._redis_time = parts.redis_time
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self.running: dict[Attempt, None] = {}
        """Attempts that hold a slot, oldest first: their handlers, or error handlers, have not ended."""
        self.on_end: Callable[[], None] = lambda: None
        self._idle_waiters: list[asyncio.Future[None]] = []

    async def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no attempt holds a slot, at most so many seconds; return whether that is so."""
        if not self.running:
            return True
        idle = self._loop.create_future()
        self._idle_waiters.append(idle)
        await asyncio.wait({idle}, timeout=seconds)
        self._idle_waiters.remove(idle)
        return not self.running

    def start(self, attempt: Attempt) -> None:
        """Run an attempt in an asyncio task of its own."""
        self.running[attempt] = None
        attempt.task = self._loop.create_task(self._run(attempt))

    async def _run(self, attempt: Attempt) -> None:
        try:
            await self._perform(attempt)
        finally:
            # attempt -> task -> its context -> attempt would live until the garbage collector runs.
            attempt.task = None
            self.running.pop(attempt, None)
            self.on_end()
            if not self.running:
                for waiter in self._idle_waiters:
                    if not waiter.done():
                        waiter.set_result(None)

    async def _perform(self, attempt: Attempt) -> None:
        attempt.begin(monotonic=self._clock.monotonic(), unix_time=self._redis_time.now().timestamp)
        current_task.set(attempt)
        current_threads.set(self._threads)
        task = received_task(attempt.message)
        route = self._router.route(task.type)
        ending: Ending
        try:
            ending = await self._call(attempt, task, route)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its own task's failure
            ending = self._failed(task, error)
        try:
            if attempt.cause is not None:
                ending = _broken_off(attempt)
            self._conclude(attempt, task, route, ending)
            if type(ending) is Failed and self._config.error_handler is not None:
                await self._tell_error_handler(task, ending.error)
        finally:
            # The error's traceback holds this frame: another reference cycle.
            del ending

    async def _call(self, attempt: Attempt, task: Task, route: Route | None) -> Ending:
        if attempt.cause is None and attempt.deadline <= attempt.started:
            attempt.cause = TaskTimeoutError()
        if attempt.cause is not None:
            return PutBack()
        if route is None:
            raise HandlerNotFoundError(task.type)
        if self._events.wants(TaskStarted):
            self._events.emit(TaskStarted(attempt.queue, attempt.id, task.type, attempt.message.retried))
        if route.plain:
            result = await self._threads.call(route.call, task)
        else:
            result = route.call(task)
        # A plain callable may also return an awaitable, as functools.partial of a coroutine function does.
        if inspect.isawaitable(result):
            result = await result
        return Succeeded(_result_bytes(result, task.type))

    def _failed(self, task: Task, error: BaseException) -> Ending:
        unknown = isinstance(error, HandlerNotFoundError) and error.task_type == task.type
        if unknown and self._config.on_unknown == "return":
            return Unhandled(error)
        return Failed(error)

    def _conclude(self, attempt: Attempt, task: Task, route: Route | None, ending: Ending) -> None:
        if attempt.phase is not Phase.RUNNING:
            # Shutdown has put the task back already, or nobody is left to write anything.
            return
        rules = AttemptRules(self._config, route, task)
        decision = decide(
            attempt.message,
            ending,
            rules,
            now=self._redis_time.now(),
            unknown_pause=self._settings.unknown_pause,
        )
        attempt.phase = Phase.SETTLING
        error = ending.error if isinstance(ending, Failed | Unhandled) else None
        self._settles.put(attempt, decision, None if type(decision) is Done else error)
        if self._events.wants(TaskFinished):
            self._events.emit(
                TaskFinished(
                    attempt.queue,
                    attempt.id,
                    task.type,
                    attempt.message.retried,
                    attempt.message.retry,
                    outcome_of(ending, decision),
                    self._clock.monotonic() - attempt.started,
                    error,
                ),
            )

    async def _tell_error_handler(self, task: Task, error: BaseException) -> None:
        handler = self._config.error_handler
        # A coroutine that is being closed by the interpreter may not wait for anything.
        if handler is None or isinstance(error, GeneratorExit):
            return
        try:
            told = handler(task, error)
            if inspect.isawaitable(told):
                await told
        except BaseException:  # noqa: BLE001 - reported; the outcome is decided and does not change
            _log.exception("the error handler raised for a task of type %r", task.type)


def _broken_off(attempt: Attempt) -> Ending:
    """Return the ending that the cause of a cancellation means, whatever the handler did about it."""
    cause = attempt.cause
    if isinstance(cause, LeaseExpiredError):
        # A lease that only lapsed can be renewed as long as nobody took the task; then it is put back.
        return Gone() if attempt.lost else PutBack()
    if cause is None or isinstance(cause, ServerStopping):
        return PutBack()
    return Failed(cause)


def _result_bytes(result: object, task_type: str) -> bytes | None:
    if result is None or isinstance(result, bytes):
        return result
    if isinstance(result, str):
        return result.encode("utf-8", "replace")
    _log.error(
        "the handler of %r returned %s, which is no result (None, bytes, text): the task is done without one",
        task_type,
        type(result).__name__,
    )
    return None
