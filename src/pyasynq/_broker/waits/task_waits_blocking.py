"""Waiting for the ends of tasks, for threads: one thread with an event loop waits for all of them.

A signal handler may raise an exception between any two steps of a caller, and may wait as well. So callers
hold no lock: each puts its call into a dict and removes it in a `finally`, and the loop serves the calls in
the dict. Each wait of a caller ends after a while to check again.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyasynq._broker.waits.task_waits_async import TaskWaits
from pyasynq._checks import check_name, parse_seconds
from pyasynq._redis.thread_waiter import ThreadWaiter, start_thread
from pyasynq.errors import ClientClosedError, RedisUnavailableError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pyasynq._redis.driver import BlockingDriver
    from pyasynq.options import Duration
    from pyasynq.task import FinishedTask

_T = TypeVar("_T")

_LOOK_AGAIN: Final = 0.5
"""Seconds after which a waiting thread checks for itself, in case its wake-up was lost."""
_DESCRIPTORS: Final = 4
"""Number of file descriptors that an event loop and its first connection need."""


class BlockingTaskWaits:
    """Waits for the ends of tasks, for any number of threads.

    The waiting thread and its connections exist from the first wait to `close`. After a fork, the first wait
    creates new ones.
    """

    def __init__(self, driver: BlockingDriver) -> None:
        self._driver = driver
        self._is_closed = False
        self._thread = _WaitingThread(driver)

    def wait(self, queue: str, task_id: str, timeout: Duration | None) -> FinishedTask:
        """Wait for the end of a task, and return the finished task."""
        return self._do(TaskWaits.wait, queue, task_id, timeout)

    def result(self, queue: str, task_id: str, timeout: Duration | None) -> bytes | None:
        """Wait for the end of a task, and return its result."""
        return self._do(TaskWaits.result, queue, task_id, timeout)

    def close(self) -> None:
        """End all waits; these and later waits raise `ClientClosedError`."""
        self._is_closed = True
        thread = self._thread
        if thread.pid == os.getpid():
            thread.stop()
            thread.join(2 * self._driver.timeout)

    def abandon(self) -> None:
        """Stop the thread without waiting for it; for destructors."""
        if self._thread.pid == os.getpid():
            self._thread.stop()

    def _do(
        self,
        wait: Callable[[TaskWaits, str, str, float | None], Coroutine[Any, Any, _T]],
        queue: str,
        task_id: str,
        timeout: Duration | None,
    ) -> _T:
        check_name("queue", queue)
        check_name("task_id", task_id)
        seconds = None if timeout is None else parse_seconds("timeout", timeout)
        self._driver.check_open()
        thread = self._thread
        if thread.is_over or thread.pid != os.getpid():
            thread = self._thread = thread.successor()
        if self._is_closed:
            thread.stop()
            raise ClientClosedError("the client was closed before it could wait for a task")
        call = _Call(lambda waits: wait(waits, queue, task_id, seconds))
        call.late = WaitTimeoutError(queue, task_id, seconds or 0.0)
        value: _T = thread.perform(call, seconds)
        return value


class _Call:
    """A wait of one thread, for the shared event loop."""

    __slots__ = ("error", "is_done", "is_over", "late", "value", "wait", "waiter")

    def __init__(self, wait: Callable[[TaskWaits], Coroutine[Any, Any, Any]]) -> None:
        self.wait = wait
        self.waiter = ThreadWaiter()
        self.is_over = False
        """Whether its thread has left; written by that thread, read by the loop."""
        self.is_done = False
        self.value: Any = None
        self.error: Exception | None = None
        self.late: Exception = TimeoutError()
        """The error to raise if the loop itself misses the timeout."""

    async def serve(self, waits: TaskWaits) -> None:
        """Wait in the loop, and hand over the result or the error."""
        try:
            self.finish(await self.wait(waits))
        except asyncio.CancelledError:
            self.finish(error=ClientClosedError("the client was closed while it waited for a task"))
            raise
        except Exception as error:  # noqa: BLE001 - the caller gets it
            self.finish(error=error)

    def finish(self, value: Any = None, error: Exception | None = None) -> None:
        """Hand a result or an error to the calling thread, and wake it."""
        if not self.is_done:
            self.value, self.error = value, error
            self.is_done = True
            self.waiter.wake()


class _WaitingThread:
    """Thread with an event loop that waits for blocked threads. It starts with the first call."""

    def __init__(self, driver: BlockingDriver) -> None:
        self.pid = os.getpid()
        self.is_over = False
        """Whether it accepts no more calls."""
        self._driver = driver
        self._calls: dict[_Call, None] = {}
        self._is_starting = False
        self._is_stopping = False
        self._owner: dict[str, threading.Thread] = {}
        self._successor: dict[str, _WaitingThread] = {}
        self._wake_loop: Callable[[], object] | None = None
        self._failure: Exception | None = None

    def successor(self) -> _WaitingThread:
        """Return the thread that replaces this one; the same for all callers."""
        return self._successor.setdefault("next", _WaitingThread(self._driver))

    def perform(self, call: _Call, seconds: float | None) -> Any:
        """Pass a call to the event loop, and block until it ends; return its result, or raise its error.

        The loop ends the call after `seconds`. If the loop itself hangs, this thread gives up two timeouts of
        the driver later.
        """
        try:
            self._calls[call] = None
            if not self._is_starting:
                self._start()
            self._wake()
            self._await(call, seconds)
        finally:
            call.is_over = True
            self._calls.pop(call, None)
            if not call.is_done:
                self._wake()
        if call.error is not None:
            raise call.error
        return call.value

    def stop(self) -> None:
        """Tell the thread to end."""
        self._is_stopping = True
        self._wake()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, for at most this many seconds."""
        thread = self._owner.get("thread")
        if thread is not None:
            thread.join(seconds)

    def _await(self, call: _Call, seconds: float | None) -> None:
        limit = None if seconds is None else time.monotonic() + seconds + 2 * self._driver.timeout
        while not call.is_done:
            if self.is_over:
                call.finish(error=self._reason())
            elif limit is not None and time.monotonic() > limit:
                call.finish(error=call.late)
            elif not call.waiter.wait(_LOOK_AGAIN):
                if "thread" not in self._owner:  # the caller that was starting it was interrupted
                    self._start()
                self._wake()

    def _start(self) -> None:
        self._is_starting = True
        try:
            start_thread(self._run, "pyasynq waits")
        except RuntimeError as error:
            self._end(error)

    def _run(self) -> None:
        me = threading.current_thread()
        if self._owner.setdefault("thread", me) is not me:
            return
        try:
            _check_descriptors()
            with asyncio.Runner() as runner:
                runner.run(self._serve())
        except Exception as error:  # noqa: BLE001 - the callers get it
            self._end(error)
        else:
            self._end(None)

    async def _serve(self) -> None:
        changed = asyncio.Event()
        self._wake_loop = partial(asyncio.get_running_loop().call_soon_threadsafe, changed.set)
        twin = self._driver.for_asyncio()
        waits = TaskWaits(twin)
        serving: dict[_Call, asyncio.Task[None]] = {}
        while not self._is_stopping:
            changed.clear()
            for call in list(self._calls):
                if call not in serving:
                    serving[call] = asyncio.create_task(call.serve(waits))
            for call in [call for call in serving if call.is_over or call.is_done]:
                serving.pop(call).cancel()
            await changed.wait()
        await waits.close()
        if serving:
            # These waits have begun: each must end with `ClientClosedError` before the driver is closed.
            for task in serving.values():
                task.cancel()
            await asyncio.wait(serving.values())
        await twin.close()

    def _end(self, failure: Exception | None) -> None:
        """Accept no more calls, and fail the waiting ones."""
        self._failure = failure
        self._wake_loop = None
        self.is_over = True
        for call in list(self._calls):
            call.finish(error=self._reason())

    def _reason(self) -> Exception:
        if self._failure is None:
            return ClientClosedError("the client was closed while it waited for a task")
        address = self._driver.target.address
        return RedisUnavailableError(address, f"no thread can wait for it: {self._failure}")

    def _wake(self) -> None:
        wake = self._wake_loop
        if wake is not None:
            try:
                wake()
            except RuntimeError:  # the loop has been closed
                return


def _check_descriptors() -> None:
    """Raise `OSError` if there are too few file descriptors for an event loop.

    A half-made event loop complains on standard error when it is destroyed.
    """
    found: list[int] = []
    try:
        while len(found) < _DESCRIPTORS:
            found.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for descriptor in found:
            os.close(descriptor)
