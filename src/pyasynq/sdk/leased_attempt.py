"""One run of a task that was leased over HTTP: its handler, its lease, and how it is settled."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyasynq._engine.failure_text import error_line
from pyasynq._engine.run.outcome import find_control_flow, reported_error
from pyasynq._visible_text import visible
from pyasynq.context import current_task
from pyasynq.control import Archive, Cancel, Retry, Snooze, find_control
from pyasynq.errors import (
    HandlerNotFoundError,
    LeaseExpiredError,
    RevokeTask,
    ServerStateError,
    SkipRetry,
    TaskCanceledError,
    TaskTimeoutError,
)
from pyasynq.task import make_unchecked_task

from .errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from pyasynq._engine.handlers.threads import HandlerThreads
    from pyasynq.context import Home, RunningTask
    from pyasynq.gateway.leases.bodies import LeasedTask
    from pyasynq.task import Task

    from .handlers import HandlerTable
    from .service_connection import ServiceAnswer, ServiceConnection

    _T = TypeVar("_T")

_log = logging.getLogger("pyasynq.sdk")

LEASED_SECONDS: Final = 30.0
"""Duration of a lease in seconds. The lease is renewed after each third of this duration.

Tasks of a dead worker run again after this time. The answer to a renewal also reports a cancellation.
"""
_RENEW_SECONDS: Final = LEASED_SECONDS / 3
_AGAIN_SECONDS: Final = 1.0
_PROGRESS_SECONDS: Final = 0.5
"""Minimum seconds between two progress reports."""
_SETTLE_SECONDS: Final = 55.0
"""Seconds for which a settle request is repeated; the service remembers its first answer for 60 seconds."""
_GONE: Final = 410
_OK: Final = frozenset({200, 204})
_LARGEST_RESULT: Final = frozenset({413, 422})
_LOST: Final = frozenset({404, 409})


@dataclass(frozen=True, slots=True)
class LeasedMessage:
    """Fields of the task's message that handlers can read."""

    type: str
    retry: int
    retried: int
    headers: Mapping[str, str]
    retention: int = 1
    """Placeholder for the retention in seconds, which only the service knows.

    It is above 0, so that results are sent; the service may drop them.
    """


