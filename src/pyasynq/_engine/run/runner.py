"""One run of one task: begin, call, ending, decide, record, settle, emit."""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from inspect import isawaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Final

from pyasynq._broker.leases import confirm_begin
from pyasynq._engine.engine_parts import token_ending
from pyasynq._engine.handlers.routes import AttemptRules, received_task
from pyasynq._engine.lease.roster import RunningAttempts
from pyasynq._engine.run.attempt import RUNNING, SETTLING
from pyasynq._engine.run.outcome import (
    DONE,
    NO_RESULT,
    Decision,
    Failed,
    Unfinished,
    decide,
    ending_of_cause,
    ending_of_result,
    error_of,
    leaves_nothing,
    wish_of,
)
from pyasynq._engine.run.record import NOTHING, drop_frames, make_record, unchanged
from pyasynq._visible_text import visible
from pyasynq.config import ServerConfig
from pyasynq.context import current_task
from pyasynq.control import Cancel, Snooze
from pyasynq.errors import (
    HandlerNotFoundError,
    LeaseExpiredError,
    RedisError,
    SettleError,
)
from pyasynq.events import LeaseLost, Outcome, TaskFinished, TaskPoisoned, TaskRecovered, TaskStarted
from pyasynq.task import Task

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Callable

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.handlers.routes import Route
    from pyasynq._engine.handlers.threads import HandlerThreads
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.run.outcome import Ending
    from pyasynq._engine.run.record import Record

_log = logging.getLogger("pyasynq")

_DEFAULT_RULES: Final = AttemptRules(ServerConfig(), None, Task("unknown"))
"""Rules of an attempt whose own rules, or error, cannot be used."""


class Runner:
    """Starts attempts, and runs each in one asyncio task.

    A run has seven steps. `_run` has the first three: begin, call, ending. `conclude` has the others, which
    consumers share: decide, record, settle, emit. The event loop alone writes the fields, besides the two
    call-backs, which the engine sets before the first start.
    """

    def __init__(self, parts: Parts, threads: HandlerThreads, context: contextvars.Context) -> None:
        self._parts = parts
        self._router = parts.router
        self._config = parts.config
        self._events = parts.events
        self._clock = parts.clock
        self._redis_time = parts.redis_time
        self._threads = threads
        self._confirms = bool(token_ending(parts))
        """Whether some handlers begin only after Redis knows of it."""
        self._begin_task = _task_maker(asyncio.get_running_loop())
        self._context = context
        """What the context of every attempt begins as."""
        self.running = RunningAttempts()
        """Attempts whose handlers, or error handlers, have not ended."""
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

    def _call(self, attempt: Attempt, task: Task, route: Route | None) -> object:
        """Call the handler. What it gives back, now or when it is awaited, is the result."""
        if route is None:
            raise HandlerNotFoundError(task.type, self._router.types())
        if self._events.wants(TaskStarted):
            self._events.emit(TaskStarted(attempt.queue, attempt.id, task.type, attempt.message.retried))
        return self._threads.call(route.call, task) if route.plain else route.call(task)

    async def _confirm_begin(self, attempt: Attempt) -> bool:
        """Return whether the handler may begin; otherwise the attempt's cause says why not."""
        if not self._parts.confirms_begin(attempt.message.type):
            return True
        try:
            begun = await self._parts.driver.run(confirm_begin(attempt.queue, attempt.id, attempt.token))
        except RedisError:
            # It may have been noted all the same; the task goes back, and is not run by this attempt.
            begun = None
        if begun:
            return True
        attempt.lost = begun is False
        self._cancel_for_lease(attempt)
        return False

    def _refuse(self, attempt: Attempt) -> None:
        """Give an attempt whose time was over before it could begin the cause of that."""
        if attempt.has_lease(attempt.started) and attempt.cause is None:
            attempt.cause = attempt.timeout_error()
        # Without a lease this process stood still since it took the task; another worker may run it by now.
        self._cancel_for_lease(attempt)

    def _cancel_for_lease(self, attempt: Attempt) -> None:
        if attempt.cause is None:
            attempt.cause = LeaseExpiredError()
            self._events.emit(LeaseLost(attempt.queue, attempt.id))

    def _ending_of_error(self, error: BaseException, task: Task) -> Ending:
        # By its type: an error of the user's may raise when it is asked for its class.
        is_unknown = type(error) is HandlerNotFoundError and error.task_type == task.type
        return Failed(error, is_unhandled=is_unknown and self._config.on_unknown == "return")

    async def _tell_of_failure(self, attempt: Attempt, task: Task, ending: Failed) -> None:
        """Call the user's error handler, or report that this server has none for the task."""
        error, handler = ending.error, self._config.error_handler
        if ending.is_unhandled:
            self.on_unknown(attempt.queue)
            return
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

    async def _run(self, attempt: Attempt) -> None:
        """Begin, call the handler and take the ending; then conclude, and tell the error handler."""
        ending: Ending = NO_RESULT
        raised: BaseException | None = None
        route: Route | None = None
        try:
            now = self._clock.monotonic()
            attempt.begin(monotonic=now, unix_time=self._redis_time.timestamp(now))
            current_task.set(attempt)
            task = received_task(attempt.message)
            if attempt.cause is None and now < attempt.lease_until and now < attempt.deadline:
                try:
                    route = self._router.route(task.type)
                    if not self._confirms or await self._confirm_begin(attempt):
                        result = self._call(attempt, task, route)
                        # As `awaited` does, in this coroutine. `isawaitable` alone costs 2 % of a drain.
                        while result is not None and (type(result) is CoroutineType or isawaitable(result)):
                            result = await result
                        if result is not None:
                            ending = ending_of_result(result, attempt.message, self._config.max_result)
                except BaseException as error:  # noqa: BLE001 - what a handler raises is its task's failure
                    raised = error
                    ending = self._ending_of_error(error, task)
            else:
                self._refuse(attempt)
            if attempt.cause is not None:
                ending = ending_of_cause(attempt)
            # Otherwise shutdown has put the task back already, or nobody is left to write anything.
            if attempt.phase is RUNNING:
                conclude(self._parts, attempt, task, route, ending)
            if type(ending) is Failed:
                await self._tell_of_failure(attempt, task, ending)
        finally:
            # attempt -> task -> its context -> attempt would live until the garbage collector runs, and so
            # would an error, whose traceback holds this frame.
            attempt.task = None
            ending = NO_RESULT
            self.running.remove(attempt)
            self.on_end(attempt)
            if raised is not None and not self._parts.settings.keep_frames:
                drop_frames(raised)
            raised = None


