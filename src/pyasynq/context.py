"""What a handler can know and do about its task: `pyasynq.context()`; and its fields on log records."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from pyasynq.errors import InvalidOptionError, ServerStateError

if TYPE_CHECKING:
    import threading
    from collections.abc import Coroutine, Mapping, MutableMapping

_T = TypeVar("_T")

_log = logging.getLogger("pyasynq.task")
_LONGEST_NOTE = 200
_LARGEST_AMOUNT = 1e300


class MessageFacts(Protocol):
    """What handlers can know of a task's message."""

    @property
    def type(self) -> str:
        """The task's type."""

    @property
    def retry(self) -> int:
        """How many retries are allowed."""

    @property
    def retried(self) -> int:
        """How many retries have been spent."""

    @property
    def retention(self) -> int:
        """Seconds that a finished task is kept; 0 for not at all."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Text that travels with the task."""


class RunningTask(Protocol):
    """What the engine offers of an attempt."""

    queue: str
    id: str
    deadline_at: float | None
    cause: BaseException | None
    dropped_result: str
    home: Home

    @property
    def message(self) -> MessageFacts:
        """The task's message."""

    def cancel_event(self) -> threading.Event:
        """Return an event that is set when the attempt is being cancelled."""


class Home(Protocol):
    """What the engine offers of the server that runs an attempt."""

    task_state: Any
    loop: asyncio.AbstractEventLoop

    async def write_result(self, task: RunningTask, data: bytes) -> None:
        """Store a result."""

    def finish_from_thread(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine of this home and block the calling thread, a handler's, until it has ended."""

    def report_progress(self, task: RunningTask, done: float, total: float | None, note: str) -> None:
        """Take what a handler says of its progress, in whatever thread. Does not wait."""


current_task: ContextVar[RunningTask] = ContextVar("pyasynq.current_task")
"""The attempt whose handler runs here; set by the engine."""


def context() -> TaskContext:
    """Return the context of the task that is being run, in coroutines and in handler threads.

    Raises:
        ServerStateError: outside of a handler.
    """
    task = current_task.get(None)
    if task is None:
        raise ServerStateError(
            "context() was called outside of a handler: there is no task here. In a test, run the handler "
            "with the kit's perform(), or call it inside `with pyasynq.testing.task_context():`",
        )
    return TaskContext(task)


class Cancelled:
    """Whether the attempt is being cancelled: deadline, request, shutdown, or a lost lease.

    Coroutines get `CancelledError`; plain handlers look here now and then, from their thread.
    """

    __slots__ = ("_task",)

    def __init__(self, task: RunningTask) -> None:
        self._task = task

    def is_set(self) -> bool:
        """Return whether the handler should stop."""
        return self._task.cause is not None

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
    """The task that is being run. Payloads are not part of its `repr`."""

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
        """How many retries have been spent; 0 at the first attempt."""
        return self._task.message.retried

    @property
    def max_retry(self) -> int:
        """How many retries are allowed."""
        return self._task.message.retry

    @property
    def deadline(self) -> datetime | None:
        """When this attempt is cut off; None when it has neither timeout nor deadline."""
        at = self._task.deadline_at
        return None if at is None else datetime.fromtimestamp(at, UTC)

    @property
    def headers(self) -> Mapping[str, str]:
        """Text that travels with the task."""
        return dict(self._task.message.headers)

    @property
    def state(self) -> Any:
        """What the lifespan of this worker yielded."""
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
        """Store `data` as the task's result; the last write wins, and it is kept while the task is.

        Raises:
            LeaseExpiredError: when the task is not this attempt's any more; nothing was written then.
            TypeError: when `data` is not bytes.
            ResultTooLargeError: when it is larger than the server's `max_result`; nothing was sent.
            RedisError: when Redis cannot be reached within the time-out, or refuses.

        When the caller is cancelled, the result may have been written.
        """
        _check_result(data)
        await self._task.home.write_result(self._task, data)

    def write_result_sync(self, data: bytes) -> None:
        """Store `data` as the task's result, from a plain handler in its thread.

        Raises what `write_result` raises, and ServerStateError on the event loop's own thread.
        """
        _check_result(data)
        home = self._task.home
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise ServerStateError("write_result_sync() would block the event loop: await write_result()")
        home.finish_from_thread(home.write_result(self._task, data))

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the handler has come; `TaskInfo.progress` shows it. For coroutines and threads alike.

        It waits for nothing, and may be called as often as one likes: the newest report is written, at most
        twice a second, and the last one with what becomes of the task, if that is kept. While Redis is away
        nothing is written; a task that is not this attempt's any more is left alone.

        Args:
            done: how much is done, not negative, in whatever unit.
            total: of how much; None if that is not known.
            note: what is being done, cut to 200 characters.

        Raises:
            InvalidOptionError: for numbers that are negative, not finite or none, and a note that is no text.
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
    """Return what log records say about a task; empty values outside of handlers."""
    if task is None:
        return {"task_id": "", "task_type": "", "queue": "", "attempt": 0}
    return {
        "task_id": task.id,
        "task_type": task.message.type,
        "queue": task.queue,
        "attempt": task.message.retried + 1,
    }


class TaskFieldsFilter(logging.Filter):
    """Adds `task_id`, `task_type`, `queue` and `attempt` to records; empty outside of handlers.

    Put it on a log *handler*: a logger's filter would not see the records of other loggers. It passes
    every record, and leaves fields alone that a record brings itself.
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
        # The user's own extra fields stay; the task's win.
        kwargs["extra"] = {**kwargs.get("extra", {}), **(self.extra or {})}
        return msg, kwargs
