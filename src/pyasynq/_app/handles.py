"""Handles of enqueued tasks, which wait for the task's end and read its result, in coroutines and threads."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeAlias, TypeVar

from pyasynq._broker.waits.endings import build_missing_error
from pyasynq.errors import PayloadDecodingError, QueueNotFoundError, ResultNotKeptError, TaskNotFoundError
from pyasynq.task import EnqueueStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from pyasynq import sync
    from pyasynq.errors import PyasynqError
    from pyasynq.info import CancelResult
    from pyasynq.inspector import Inspector
    from pyasynq.options import Duration
    from pyasynq.task import FinishedTask, TaskInfo, TaskProgress, TaskState

    CancelOutcome: TypeAlias = Literal["retry", "archive", "delete"]

_R_co = TypeVar("_R_co", covariant=True)


class Waiting(Protocol):
    """Interface of the app through which a task handle waits for its task."""

    async def wait(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait for the end of a task."""

    async def result(self, queue: str, task_id: str, timeout: Duration | None = None) -> bytes | None:
        """Wait for the result of a task."""

    def wait_sync(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait for the end of a task, blocking."""

    def result_sync(self, queue: str, task_id: str, timeout: Duration | None = None) -> bytes | None:
        """Wait for the result of a task, blocking."""


class Acting(Waiting, Protocol):
    """Interface of the app through which a task handle waits for tasks and opens inspectors."""

    def _open_inspector(self) -> Inspector:
        """Return the app's inspector."""

    def _open_blocking_inspector(self) -> sync.Inspector:
        """Return the app's blocking inspector."""


class _Handle(Generic[_R_co]):
    """Queue and id of a task, and the function that reads its result."""

    def __init__(
        self, app: Acting, queue: str, task_id: str, decode: Callable[[bytes | None], _R_co]
    ) -> None:
        self._app = app
        self._decode = decode
        self.queue = queue
        self.id = task_id

    @contextmanager
    def _in_queue(self) -> Iterator[None]:
        """Raise `TaskNotFoundError` in a `with` block if the queue does not exist.

        A queue exists from its first task on, so both mean that this task does not exist.
        """
        try:
            yield
        except QueueNotFoundError:
            raise TaskNotFoundError(self.queue, self.id) from None

    def _value(self, data: bytes | None) -> _R_co:
        try:
            return self._decode(data)
        except PayloadDecodingError as error:
            if data is not None:
                raise
            raise ResultNotKeptError(self.queue, self.id, "has succeeded without a result") from error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} in queue {self.queue!r}>"


class TaskHandle(_Handle[_R_co]):
    """Handle of a task: waits for its end, reads its result, and acts on it.

    `_R_co` is the type that the task's handler returns.

    Attributes:
        id: the task's id, unique within its queue.
        queue: the queue that the task is in.
    """

    async def wait(self, timeout: Duration | None = None) -> FinishedTask:
        """Wait until the task has ended, in any worker, and return how it ended. See `Client.wait`."""
        return await self._app.wait(self.queue, self.id, timeout)

    async def result(self, timeout: Duration | None = None) -> _R_co:
        """Wait until the task has ended, and return what its handler returned. See `Client.result`.

        Raises:
            WaitTimeoutError: the task has not ended in time.
            ResultNotKeptError: the task has no retention, its retention is over, or it wrote no result.
            TaskFailedError: the task failed for good; the exception contains the error's message.
            TaskDeletedError: the task was deleted.
            TaskNotFoundError: there was no such task when the wait began.
            PayloadDecodingError: the result does not fit the handler's return annotation.
            RedisError: Redis refuses us, or with a `timeout` of 0 cannot be reached.
        """
        return self._value(await self._app.result(self.queue, self.id, timeout))

    async def info(self) -> TaskInfo:
        """Return the task as Redis has it now; see `Inspector.task_info`.

        Raises:
            TaskNotFoundError: when the task is gone, for example after a success without `retention`.
        """
        with self._in_queue():
            return await self._inspector.task_info(self.queue, self.id)

    async def state(self) -> TaskState:
        """Return the task's state now. Raises what `info` raises."""
        return (await self.info()).state

    async def progress(self) -> TaskProgress | None:
        """Return the last progress report of the handler, or None. Raises what `info` raises."""
        return (await self.info()).progress

    async def cancel(self, outcome: CancelOutcome = "retry", *, wait: Duration = 0.0) -> CancelResult:
        """Cancel the running attempt; return the state of the request; see `Inspector.cancel`.

        A task that is not running is left unchanged, and the status is `NOT_ACTIVE`. For a task that waits,
        use `delete`.

        Args:
            outcome: what to do with the task when the attempt is cancelled.
            wait: how long to wait for the end of the attempt.

        Raises:
            TaskNotFoundError: when there is no such task.
        """
        with self._in_queue():
            [result] = await self._inspector.cancel(self.id, self.queue, outcome, wait=wait)
        return result

    async def delete(self) -> None:
        """Delete the task, unless it is active; see `Inspector.delete_task`.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when the task is active, or being aggregated.
        """
        with self._in_queue():
            await self._inspector.delete_task(self.queue, self.id)

    async def run_now(self) -> None:
        """Make a scheduled, retry, archived, completed or aggregating task pending; see `Inspector.run_task`.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when the task is active, pending, or being aggregated.
        """
        with self._in_queue():
            await self._inspector.run_task(self.queue, self.id)

    async def reschedule(self, process_at: datetime) -> None:
        """Set when a scheduled or retry task is due; an archived one becomes scheduled.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when the task is in another state.
            InvalidOptionError: for a time without a zone.
        """
        with self._in_queue():
            await self._inspector.update_process_at(self.queue, self.id, process_at)

    @property
    def _inspector(self) -> Inspector:
        return self._app._open_inspector()  # noqa: SLF001 - of the app, which makes handles


