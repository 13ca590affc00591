"""A context for handlers that a test calls directly, without Redis and without a worker."""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from pyasynq._checks import instant_of
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
    """What a handler can know of its task's message."""

    type: str
    retry: int
    retried: int
    retention: int
    headers: Mapping[str, str]


class RecordedContext:
    """What handlers that are called directly do with their context.

    Attributes:
        result: what was written as the task's result; None when nothing was.
        progress: what was reported last: done, total and note; None when nothing was.
    """

    def __init__(self, task: _RecordedTask, state: Any) -> None:
        self.task_state = state
        """What `context().state` is."""
        self.result: bytes | None = None
        self.progress: tuple[float, float | None, str] | None = None
        self._task = task

    def cancel(self, cause: BaseException | None = None) -> None:
        """Let `context().cancelled` be true from now on, as when somebody cancels the task."""
        self._task.cause = TaskCanceledError() if cause is None else cause
        self._task.cancelled.set()

    async def write_result(self, task: RunningTask, data: bytes) -> None:
        """Keep a result; for the context."""
        del task
        check_result_size(data, DEFAULT_MAX_RESULT)
        self.result = data

    def report_progress(self, task: RunningTask, done: float, total: float | None, note: str) -> None:
        """Keep what a handler says of its progress; for the context."""
        del task
        self.progress = done, total, note

    def finish_from_thread(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine that does not wait; for the context."""
        try:
            work.send(None)
        except StopIteration as end:
            result: _T = end.value
            return result
        work.close()
        raise RuntimeError("the context of a test does not wait for anything")


@dataclass(slots=True, eq=False, weakref_slot=True)
class _RecordedTask:
    """Stands in for an attempt."""

    queue: str
    id: str
    message: _Message
    deadline_at: float | None
    cause: BaseException | None = None
    dropped_result: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)
    home: Any = None

    def cancel_event(self) -> threading.Event:
        """Return an event that is set when the attempt is being cancelled."""
        return self.cancelled


@contextmanager
def task_context(
    *,
    type: str = "test",  # noqa: A002 - the field's word
    task_id: str | None = None,
    queue: str = DEFAULT_QUEUE,
    retried: int = 0,
    max_retry: int = 25,
    deadline: datetime | None = None,
    headers: Mapping[str, str] | None = None,
    state: Any = None,
) -> Iterator[RecordedContext]:
    """Let `context()` work within a block, so that a handler can be called there as the function that it is.

    No Redis, no middleware and no time-out have a part in it; `Kit.perform` has all of them. Threads that
    the block starts have the context too if they are started by `asyncio.to_thread` or the like.

    Args:
        type: what `context().task_type` is; and so on.
        task_id: a random one unless given.
        queue: the queue's name.
        retried: how many retries have been spent.
        max_retry: how many are allowed.
        deadline: aware; it is shown, and nothing ends by it.
        headers: text that travels with the task.
        state: what a lifespan would have yielded.

    Yields:
        what records results and progress, and can cancel.

    Raises:
        InvalidOptionError: for a naive deadline.
    """
    message = _Message(type, max_retry, retried, 0, dict(headers or {}))
    due = None if deadline is None else instant_of("deadline", deadline).timestamp
    task = _RecordedTask(queue, str(uuid.uuid4()) if task_id is None else task_id, message, due)
    recorded = task.home = RecordedContext(task, state)
    token = current_task.set(task)
    try:
        yield recorded
    finally:
        current_task.reset(token)
