"""Thread pool for plain handlers.

Its threads are daemons: at exit the interpreter waits for the threads of `concurrent.futures`, so a handler
that hangs would keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from pyasynq._engine.handlers.routes import await_fully
from pyasynq.context import current_task
from pyasynq.errors import ServerStateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq._engine.run.attempt import Attempt

_T = TypeVar("_T")

current_threads: ContextVar[HandlerThreads] = ContextVar("pyasynq.handler_threads")
"""Thread pool of the server whose handler runs here; set once by each server."""


class _Job(NamedTuple):
    run: Callable[[], Any]
    finish: Callable[[Any, BaseException | None], None]
    attempt: Attempt | None


class HandlerThreads:
    """Thread pool: runs each plain function in an idle thread, or starts one if there is none.

    The pool has no limit of its own: the server's slots limit the number of threads. The event loop and the
    threads write the counts, under the lock.
    """

    def __init__(self, name: str = "pyasynq-handler") -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = 0
        """Number of threads that wait for a job, minus the number of jobs that wait for a thread."""
        self._alive = 0
        self._started = 0
        """Number of threads started, for their names. Written by the loop only."""
        self._closed = False
        """Whether `close` was called. Written and read by the loop only."""
        self._lock = threading.Lock()

    @property
    def alive(self) -> int:
        """Number of threads, idle ones included."""
        return self._alive

    async def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Run a function in a thread, in a copy of the caller's context, and wait until it has ended.

        A thread cannot be stopped. When the caller is cancelled, this still waits for the thread; then it
        raises `CancelledError` and drops the function's result or error. After `close` it does not wait.
        """
        ended = self.start(function, *arguments)
        cancelled = False
        while not ended.done():
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError:
                cancelled = True
                if self._closed:
                    # The server is stopped, and the program around it may be ending.
                    raise
        result, error = ended.result()
        try:
            if cancelled:
                if asyncio.iscoroutine(result):
                    # Closed before its first step; otherwise the interpreter would warn.
                    result.close()
                raise asyncio.CancelledError
            if error is not None:
                raise error
            return result  # type: ignore[no-any-return]
        finally:
            # The error's traceback refers to this frame: without the `del`, each failure would be a reference
            # cycle.
            del result, error, ended

    async def result(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Run a function in a thread, as `call` does; a caller that is cancelled does not wait for it."""
        result, error = await self.start(function, *arguments)
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def start(
        self, function: Callable[..., _T], *arguments: Any
    ) -> asyncio.Future[tuple[Any, BaseException | None]]:
        """Run a function in a thread, in a copy of the caller's context.

        The future's result is the pair of the function's result and error. Cancelling the future does not
        stop the function.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()
        attempt: Attempt | None = current_task.get(None)  # type: ignore[assignment]
        self._submit(_Job(lambda: context.run(function, *arguments), _make_finisher(loop, ended), attempt))
        return ended

    def close(self) -> None:
        """End idle threads; a thread that runs a handler ends after it."""
        self._closed = True
        with self._lock:
            for _ in range(self._alive):
                self._jobs.put(None)

    def _submit(self, job: _Job) -> None:
        with self._lock:
            if job.attempt is not None:
                job.attempt.threads += 1
            if self._idle:
                self._idle -= 1
            else:
                self._alive += 1
                self._started += 1
                threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            result: Any = None
            error: BaseException | None = None
            if job.attempt is not None:
                job.attempt.thread_id = threading.get_ident()
            try:
                result = job.run()
            except BaseException as raised:  # noqa: BLE001 - SystemExit too is a failure of the task only
                error = raised
            with self._lock:
                self._idle += 1
                if job.attempt is not None:
                    job.attempt.threads -= 1
            job.finish(result, error)
            del job, result, error
        with self._lock:
            self._alive -= 1


def _make_finisher(
    loop: asyncio.AbstractEventLoop,
    ended: asyncio.Future[tuple[Any, BaseException | None]],
) -> Callable[[Any, BaseException | None], None]:
    def deliver(result: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((result, error))

    def finish(result: Any, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:
            # The loop was closed while the handler ran, so the result is dropped.
            return

    return finish


def in_thread(function: Callable[..., _T]) -> Callable[..., Awaitable[_T]]:
    """Make a plain function awaitable: it runs in a thread of the server whose handler is running."""

    async def call(*arguments: Any) -> _T:
        threads = current_threads.get(None)
        if threads is None:
            raise ServerStateError(
                "a plain handler was called outside of a server: there are no threads for it"
            )
        result: Any = await threads.call(function, *arguments)
        # A plain wrapper around a coroutine function returns a coroutine, for the loop.
        return cast("_T", await await_fully(result))

    return call
