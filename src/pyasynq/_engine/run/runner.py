"""Runner: runs one attempt, from start to settle."""

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
from pyasynq._engine.lease.roster import SlotTable
from pyasynq._engine.run.attempt import RUNNING, SETTLING
from pyasynq._engine.run.outcome import (
    DONE,
    NO_RESULT,
    Decision,
    Failed,
    Succeeded,
    Unfinished,
    build_cause_ending,
    build_result_ending,
    decide,
    find_control_flow,
    find_error,
)
from pyasynq._engine.run.settle_record import drop_frames, make_record, make_unchanged_record
from pyasynq._visible_text import visible
from pyasynq.config import ServerConfig
from pyasynq.context import cancel_reason, current_task
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
    from pyasynq._engine.run.settle_record import SettleRecord

_log = logging.getLogger("pyasynq")

# Constants, because Python 3.11 is slow to look up a member of an enum.
SUCCEEDED: Final = Outcome.SUCCEEDED

_DEFAULT_RULES: Final = AttemptRules(ServerConfig(), None, Task("unknown"))
"""Rules for an attempt whose own rules or error cannot be used."""


class Runner:
    """Runs each attempt in one asyncio task.

    An attempt has seven steps. `_run` has the first three: start, call, ending. `conclude` has the others,
    which consumers share: decide, record, settle, emit. Only the event loop writes the fields; the engine
    sets the two callbacks before the first start.
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
        """Whether some handlers start only after Redis has recorded their start."""
        self._begin_task, self._is_eager = _choose_task_maker(asyncio.get_running_loop())
        self._context = context
        """Context that each attempt copies."""
        self.running = SlotTable()
        """Attempts whose handlers or error handlers have not ended."""
        self.on_end: Callable[[Attempt], None] = lambda _attempt: None
        """Called with an attempt that has left its slot."""
        self.on_unknown: Callable[[str], None] = lambda _queue: None
        """Called with the queue of a task that was put back, because this server has no handler for it."""

    def start(self, attempt: Attempt) -> None:
        """Run an attempt in its own asyncio task."""
        self.running.add(attempt)
        task = self._begin_task(self._run(attempt), name=attempt.id, context=self._context.copy())
        # An eager task has taken its first step already, and often its last.
        if not self._is_eager or not task.done():
            attempt.task = task
            if attempt.cause is not None and attempt.phase is RUNNING:
                task.cancel()

    def _call(self, attempt: Attempt, task: Task, route: Route | None) -> object:
        """Call the handler; return its result or an awaitable of it."""
        if route is None:
            raise HandlerNotFoundError(task.type, self._router.types())
        if self._events.wants(TaskStarted):
            retried = attempt.message.retried
            started = TaskStarted(attempt.queue, attempt.id, task.type, retried, attempt.waited)
            self._events.emit(started)
        return self._threads.call(route.call, task) if route.plain else route.call(task)

    async def _confirm_begin(self, attempt: Attempt) -> bool:
        """Have Redis record the start of a handler, if one crash archives its task.

        Return whether the handler may start; otherwise set the cause of the attempt's cancellation.
        """
        if not self._parts.confirms_begin(attempt.message.type):
            return True
        try:
            begun = await self._parts.driver.run(confirm_begin(attempt.queue, attempt.id, attempt.token))
        except RedisError:
            # Redis may have recorded the start. The task is put back, and this attempt does not run it.
            begun = None
        if begun:
            return True
        attempt.lost = begun is False
        self._cancel_for_lease(attempt)
        return False

    def _refuse(self, attempt: Attempt) -> None:
        """Set the cause of cancellation of an attempt whose time ended before its handler could start."""
        if attempt.has_lease(attempt.started) and attempt.cause is None:
            attempt.cause = attempt.build_timeout_error()
        # If the lease has lapsed, this process was suspended after the dequeue, and another worker may run
        # the task.
        self._cancel_for_lease(attempt)

    def _cancel_for_lease(self, attempt: Attempt) -> None:
        if attempt.cause is None:
            attempt.cause = LeaseExpiredError()
            self._events.emit(LeaseLost(attempt.queue, attempt.id))

    def _build_error_ending(self, error: BaseException, task: Task) -> Ending:
        # Compared by `type()`: an error of the user's may raise when its `__class__` is read.
        is_unknown = type(error) is HandlerNotFoundError and error.task_type == task.type
        return Failed(error, is_unhandled=is_unknown and self._config.on_unknown == "return")

    async def _report_failure(self, attempt: Attempt, task: Task, ending: Failed) -> None:
        """Call the user's error handler, or report that this server has no handler for the task."""
        error, handler = ending.error, self._config.error_handler
        if ending.is_unhandled:
            self.on_unknown(attempt.queue)
            return
        # A coroutine that the interpreter is closing may not await.
        if handler is None or type(error) is GeneratorExit:
            return
        try:
            if isinstance(find_control_flow(error), Cancel | Snooze):
                return
            told = handler(task, error)
            if isawaitable(told):
                await told
        except BaseException:  # noqa: BLE001 - logged; the outcome is already decided
            _log.exception("the error handler raised for a task of type %r", task.type)

    async def _run(self, attempt: Attempt) -> None:
        """Start the attempt, call the handler, conclude, and call the error handler."""
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
                        # Inlined from `await_fully`: a call of `isawaitable` takes 2 % of the time of a task.
                        while result is not None and (type(result) is CoroutineType or isawaitable(result)):
                            result = await result
                        if result is not None:
                            ending = build_result_ending(result, attempt.message, self._config.max_result)
                except BaseException as error:  # noqa: BLE001 - any error of a handler is a failure of its task
                    raised = error
                    ending = self._build_error_ending(error, task)
            else:
                self._refuse(attempt)
            if attempt.cause is not None:
                ending = build_cause_ending(attempt)
            # In other phases shutdown has already put the task back, or nothing can be written.
            if attempt.phase is RUNNING:
                conclude(self._parts, attempt, task, route, ending)
            if type(ending) is Failed:
                await self._report_failure(attempt, task, ending)
        finally:
            # Break two reference cycles, which would live until the garbage collector runs: attempt, task,
            # context, attempt; and an error whose traceback has this frame.
            attempt.task = None
            ending = NO_RESULT
            self.running.remove(attempt)
            self.on_end(attempt)
            if raised is not None and not self._parts.settings.keep_frames:
                drop_frames(raised)
            raised = None