def conclude(parts: Parts, attempt: Attempt, task: Task, route: Route | None, ending: Ending) -> None:
    """Decide, record, settle and emit the ending of an attempt, which is being settled from now on.

    Nothing is raised: an ending that cannot be dealt with makes an ordinary failure of the attempt.
    """
    told = ending
    decision, record = DONE, NOTHING
    if not leaves_nothing(attempt.message, ending):
        try:
            decision, record = _decide(parts, attempt, ending, AttemptRules(parts.config, route, task))
        except BaseException as error:  # noqa: BLE001 - reported; unsettled, the task would be active for ever
            told = Failed(_report_undecided(attempt, ending, error))
            decision, record = _decide_plainly(parts, attempt, told)
    attempt.phase = SETTLING
    parts.settles.put(attempt, decision, record)
    parts.outcomes[decision.outcome] += 1
    wants = parts.events.wants_routine if decision is DONE else parts.events.wants
    if wants(TaskFinished):
        _emit(parts, attempt, told, decision)
    if type(ending) is Unfinished and ending.crash is not None:
        _emit_crash(parts, attempt, decision)


def conclude_refused(parts: Parts, attempt: Attempt, error: SettleError) -> tuple[Decision, Record]:
    """Return what is written of an attempt whose success Redis refuses for good, and tell that it failed."""
    ending = Failed(error)
    try:
        task = received_task(attempt.message)
        rules = AttemptRules(parts.config, parts.router.route(task.type), task)
        decision, record = _decide(parts, attempt, ending, rules)
    except BaseException:  # noqa: BLE001 - as in `conclude`
        decision, record = _decide_plainly(parts, attempt, ending)
    parts.outcomes[Outcome.SUCCEEDED] -= 1
    parts.outcomes[decision.outcome] += 1
    if parts.events.wants(TaskFinished):
        _emit(parts, attempt, ending, decision)
    return decision, record


def _decide(parts: Parts, attempt: Attempt, ending: Ending, rules: AttemptRules) -> tuple[Decision, Record]:
    is_crash = type(ending) is Unfinished and ending.crash is not None
    decision = decide(
        attempt.message,
        ending,
        rules,
        now=parts.redis_time.now(),
        unknown_pause=parts.settings.unknown_pause,
        is_poison=is_crash and attempt.crashes + 1 >= parts.crash_limit(attempt.message.type),
    )
    return decision, make_record(attempt, decision, ending, parts.settings)


def _decide_plainly(parts: Parts, attempt: Attempt, ending: Failed) -> tuple[Decision, Record]:
    """Decide on a failure with neither the user's rules nor the user's error."""
    try:
        return _decide(parts, attempt, ending, _DEFAULT_RULES)
    except Exception:  # noqa: BLE001 - the message itself cannot be rewritten
        decision = Decision("archive", Outcome.ARCHIVED, parts.redis_time.now())
        return decision, unchanged(str(ending.error))


def _report_undecided(attempt: Attempt, ending: Ending, broken: BaseException) -> SettleError:
    raised = f"{type(ending.error).__name__}, " if type(ending) is Failed else ""
    names = visible(attempt.id), visible(attempt.message.type), visible(attempt.queue)
    _log.error("the end of task %s (%s, queue %s) could not be worked out", *names, exc_info=broken)
    return SettleError(f"the end of the attempt could not be worked out: {raised}{type(broken).__name__}")


def _emit(parts: Parts, attempt: Attempt, ending: Ending, decision: Decision) -> None:
    message = attempt.message
    try:
        finished = TaskFinished(
            attempt.queue,
            attempt.id,
            message.type,
            message.retried,
            message.retry,
            decision.outcome,
            seconds=parts.clock.monotonic() - attempt.started,
            error=error_of(ending),
            delay=decision.delay,
        )
        parts.events.emit(finished)
    except BaseException:  # noqa: BLE001 - reported; the outcome has been handed over and does not change
        _log.exception("telling of the end of a task of type %r raised", message.type)


def _emit_crash(parts: Parts, attempt: Attempt, decision: Decision) -> None:
    event = TaskPoisoned if decision.action == "archive" else TaskRecovered
    parts.events.emit(event(attempt.queue, attempt.id, attempt.crashes + 1, attempt.token.partition("/")[0]))


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