class LeasedAttempt:
    """One attempt of a leased task, while its handler runs. Belongs to the worker's event loop.

    Args:
        leased: the task, as decoded from the answer of the service.
        began_at: time of the event loop at which its lease was requested.
        clock_skew: seconds that this machine's clock is ahead of the service's.
        connection: connection to the service.
        table: the handlers.
        threads: thread pool for plain (not async) handlers.

    Attributes:
        cause: why the attempt is cancelled; None while it is not. Written by the loop.
        threads: number of threads that run for the attempt; written by the thread pool.
    """

    def __init__(
        self,
        leased: LeasedTask,
        *,
        began_at: float,
        clock_skew: float,
        connection: ServiceConnection,
        table: HandlerTable,
        threads: HandlerThreads,
    ) -> None:
        self.queue = leased.queue
        self.id = leased.id
        self.message = LeasedMessage(leased.type, leased.max_retry, leased.attempt - 1, leased.headers)
        self.task: Task = make_unchecked_task(
            leased.type, _read_payload(leased), {"headers": leased.headers} if leased.headers else {}
        )
        self.waited: float | None = None
        self.deadline_at: float | None = leased.deadline.timestamp() + clock_skew
        self.cause: BaseException | None = None
        self.dropped_result = ""
        self.threads = 0
        self.thread_id: int | None = None
        self.home: Home = self
        self.task_state: Any = None
        self.loop = asyncio.get_running_loop()
        self._token = leased.token
        self._lease_ends = began_at + LEASED_SECONDS
        """Time of the loop at which the lease ends; written by `_extend`."""
        self._connection = connection
        self._table = table
        self._pool = threads
        self._cancelled = threading.Event()
        self._is_over = False
        """Whether the service has settled the attempt, or has given it to another worker."""
        self._handler: asyncio.Task[tuple[Any, BaseException | None]] | None = None
        self._result: bytes | None = None
        """Result that the handler has written with `write_result` of its context."""
        self._progress: tuple[float, float | None, str] | None = None
        """Progress report that was not sent yet; written in any thread, taken by `_renew`."""
        self._news = asyncio.Event()

    # The attempt, as handlers see it.

    def cancel_event(self) -> threading.Event:
        """Return an event that is set when the attempt is being cancelled."""
        return self._cancelled

    async def write_result(self, task: RunningTask, data: bytes) -> None:
        """Keep a result, which is sent when the handler has succeeded and returns none."""
        del task
        self._result = data

    def finish_from_thread(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the worker's loop, and block the calling thread until it has ended."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def report_progress(self, task: RunningTask, done: float, total: float | None, note: str) -> None:
        """Record progress, from any thread; the next renewal of the lease sends it soon."""
        del task
        self._progress = done, total, note
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._news.set)

    def report_trace(self, task: RunningTask, seconds: float, trace_id: str, span_id: str) -> None:
        """Do nothing: a worker over leases keeps no metrics."""

    # Running.

    async def run(self) -> None:
        """Run the handler while the lease is renewed, and settle the attempt."""
        current_task.set(self)
        self._handler = asyncio.create_task(self._handle(), name=f"task {visible(self.id)}")
        renewing = asyncio.create_task(self._renew(), name="pyasynq sdk lease")
        left = (self.deadline_at or 0) - time.time()
        timer = self.loop.call_later(max(0.0, left), self.cancel, TaskTimeoutError())
        try:
            await asyncio.wait({self._handler})
        finally:
            timer.cancel()
            renewing.cancel()
            await asyncio.wait({renewing})
        await self._settle(*self._handler.result())

    async def release(self) -> None:
        """Put the task back to the front of its queue, before its handler has started."""
        until = self.loop.time() + _SETTLE_SECONDS
        await self._connection.repeat("POST", self._path("release"), {}, until=until)

    def cancel(self, cause: BaseException) -> None:
        """Cancel the handler, unless the handler has ended or is being cancelled."""
        if self.cause is None and self._handler is not None and not self._handler.done():
            self.cause = cause
            self._cancelled.set()
            self._handler.cancel()

    def stop(self) -> None:
        """Cancel the handler at a shutdown, even if it ignored an earlier cancellation."""
        self.cancel(ServerStateError("the worker ends"))
        if self._handler is not None:
            self._handler.cancel()

    async def _handle(self) -> tuple[Any, BaseException | None]:
        """Run the handler; return its result and None, or None and its error."""
        try:
            result = self._call()
            while inspect.isawaitable(result):
                result = await result
            wish = find_control(result)
        except BaseException as error:  # noqa: BLE001 - any error of a handler is a failure of its task
            return None, error
        return (None, wish) if wish is not None else (result, None)

    def _call(self) -> Any:
        """Call the handler; return its result, or an awaitable of the result."""
        route = self._table.route(self.task.type)
        if route is None:
            raise HandlerNotFoundError(self.task.type, self._table.types())
        return self._pool.call(route.call, self.task) if route.plain else route.call(self.task)

    async def _renew(self) -> None:
        """Renew the lease after each third of its duration, and at new progress, until the attempt ends."""
        pause = _RENEW_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._news.wait()
                    await asyncio.sleep(_PROGRESS_SECONDS)
            pause = await self._extend()
            if pause is None:
                return

    async def _extend(self) -> Any:
        """Renew the lease; return the seconds until the next renewal, or None if the attempt is lost."""
        self._news.clear()
        report, self._progress = self._progress, None
        body: dict[str, Any] = {"lease": LEASED_SECONDS}
        if report is not None:
            body["progress"] = {"done": report[0], "total": report[1], "note": report[2]}
        asked_at = self.loop.time()
        try:
            answer = await self._connection.send("POST", self._path("extend"), body, seconds=_RENEW_SECONDS)
        except ServiceError as error:
            return self._handle_renewal_failure(error, report)
        if answer.status in _OK:
            self._token = str(answer.json().get("token", self._token))
            self._lease_ends = asked_at + LEASED_SECONDS
            return _RENEW_SECONDS
        if answer.status == _GONE or answer.status in _LOST:
            self._is_over = True
            self.cancel(_read_cause(answer))
            return None
        return self._handle_renewal_failure(answer.error(), report)

    def _handle_renewal_failure(
        self, error: ServiceError, report: tuple[float, float | None, str] | None
    ) -> float | None:
        """Handle a failed renewal: return the seconds until the next try, or cancel after the lease's end.

        `report` is the progress report that was not sent; it is sent with the next renewal. Return None if
        the attempt is lost.
        """
        self._progress = self._progress or report
        if self.loop.time() < self._lease_ends:
            _log.debug("the lease of task %s was not extended: %s", visible(self.id), error)
            return _AGAIN_SECONDS
        self._is_over = True
        self.cancel(LeaseExpiredError())
        return None

    # Settling.

    async def _settle(self, result: Any, error: BaseException | None) -> None:
        act = self._choose_act(result, error)
        if act is None:
            return
        until = self.loop.time() + _SETTLE_SECONDS
        name = visible(self.id)
        try:
            answer = await self._connection.repeat("POST", self._path(act[0]), act[1], until=until)
            if answer.status in _LARGEST_RESULT and act[0] == "complete":
                body = {"error": str(answer.error())}
                answer = await self._connection.repeat("POST", self._path("fail"), body, until=until)
        except ServiceError as failure:
            _log.error("the outcome of task %s is not written: %s; it comes back", name, failure)
            return
        if answer.status == _GONE:
            _log.info("task %s was settled by the service before: %s", name, answer.json().get("reason"))
        elif answer.status not in _OK:
            _log.warning("the outcome of task %s does not count: %s", name, answer.error())

    def _choose_act(self, result: Any, error: BaseException | None) -> tuple[str, dict[str, Any]] | None:
        """Return action and body of the request that settles the attempt.

        Return None if the attempt is over, or if a thread still runs its handler after a cancellation.
        """
        if self._is_over:
            return None
        if isinstance(self.cause, TaskTimeoutError):
            return "fail", {"error": self.cause.words}
        if self.cause is not None:
            if self.threads:
                _log.error(
                    "the handler of task %s still runs; the task comes back after the program has ended",
                    visible(self.id),
                )
                return None
            return "release", {}
        if error is None:
            return "complete", self._describe_result(result)
        return _describe_failure(error)

    def _describe_result(self, result: Any) -> dict[str, Any]:
        if result is None:
            result = self._result
        if result is None:
            return {}
        if isinstance(result, str):
            return {"result_text": result}
        if isinstance(result, bytes):
            return {"result_base64": result}
        kind = type(result).__name__
        _log.error("the handler of %s returned %s, not None, bytes or text", visible(self.task.type), kind)
        return {}

    def _path(self, act: str) -> str:
        return f"/v1/attempts/{self._token}:{act}"


