"""Coroutines for tests without an event loop: a thread runs the loop, the test's thread runs plain handlers.

Database connections of Django, and many other objects, belong to the thread that made them. Plain handlers
run in the thread of the test, which is blocked meanwhile, so they see the test's uncommitted changes.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyasynq._engine.handlers.threads import HandlerThreads
from pyasynq.errors import ServerStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pyasynq._engine.handlers.threads import _Job

_T = TypeVar("_T")


class CallerThread(HandlerThreads):
    """Runs plain functions in the one thread that calls `serve`, one after another.

    Attributes:
        on_interrupt: called when Ctrl-C ends one of the functions.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_interrupt: Callable[[], object] = lambda: None
        self._interrupt: KeyboardInterrupt | None = None

    def _submit(self, job: _Job) -> None:
        if job.attempt is not None:
            job.attempt.threads += 1
        self._jobs.put(job._replace(run=functools.partial(self._watch, job.run)))

    def _watch(self, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except KeyboardInterrupt as interrupt:
            # Python raises KeyboardInterrupt only in the main thread. It is meant for the test, not for the
            # task.
            self._interrupt = interrupt
            self.on_interrupt()
            raise

    def serve(self) -> None:
        """Run submitted jobs until `close`. Raises `KeyboardInterrupt` at the end if Ctrl-C ended a job."""
        self._work()
        if self._interrupt is not None:
            raise self._interrupt

    def close(self) -> None:
        """End `serve` after its current job."""
        self._closed = True
        self._jobs.put(None)


def run_blocking(method: str, work: Callable[[CallerThread], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine in a new event loop; this thread runs the plain functions that it submits.

    Raises:
        ServerStateError: in a thread whose event loop runs.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise ServerStateError(
            f"{method}_sync() would block the event loop of this test: write `await kit.{method}(...)`"
        )
    threads = CallerThread()
    run = _Run(work, threads)
    threads.on_interrupt = run.cancel
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run.main,), name="pyasynq-testing", daemon=True)
    thread.start()
    try:
        threads.serve()
    except BaseException:
        # After Ctrl-C, the loop puts running tasks back, and waits for submitted functions before it ends.
        run.cancel()
        if thread.is_alive():
            threads.serve()
        raise
    finally:
        thread.join()
    return run.result()


class _Run(Generic[_T]):
    """A coroutine that runs in an event loop in its own thread."""

    def __init__(
        self, work: Callable[[CallerThread], Coroutine[Any, Any, _T]], threads: CallerThread
    ) -> None:
        self._work = work
        self._threads = threads
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._value: Any = None
        self._error: BaseException | None = None

    def main(self) -> None:
        """Run the coroutine, in the thread."""
        try:
            self._value = asyncio.run(self._main())
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._error = error
        finally:
            self._threads.close()

    async def _main(self) -> Any:
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        return await self._work(self._threads)

    def cancel(self) -> None:
        """Cancel the coroutine, from another thread."""
        if self._loop is not None and self._task is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)

    def result(self) -> _T:
        """Return the result of the coroutine, or raise its error."""
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            value: _T = self._value
            return value
        finally:
            del error
