"""The context of a running task, `pyasynq.context()`, and its fields on log records."""

from __future__ import annotations

import enum
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, cast

from pyasynq.errors import (
    InvalidOptionError,
    LeaseExpiredError,
    ServerStateError,
    TaskCanceledError,
    TaskTimeoutError,
)

if TYPE_CHECKING:
    import asyncio
    import threading
    from collections.abc import Callable, Coroutine, Mapping, MutableMapping

_T = TypeVar("_T")

_log = logging.getLogger("pyasynq.task")
_LONGEST_NOTE = 200
_LARGEST_AMOUNT = 1e300


class CancelReason(enum.StrEnum):
    """Why an attempt is cancelled."""

    TIMEOUT = "timeout"
    """The attempt ran longer than the task's `timeout`."""
    DEADLINE = "deadline"
    """The task's `deadline` has passed."""
    CANCEL = "cancel"
    """The cancellation was requested by an inspector, a dashboard or a command."""
    SHUTDOWN = "shutdown"
    """The worker is shut down; the task goes back to its queue."""
    LEASE_LOST = "lease lost"
    """The lease has lapsed or is lost: the task may belong to another worker by now."""


def cancel_reason(cause: BaseException | None) -> CancelReason | None:
    """Return the `CancelReason` for the exception that caused a cancellation."""
    if cause is None:
        return None
    if isinstance(cause, TaskTimeoutError):
        return CancelReason.DEADLINE if cause.is_deadline else CancelReason.TIMEOUT
    if isinstance(cause, TaskCanceledError):
        return CancelReason.CANCEL
    return CancelReason.LEASE_LOST if isinstance(cause, LeaseExpiredError) else CancelReason.SHUTDOWN


class MessageFacts(Protocol):
    """The parts of a task's message that handlers can read."""

    @property
    def type(self) -> str:
        """The task's type."""

    @property
    def retry(self) -> int:
        """Number of allowed retries."""

    @property
    def retried(self) -> int:
        """Number of retries spent."""

    @property
    def retention(self) -> int:
        """Seconds for which a succeeded task is kept; 0 if it is not kept."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the task: text by name, such as a trace id or a tenant."""


class RunningTask(Protocol):
    """The engine's view of an attempt, for `TaskContext`."""

    queue: str
    id: str
    deadline_at: float | None
    cause: BaseException | None
    dropped_result: str
    home: Home

    @property
    def message(self) -> MessageFacts:
        """The task's message."""

    @property
    def waited(self) -> float | None:
        """Seconds that the task was pending before its handler started; None if unknown."""

    def cancel_event(self) -> threading.Event:
        """Return an event that is set when the attempt is being cancelled."""