def _describe_failure(error: BaseException) -> tuple[str, dict[str, Any]]:
    """Return action (such as `fail` or `snooze`) and body of the request for an error of a handler."""
    wish = find_control_flow(error)
    text = error_line(reported_error(error)) or type(error).__name__
    match wish:
        case Snooze():
            return "snooze", {"delay": wish.delay}
        case Cancel() | RevokeTask():
            return "cancel", {}
        case Archive() | SkipRetry():
            return "fail", {"error": text, "retry": False}
        case Retry():
            delay = {} if wish.after is None else {"delay": wish.after}
            return "fail", {"error": text, "spend": wish.spend, **delay}
    return "fail", {"error": text}


def _read_payload(leased: LeasedTask) -> bytes | None:
    """Return the bytes of the payload from its JSON, text or Base64 form."""
    from msgspec import UNSET  # noqa: PLC0415 - of the extra `service`

    if leased.payload_text is not UNSET:
        return leased.payload_text.encode()
    if leased.payload_base64 is not UNSET:
        return leased.payload_base64
    return None if leased.payload is UNSET else bytes(leased.payload)


def _read_cause(answer: ServiceAnswer) -> BaseException:
    """Return the cause of cancellation for an answer that refuses to renew a lease."""
    problem = answer.json()
    if answer.status != _GONE:
        return LeaseExpiredError()
    if problem.get("reason") == "cancelled":
        return TaskCanceledError(str(problem.get("outcome", "retry")))
    return TaskTimeoutError()