def conclude(parts: Parts, attempt: Attempt, task: Task, route: Route | None, ending: Ending) -> None:
    """Decide, record, settle and emit the ending of an attempt.

    Never raises: an ending that cannot be handled counts as a failure of the attempt.
    """
    # Inlined from `leaves_nothing`, because nearly all attempts end so.
    if type(ending) is Succeeded and attempt.message.retention <= 0:
        attempt.phase = SETTLING
        parts.settles.put_done(attempt)
        parts.outcomes[SUCCEEDED] += 1
        if (cells := attempt.cells) is not None:
            # Inlined: a function call would add a third to the time of counting.
            cell = cells[task.type]
            cell.succeeded += 1
            if cell.succeeded >= cell.measure_at:
                cell.measure(attempt, parts.clock.monotonic())
        if parts.events.wants_routine(TaskFinished):
            _emit(parts, attempt, ending, DONE)
        return
    told = ending
    try:
        decision, record = _decide(parts, attempt, ending, AttemptRules(parts.config, route, task))
    except BaseException as error:  # noqa: BLE001 - logged; unsettled, the task would stay active
        told = Failed(_report_undecided(attempt, ending, error))
        decision, record = _decide_plainly(parts, attempt, told)
    attempt.phase = SETTLING
    parts.settles.put(attempt, decision, record)
    parts.outcomes[decision.outcome] += 1
    if attempt.cells is not None:
        attempt.cells.end(attempt, task.type, parts.clock.monotonic(), decision.outcome)
    if parts.events.wants(TaskFinished):
        _emit(parts, attempt, told, decision)
    if type(ending) is Unfinished and ending.crash is not None:
        _emit_crash(parts, attempt, decision)


def conclude_refused(parts: Parts, attempt: Attempt, error: SettleError) -> tuple[Decision, SettleRecord]:
    """Turn a success that Redis refuses to store into a failure: emit it, and return the outcome to store."""
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


def _decide(
    parts: Parts, attempt: Attempt, ending: Ending, rules: AttemptRules
) -> tuple[Decision, SettleRecord]:
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


def _decide_plainly(parts: Parts, attempt: Attempt, ending: Failed) -> tuple[Decision, SettleRecord]:
    """Decide about a failure without using the user's rules or the user's error."""
    try:
        return _decide(parts, attempt, ending, _DEFAULT_RULES)
    except Exception:  # noqa: BLE001 - the message itself cannot be rewritten
        decision = Decision("archive", Outcome.ARCHIVED, parts.redis_time.now())
        return decision, make_unchanged_record(str(ending.error))


def _report_undecided(attempt: Attempt, ending: Ending, broken: BaseException) -> SettleError:
    raised = f"{type(ending.error).__name__}, " if type(ending) is Failed else ""
    names = visible(attempt.id), visible(attempt.message.type), visible(attempt.queue)
    _log.error("the outcome of task %s (%s, queue %s) could not be computed", *names, exc_info=broken)
    return SettleError(f"the outcome of the attempt could not be computed: {raised}{type(broken).__name__}")


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
            error=find_error(ending),
            delay=decision.delay,
            waited=attempt.waited,
            reason=cancel_reason(attempt.cause) if type(ending) is Failed else None,
            asked=type(ending) is Failed and find_control_flow(ending.error) is not None,
        )
        parts.events.emit(finished)
    except BaseException:  # noqa: BLE001 - logged; the outcome is already decided
        _log.exception("reporting the outcome of a task of type %r raised", message.type)


def _emit_crash(parts: Parts, attempt: Attempt, decision: Decision) -> None:
    event = TaskPoisoned if decision.action == "archive" else TaskRecovered
    server = attempt.token.partition("/")[0]
    parts.events.emit(event(attempt.queue, attempt.id, attempt.crashes + 1, server, attempt.message.type))


def _choose_task_maker(loop: asyncio.AbstractEventLoop) -> tuple[Callable[..., asyncio.Task[None]], bool]:
    """Return the function that makes asyncio tasks, and whether its tasks may be eager.

    They are eager if Python supports it and the loop has no task factory of its own.
    Most handlers end or wait early: an eager task takes its first step without the loop.
    """
    if loop.get_task_factory() is not None:
        # A factory may also make eager tasks.
        return loop.create_task, True
    # uvloop's own `create_task` first generates a name, then replaces it.
    if sys.version_info >= (3, 12):
        return partial(asyncio.Task, loop=loop, eager_start=True), True
    return partial(asyncio.Task, loop=loop), False