class BlockingTaskHandle(_Handle[_R_co]):
    """Handle of a task for threads: the blocking counterpart of `TaskHandle`.

    Attributes:
        id: the task's id, unique within its queue.
        queue: the queue that the task is in.
    """

    def wait(self, timeout: Duration | None = None) -> FinishedTask:
        """Wait until the task has ended, blocking this thread; see `TaskHandle.wait`."""
        return self._app.wait_sync(self.queue, self.id, timeout)

    def result(self, timeout: Duration | None = None) -> _R_co:
        """Wait for the handler's return value, blocking this thread; raises as `TaskHandle.result`."""
        return self._value(self._app.result_sync(self.queue, self.id, timeout))

    def info(self) -> TaskInfo:
        """Return the task as Redis has it now; see `TaskHandle.info`."""
        with self._in_queue():
            return self._inspector.task_info(self.queue, self.id)

    def state(self) -> TaskState:
        """Return the task's state now."""
        return self.info().state

    def progress(self) -> TaskProgress | None:
        """Return the last progress report of the handler; None if there is none."""
        return self.info().progress

    def cancel(self, outcome: CancelOutcome = "retry", *, wait: Duration = 0.0) -> CancelResult:
        """Cancel the attempt that runs now; see `TaskHandle.cancel`."""
        with self._in_queue():
            [result] = self._inspector.cancel(self.id, self.queue, outcome, wait=wait)
        return result

    def delete(self) -> None:
        """Delete the task, unless it is active; see `TaskHandle.delete`."""
        with self._in_queue():
            self._inspector.delete_task(self.queue, self.id)

    def run_now(self) -> None:
        """Make the task pending, at the end of its queue; see `TaskHandle.run_now`."""
        with self._in_queue():
            self._inspector.run_task(self.queue, self.id)

    def reschedule(self, process_at: datetime) -> None:
        """Set when the task is due; see `TaskHandle.reschedule`."""
        with self._in_queue():
            self._inspector.update_process_at(self.queue, self.id, process_at)

    @property
    def _inspector(self) -> sync.Inspector:
        return self._app._open_blocking_inspector()  # noqa: SLF001 - of the app, which makes handles


class _Enqueued:
    """Mixin of handles: the description of the task that this process has just enqueued."""

    def __init__(self, info: TaskInfo) -> None:
        self.enqueued = info
        """The task as it was written; `info()` returns it as it is now.

        A repeat that was ignored has written nothing: its `enqueue_status` is `IGNORED`, and the description
        is of the task that was not enqueued, with the state that it would have.
        """
        self._enqueued_at = time.monotonic()

    def _why_missing(self, error: TaskNotFoundError) -> PyasynqError:
        seconds = time.monotonic() - self._enqueued_at
        info = self.enqueued
        if info.enqueue_status is EnqueueStatus.IGNORED:
            return error
        return build_missing_error(info.queue, info.id, info.retention.total_seconds(), seconds)

    def __repr__(self) -> str:
        info = self.enqueued
        is_ignored = info.enqueue_status is EnqueueStatus.IGNORED
        state = info.enqueue_status.value if is_ignored else info.state.value
        return f"<{type(self).__name__} {info.id} of {info.type!r} in queue {info.queue!r}, {state}>"


class EnqueuedTask(_Enqueued, TaskHandle[_R_co]):
    """Handle of a task that has just been enqueued.

    Attributes:
        enqueued: the task as it was written; `info()` returns it as it is now.
    """

    def __init__(self, app: Acting, info: TaskInfo, decode: Callable[[bytes | None], _R_co]) -> None:
        TaskHandle.__init__(self, app, info.queue, info.id, decode)
        _Enqueued.__init__(self, info)

    async def result(self, timeout: Duration | None = None) -> _R_co:
        """Wait until the task has ended, and return what its handler returned; see `TaskHandle.result`."""
        try:
            return await super().result(timeout)
        except TaskNotFoundError as error:
            raise self._why_missing(error) from None


class BlockingEnqueuedTask(_Enqueued, BlockingTaskHandle[_R_co]):
    """Blocking handle of a task that has just been enqueued.

    Attributes:
        enqueued: the task as it was written; `info()` returns it as it is now.
    """

    def __init__(self, app: Acting, info: TaskInfo, decode: Callable[[bytes | None], _R_co]) -> None:
        BlockingTaskHandle.__init__(self, app, info.queue, info.id, decode)
        _Enqueued.__init__(self, info)

    def result(self, timeout: Duration | None = None) -> _R_co:
        """Wait for the handler's return value, blocking this thread; raises as `TaskHandle.result`."""
        try:
            return super().result(timeout)
        except TaskNotFoundError as error:
            raise self._why_missing(error) from None