class Home(Protocol):
    """Protocol of what runs an attempt: engine, child process, SDK or test; `TaskContext` calls it."""

    task_state: Any
    loop: asyncio.AbstractEventLoop

    async def write_result(self, task: RunningTask, data: bytes) -> None:
        """Store a result."""

    def finish_from_thread(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on this server's loop, and block the calling handler thread until it has ended."""

    def report_progress(self, task: RunningTask, done: float, total: float | None, note: str) -> None:
        """Record a handler's progress, in any thread. Does not wait."""

    def report_trace(self, task: RunningTask, seconds: float, trace_id: str, span_id: str) -> None:
        """Record the sampled span of an attempt that has ended. Called on the event loop."""


current_task: ContextVar[RunningTask] = ContextVar("pyasynq.current_task")
"""The attempt whose handler runs in this context; set by the engine."""


trace_fields: ContextVar[Callable[[], Mapping[str, str]]] = ContextVar("pyasynq.trace_fields", default=dict)
"""Function that returns the trace and span ids of the attempt in this context, for log records.

Set by tracing middleware. It is called only when a log record is made: most attempts make none.
"""


class EnqueueBatch:
    """One call of `enqueue_many` whose tasks pass through client middleware.

    Attributes:
        at_end: functions that are called after the last task, also if the call raises.
    """

    __slots__ = ("at_end",)

    def __init__(self) -> None:
        self.at_end: list[Callable[[], object]] = []

    def __enter__(self) -> Self:
        """Return this batch."""
        return self

    def __exit__(self, *_: object) -> None:
        """Call the functions of `at_end`."""
        for function in self.at_end:
            function()


current_batch: ContextVar[EnqueueBatch | None] = ContextVar("pyasynq.current_batch", default=None)
"""The call of `enqueue_many` that a task belongs to, for client middleware; None for `enqueue`."""


def context() -> TaskContext:
    """Return the context of the running task, in coroutines and in handler threads.

    Raises:
        ServerStateError: outside a handler.
    """
    task = current_task.get(None)
    if task is None:
        raise ServerStateError(
            "context() was called outside a handler: there is no task here. In a test, run the handler "
            "with the kit's perform(), or call it inside `with pyasynq.testing.task_context():`",
        )
    return TaskContext(task)


class Cancelled:
    """Whether the attempt is being cancelled: deadline, request, shutdown, or a lost lease.

    Coroutines get `CancelledError`; plain handlers poll this from their thread.
    """

    __slots__ = ("_task",)

    def __init__(self, task: RunningTask) -> None:
        self._task = task

    def is_set(self) -> bool:
        """Return whether the handler should stop."""
        return self._task.cause is not None

    @property
    def reason(self) -> CancelReason | None:
        """Reason of the cancellation; None while the attempt is not cancelled."""
        return cancel_reason(self._task.cause)

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread for at most `timeout` seconds; return whether the handler should stop.

        For plain handlers only: in a coroutine it would block the event loop.
        """
        return self._task.cancel_event().wait(timeout)

    def __bool__(self) -> bool:
        return self.is_set()

    def __repr__(self) -> str:
        return f"Cancelled({self.is_set()})"


class TaskContext:
    """The running task. Payloads are not part of its `repr`."""

    __slots__ = ("_task",)

    def __init__(self, task: RunningTask) -> None:
        self._task = task

    @property
    def task_id(self) -> str:
        """The task's id, unique within its queue."""
        return self._task.id

    @property
    def task_type(self) -> str:
        """The task's type."""
        return self._task.message.type

    @property
    def queue(self) -> str:
        """The queue that the task came from."""
        return self._task.queue

    @property
    def retried(self) -> int:
        """Number of retries spent; 0 at the first attempt."""
        return self._task.message.retried

    @property
    def max_retry(self) -> int:
        """Number of allowed retries."""
        return self._task.message.retry

    @property
    def deadline(self) -> datetime | None:
        """Time at which this attempt is cancelled; None if it has neither timeout nor deadline."""
        at = self._task.deadline_at
        return None if at is None else datetime.fromtimestamp(at, UTC)

    @property
    def waited(self) -> float | None:
        """Seconds that the task was pending before this attempt; None if unknown.

        For a scheduled task, the time counts from when the task was due, not from its enqueue.
        """
        return self._task.waited

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the task: text by name, such as a trace id or a tenant."""
        return dict(self._task.message.headers)

    @property
    def state(self) -> Any:
        """The value that the lifespan of this worker yielded."""
        return self._task.home.task_state

    @property
    def cancelled(self) -> Cancelled:
        """Whether the attempt is being cancelled, for handlers in threads."""
        return Cancelled(self._task)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """The logger `pyasynq.task`; its records carry `task_id`, `task_type`, `queue` and `attempt`."""
        return _TaskLogger(_log, task_fields(self._task))

    async def write_result(self, data: bytes) -> None:
        """Store `data` as the task's result; the last write wins, and it is kept as long as the task.

        Raises:
            LeaseExpiredError: when this attempt does not own the task any more; nothing was written then.
            TypeError: when `data` is not bytes.
            ResultTooLargeError: when it is larger than the server's `max_result`; nothing was sent.
            RedisError: when Redis cannot be reached within the timeout, or refuses.

        When the caller is cancelled, the result may have been written.
        """
        _check_result(data)
        await self._task.home.write_result(self._task, data)

    def write_result_sync(self, data: bytes) -> None:
        """Store `data` as the task's result, from a plain handler in its thread.

        Raises what `write_result` raises, and `ServerStateError` if it is called in the event loop's thread.
        """
        from asyncio import get_running_loop  # noqa: PLC0415 - asyncio takes longer to load than this package

        _check_result(data)
        home = self._task.home
        try:
            get_running_loop()
        except RuntimeError:
            pass
        else:
            raise ServerStateError("write_result_sync() would block the event loop: await write_result()")
        home.finish_from_thread(home.write_result(self._task, data))

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report the handler's progress; `TaskInfo.progress` shows it. For coroutines and threads alike.

        It does not wait, and may be called any number of times: the newest report is written, at most
        twice a second, and the last one together with the outcome, if the task is kept. While Redis is away
        nothing is written. A task that this attempt does not own any more is not changed.

        Args:
            done: the amount done, not negative, in any unit.
            total: the amount that is to be done; None if unknown.
            note: a description of the current step, cut to 200 characters.

        Raises:
            InvalidOptionError: for numbers that are negative or not finite, and a note that is not text.
        """
        _check_amount("done", done)
        if total is not None:
            _check_amount("total", total)
        if not isinstance(note, str):
            raise InvalidOptionError("note", note, "must be text")
        self._task.home.report_progress(self._task, done, total, note[:_LONGEST_NOTE])

    def __repr__(self) -> str:
        return f"TaskContext(task_id={self.task_id!r}, task_type={self.task_type!r}, queue={self.queue!r})"


def task_fields(task: RunningTask | None) -> dict[str, str | int]:
    """Return the log fields of a task, with those of its trace if there is one; empty outside handlers."""
    if task is None:
        return {"task_id": "", "task_type": "", "queue": "", "attempt": 0}
    return {
        "task_id": task.id,
        "task_type": task.message.type,
        "queue": task.queue,
        "attempt": task.message.retried + 1,
        **trace_fields.get()(),
    }


class TaskFieldsFilter(logging.Filter):
    """Adds `task_id`, `task_type`, `queue` and `attempt` to records; empty outside handlers.

    Put it on a log *handler*: a logger's filter would not see the records of other loggers. It passes
    every record, and does not overwrite fields that a record already has.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields and let the record pass."""
        for name, value in task_fields(current_task.get(None)).items():
            if name not in record.__dict__:
                setattr(record, name, value)
        return True


def _check_amount(name: str, value: object) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 <= cast("float", value) <= _LARGEST_AMOUNT):
        raise InvalidOptionError(name, value, "must be a finite number that is not negative")


def _check_result(data: object) -> None:
    if not isinstance(data, bytes):
        raise TypeError(f"a result is bytes, not {type(data).__name__}; encode text or JSON first")


class _TaskLogger(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        # The user's own extra fields stay; the task's override them.
        kwargs["extra"] = {**kwargs.get("extra", {}), **(self.extra or {})}
        return msg, kwargs
