"""Handles: what waits for a task and reads its result, for coroutines and for threads."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pyasynq._broker.waits.endings import error_of_missing
from pyasynq.errors import PayloadDecodingError, ResultNotKeptError, TaskNotFoundError
from pyasynq.task import EnqueueStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.errors import PyasynqError
    from pyasynq.options import Duration
    from pyasynq.task import FinishedTask, TaskInfo

_R_co = TypeVar("_R_co", covariant=True)


class Waiting(Protocol):
    """Who knows Redis: the app."""

    async def wait(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait for the end of a task."""

    async def result(self, queue: str, task_id: str, timeout: Duration | None = None) -> bytes | None:
        """Wait for the result of a task."""

    def wait_sync(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait for the end of a task, blocking."""

    def result_sync(self, queue: str, task_id: str, timeout: Duration | None = None) -> bytes | None:
        """Wait for the result of a task, blocking."""


class _Handle(Generic[_R_co]):
    """Where a task is, and how its result is read."""

    def __init__(
        self, app: Waiting, queue: str, task_id: str, decode: Callable[[bytes | None], _R_co]
    ) -> None:
        self._app = app
        self._decode = decode
        self.queue = queue
        self.id = task_id

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
    """A task by its id; `_R_co` is what its handler returns.

    Attributes:
        id: the task's id, unique within its queue.
        queue: the queue that the task is in.
    """

    async def wait(self, timeout: Duration | None = None) -> FinishedTask:
        """Wait until the task has ended, whoever runs it; return how. See `Client.wait`."""
        return await self._app.wait(self.queue, self.id, timeout)

    async def result(self, timeout: Duration | None = None) -> _R_co:
        """Wait until the task has ended, and return what its handler returned. See `Client.result`.

        Raises:
            WaitTimeoutError: the task has not ended in time.
            ResultNotKeptError: the task has no retention, is gone after it, or wrote no result.
            TaskFailedError: the task failed for good; the error's message is in it.
            TaskDeletedError: the task was deleted.
            TaskNotFoundError: there was no such task when the wait began.
            PayloadDecodingError: the result does not fit the handler's return annotation.
            RedisError: Redis refuses us, or with a `timeout` of 0 cannot be reached.
        """
        return self._value(await self._app.result(self.queue, self.id, timeout))


class BlockingTaskHandle(_Handle[_R_co]):
    """A task by its id, for threads: what `TaskHandle` does, blocking.

    Attributes:
        id: the task's id, unique within its queue.
        queue: the queue that the task is in.
    """

    def wait(self, timeout: Duration | None = None) -> FinishedTask:
        """Wait until the task has ended, blocking this thread; see `TaskHandle.wait`."""
        return self._app.wait_sync(self.queue, self.id, timeout)

    def result(self, timeout: Duration | None = None) -> _R_co:
        """Wait for what the handler returned, blocking this thread; raises what `TaskHandle.result` does."""
        return self._value(self._app.result_sync(self.queue, self.id, timeout))


class _Enqueued:
    """What is known of a task because it has been enqueued here."""

    def __init__(self, info: TaskInfo) -> None:
        self.info = info
        """The task as it was written."""
        self._enqueued = time.monotonic()

    def _why_missing(self, error: TaskNotFoundError) -> PyasynqError:
        seconds = time.monotonic() - self._enqueued
        info = self.info
        if info.enqueue_status is EnqueueStatus.IGNORED:
            return error
        return error_of_missing(info.queue, info.id, info.retention.total_seconds(), seconds)

    def __repr__(self) -> str:
        info = self.info
        return (
            f"<{type(self).__name__} {info.id} of {info.type!r} in queue {info.queue!r}, {info.state.value}>"
        )


class EnqueuedTask(_Enqueued, TaskHandle[_R_co]):
    """The handle of a call that has just been enqueued.

    Attributes:
        info: the task as it was written.
    """

    def __init__(self, app: Waiting, info: TaskInfo, decode: Callable[[bytes | None], _R_co]) -> None:
        TaskHandle.__init__(self, app, info.queue, info.id, decode)
        _Enqueued.__init__(self, info)

    async def result(self, timeout: Duration | None = None) -> _R_co:
        """Wait until the task has ended, and return what its handler returned; see `TaskHandle.result`."""
        try:
            return await super().result(timeout)
        except TaskNotFoundError as error:
            raise self._why_missing(error) from None


class BlockingEnqueuedTask(_Enqueued, BlockingTaskHandle[_R_co]):
    """The handle of a call that has just been enqueued, for threads.

    Attributes:
        info: the task as it was written.
    """

    def __init__(self, app: Waiting, info: TaskInfo, decode: Callable[[bytes | None], _R_co]) -> None:
        BlockingTaskHandle.__init__(self, app, info.queue, info.id, decode)
        _Enqueued.__init__(self, info)

    def result(self, timeout: Duration | None = None) -> _R_co:
        """Wait for what the handler returned, blocking this thread; raises what `TaskHandle.result` does."""
        try:
            return super().result(timeout)
        except TaskNotFoundError as error:
            raise self._why_missing(error) from None
