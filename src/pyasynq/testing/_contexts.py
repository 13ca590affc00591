"""Context for handlers that a test calls directly, without Redis or a worker."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pyasynq._checks import parse_instant
from pyasynq._engine.handlers.routes import check_result_size
from pyasynq.context import current_task
from pyasynq.errors import TaskCanceledError
from pyasynq.options import DEFAULT_MAX_RESULT, DEFAULT_QUEUE

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Mapping
    from datetime import datetime

    from pyasynq.context import RunningTask

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _Message:
    """Fields of a task message that handlers can read."""

    type: str
    retry: int
    retried: int
    retention: int
    headers: Mapping[str, str]


class RecordedContext:
    """Recorder of the result and progress that a handler, called directly, writes to its context.

    Attributes:
        result: result that the handler has written; None before that.
        progress: last progress report as (done, total, note); None before the first.
    """

    def __init__(self, task: _RecordedTask, state: Any) -> None:
        self.task_state = state
        """Value of `context().state`."""
        self.result: bytes | None = None
        self.progress: tuple[float, float | None, str] | None = None
        self._task = task

    def cancel(self, cause: BaseException | None = None) -> None:
        """Set `context().cancelled`, as a cancel request does."""
        self._task.cause = TaskCanceledError() if cause is None else cause
        self._task.cancelled.set()

    async def write_result(self, task: RunningTask, data: bytes) -> None:
        """Record a result; called by the context."""
        del task
        check_result_size(data, DEFAULT_MAX_RESULT)
        self.result = data

    def report_progress(self, task: RunningTask, done: float, total: float | None, note: str) -> None:
        """Record a progress report; called by the context."""
        del task
        self.progress = done, total, note

    def report_trace(self, task: RunningTask, seconds: float, trace_id: str, span_id: str) -> None:
        """Do nothing: a test has no metrics that could name the trace of an attempt (exemplar)."""

    def finish_from_thread(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine that never suspends, without an event loop; called by the context."""
        try:
            work.send(None)
        except StopIteration as end:
            result: _T = end.value
            return result
        work.close()
        raise RuntimeError("the context of a test does not wait for anything")


@dataclass(slots=True, eq=False, weakref_slot=True)
class _RecordedTask:
    """Task of a `RecordedContext`, with the fields of an attempt that handlers read."""

    queue: str
    id: str
    message: _Message
    deadline_at: float | None
    waited: float | None = None
    cause: BaseException | None = None
    dropped_result: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)
    home: Any = None

    def cancel_event(self) -> threading.Event:
        """Return an event that is set when the attempt is being cancelled."""
        return self.cancelled


@contextmanager
def task_context(  # noqa: PLR0913 - what the context shows, each by its name
    *,
    type: str = "test",  # noqa: A002 - the field's word
    task_id: str | None = None,
    queue: str = DEFAULT_QUEUE,
    retried: int = 0,
    max_retry: int = 25,
    deadline: datetime | None = None,
    waited: float | None = None,
    headers: Mapping[str, str] | None = None,
    state: Any = None,
) -> Iterator[RecordedContext]:
    """Make `context()` work within a block, so that a handler can be called there as a plain function.

    Redis, middleware and timeouts are not involved; `Kit.perform` has all of them. Threads started in the
    block have the context too, if `asyncio.to_thread` or a similar function starts them.

    Args:
        type: value of `context().task_type`.
        task_id: id of the task; random by default.
        queue: the queue's name.
        retried: number of retries used.
        max_retry: maximum number of retries.
        deadline: aware `datetime` for `context().deadline`; it cancels nothing.
        waited: seconds that the task was pending.
        headers: headers of the task.
        state: value of `context().state`, which a lifespan would yield.

    Yields:
        the recorder of result and progress; its `cancel` requests a cancellation.

    Raises:
        InvalidOptionError: for a naive deadline.
    """
    message = _Message(type, max_retry, retried, 0, dict(headers or {}))
    due = None if deadline is None else parse_instant("deadline", deadline).timestamp
    task = _RecordedTask(queue, str(uuid.uuid4()) if task_id is None else task_id, message, due, waited)
    recorded = task.home = RecordedContext(task, state)
    token = current_task.set(task)
    try:
        yield recorded
    finally:
        current_task.reset(token)
