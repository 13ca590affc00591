"""Threads for plain handlers.

They are daemons of our own: the interpreter waits at exit for those of `concurrent.futures`, and a handler
that hangs would keep the process from ending.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from pyasynq._engine.handlers.routes import awaited
from pyasynq.context import current_task
from pyasynq.errors import ServerStateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq._engine.run.attempt import Attempt

_T = TypeVar("_T")

current_threads: ContextVar[HandlerThreads] = ContextVar("pyasynq.handler_threads")
"""The threads of the server whose handler runs here; set once for each server."""


class _Job(NamedTuple):
    run: Callable[[], Any]
    finish: Callable[[Any, BaseException | None], None]
    attempt: Attempt | None


class HandlerThreads:
    """Runs plain functions, each in a thread of its own; idle threads are used again.

    The slots of the server are their limit. The counts are written under the lock, by the event loop and by
    the threads themselves.
    """

    def __init__(self, name: str = "pyasynq-handler") -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = 0
        """Threads that wait for a job, less the jobs that wait for one of them."""
        self._alive = 0
        self._started = 0
        """Threads started so far, for their names. Written by the loop alone."""
        self._closed = False
        """Written and read by the loop alone."""
        self._lock = threading.Lock()

    @property
    def alive(self) -> int:
        """How many threads there are, idle ones included."""
        return self._alive

    async def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Run a function in a thread, within a copy of the caller's context, and wait until it has ended.

        A thread cannot be stopped. When the caller is cancelled, this still waits for the thread; it
        raises `CancelledError` then, and what the function returned or raised is dropped. After `close`,
        it does not wait.
        """
        ended = self.start(function, *arguments)
        cancelled = False
        while not ended.done():
            try:
                await asyncio.shield(ended)
            except asyncio.CancelledError:
                cancelled = True
                if self._closed:
                    # The server is gone, and the program that it was part of wants to end too.
                    raise
        result, error = ended.result()
        try:
            if cancelled:
                if asyncio.iscoroutine(result):
                    # Dropped before its first step; the interpreter would warn of it.
                    result.close()
                raise asyncio.CancelledError
            if error is not None:
                raise error
            return result  # type: ignore[no-any-return]
        finally:
            # The error's traceback holds this frame; without this each failure is a reference cycle.
            del result, error, ended

    def start(
        self, function: Callable[..., _T], *arguments: Any
    ) -> asyncio.Future[tuple[Any, BaseException | None]]:
        """Run a function in a thread, within a copy of the caller's context.

        The future gives what it returned and what it raised; a future that is cancelled does not stop it.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()
        attempt: Attempt | None = current_task.get(None)  # type: ignore[assignment]
        self._submit(_Job(lambda: context.run(function, *arguments), _finisher(loop, ended), attempt))
        return ended

    def close(self) -> None:
        """Let idle threads end; those that still run a handler end after it."""
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
            except BaseException as raised:  # noqa: BLE001 - SystemExit too is the task's failure, not the thread's
                error = raised
            with self._lock:
                self._idle += 1
                if job.attempt is not None:
                    job.attempt.threads -= 1
            job.finish(result, error)
            del job, result, error
        with self._lock:
            self._alive -= 1


def _finisher(
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
            # The loop was closed while the handler ran: nobody waits for the result any more.
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
        return cast("_T", await awaited(result))

    return call
