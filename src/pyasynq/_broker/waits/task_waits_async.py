"""Waiting for the ends of tasks: all waits share one connection woken by Redis, and one poll.

Each awaited task is one key that Redis watches. A change of it causes a check, and so does a poll
every second, in case the push was lost. Nothing is written to Redis, so settling costs no more.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import os
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyasynq._broker.waits.endings import check_task, decode_result
from pyasynq._broker.waits.watched_task import Waiter, WatchedTask
from pyasynq._checks import check_name, parse_seconds
from pyasynq._redis.key_watcher import Watcher
from pyasynq._redis.loop_local import LoopLocal
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import ClientClosedError, PyasynqError, WaitTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyasynq._broker.waits.endings import TaskCheck
    from pyasynq._redis.driver import AsyncDriver
    from pyasynq.options import Duration
    from pyasynq.task import FinishedTask

_ARM_PATIENCE: Final = 0.5
_LINGER: Final = 5.0
"""Seconds after the last wait for which the connection is kept for the next one."""


class _ChangeListener:
    """The connection on which Redis pushes changes of keys (client tracking).

    If Redis does not confirm a request within half a second, waits poll.
    """

    def __init__(self, driver: AsyncDriver, on_change: Callable[[str], object]) -> None:
        self._watcher = Watcher(
            driver.target,
            on_change,
            instead="waits for tasks poll",
            timeout=driver.timeout,
            on_warning=driver.warn_once,
        )
        self._arming: asyncio.Task[bool] | None = None
        self._known: set[str] = set()

    async def arm(self, keys: Collection[str]) -> bool:
        """Request a push at the next change of each key; return whether Redis has confirmed that in time.

        While an earlier request is unconfirmed, request nothing, and return False.
        """
        if self._arming is not None and self._arming.done():
            self._arming = None
        if self._arming is not None or not self._watcher.supported:
            return False
        self._known.update(keys)
        self._arming = asyncio.create_task(self._watcher.arm(*keys))
        done, _ = await asyncio.wait({self._arming}, timeout=_ARM_PATIENCE)
        return bool(done) and self._arming.result()

    def keep(self, keys: Collection[str]) -> None:
        """Watch only these keys from now on; stop watching all others."""
        if len(keys) < len(self._known):
            self._watcher.forget(*(self._known - keys))  # type: ignore[operator] # a view of a dict's keys
            self._known.intersection_update(keys)

    async def close(self) -> None:
        """Close the connection."""
        if self._arming is not None:
            self._arming.cancel()
            await asyncio.wait({self._arming})
        await self._watcher.close()


class _LoopWaits:
    """The waits of one event loop, and the task that checks for all of them."""

    def __init__(self, driver: AsyncDriver) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.get_running_loop()
        self._driver = driver
        self._watched: dict[str, WatchedTask] = {}
        self._changed: dict[str, None] = {}
        self._polls: list[tuple[float, str]] = []
        """Heap of the next checks: monotonic time and key.

        An entry is ignored if its task is due at another time by now.
        """
        self._wake = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._runners: set[asyncio.Task[None]] = set()
        """The runner, and earlier ones that are still closing their connections."""

    def enter(self, queue: str, task_id: str, *, for_result: bool) -> tuple[WatchedTask, Waiter]:
        """Begin to wait; return the task and its new waiter. The first check is made at once.

        `for_result` also ends the wait when a result cannot come any more.
        """
        key = queue_keys(queue).task(task_id)
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = WatchedTask(queue, task_id, key)
        waiter = Waiter(self.loop.create_future(), self.loop.create_future(), for_result)
        watched.waiters.append(waiter)
        self._on_change(key)
        if self._runner is None:
            self._runner = self.loop.create_task(self._run(), name="pyasynq waits for tasks")
            self._runners.add(self._runner)
            self._runner.add_done_callback(self._runners.discard)
        return watched, waiter

    def leave(self, watched: WatchedTask, waiter: Waiter) -> None:
        """End one wait for a task; other waits for it continue."""
        watched.waiters.remove(waiter)
        if not waiter.ended.cancel() and not waiter.ended.cancelled():
            waiter.ended.exception()  # marks the error as retrieved
        if not watched.waiters:
            del self._watched[watched.key]

    @property
    def is_idle(self) -> bool:
        """Whether there are no waits."""
        return not self._watched

    async def close(self) -> None:
        """End all waits, and close the connection."""
        if self._runner is not None:
            self._runner.cancel()
        if self._runners:
            await asyncio.wait(self._runners)

    def abandon(self) -> None:
        """End all waits and close the connection, from another thread and without waiting for the end."""
        if self._runner is not None and self.pid == os.getpid() and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._runner.cancel)

    def _on_change(self, key: str) -> None:
        watched = self._watched.get(key)
        if watched is None:
            return
        now = time.monotonic()
        due = watched.note_change(now)
        if due <= now:
            self._changed[key] = None
        else:
            self._poll_at(watched, due)
        self._wake.set()

    def _poll_at(self, watched: WatchedTask, due: float) -> None:
        if due < watched.due:
            watched.due = due
            heapq.heappush(self._polls, (due, watched.key))

    async def _run(self) -> None:
        listener = _ChangeListener(self._driver, self._on_change)
        try:
            until = time.monotonic() + _LINGER
            while self._watched or time.monotonic() < until:
                if self._watched:
                    until = time.monotonic() + _LINGER
                listener.keep(self._watched.keys())
                if due := self._take_due():
                    await self._check(due, listener)
                await self._rest(until)
        except asyncio.CancelledError:
            self._fail_all(ClientClosedError("the client was closed while it waited for a task"))
            raise
        except Exception as error:
            self._fail_all(error)
            raise
        finally:
            # From here on a new wait starts another runner, next to the one that ends here.
            self._runner = None
            await listener.close()

    def _fail_all(self, error: Exception) -> None:
        for watched in self._watched.values():
            watched.note_error(error)

    def _take_due(self) -> list[WatchedTask]:
        self._wake.clear()
        keys, self._changed = self._changed, {}
        now = time.monotonic()
        while self._polls and self._polls[0][0] <= now:
            due, key = heapq.heappop(self._polls)
            if key in self._watched and self._watched[key].due == due:
                keys[key] = None
        return [self._watched[key] for key in keys if key in self._watched]

    async def _check(self, due: Sequence[WatchedTask], listener: _ChangeListener) -> None:
        for watched in due:
            watched.due = math.inf
        # Watch before reading: a change after the read is then pushed.
        told = await listener.arm([watched.key for watched in due])
        began = time.monotonic()
        for watched in due:
            watched.checked = began
        plans = [
            check_task(
                watched.queue, watched.id, briefly=watched.retention is not None, clock=self._driver.clock
            )
            for watched in due
        ]
        asked = [list(watched.waiters) for watched in due]
        found: Sequence[TaskCheck | Exception]
        try:
            found = await self._driver.run_batch(plans)
        except PyasynqError as error:
            found = [error] * len(due)
        for watched, waiters, one in zip(due, asked, found, strict=True):
            if isinstance(one, Exception):
                watched.note_error(one)
            else:
                watched.note_check(one, began)
            self._poll_at(watched, watched.next_poll(began, told=told))
            for waiter in waiters:
                if not waiter.checked.done():
                    waiter.checked.set_result(None)

    async def _rest(self, until: float) -> None:
        if self._polls:
            until = self._polls[0][0]
        seconds = until - time.monotonic()
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        alarm = self.loop.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            alarm.cancel()


class TaskWaits:
    """Waits for the ends of tasks, in each event loop that calls it.

    Threads with a loop each may share it. The connection that it opens in a loop is closed five seconds after
    the last wait there.
    """

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver
        self._per_loop = LoopLocal(partial(_LoopWaits, driver), _LoopWaits.abandon)

    async def wait(self, queue: str, task_id: str, timeout: Duration | None) -> FinishedTask:
        """Wait for the end of a task, and return the finished task."""
        return (await self._wait(queue, task_id, timeout, for_result=False))[0]

    async def result(self, queue: str, task_id: str, timeout: Duration | None) -> bytes | None:
        """Wait for the end of a task, and return its result."""
        return decode_result(*await self._wait(queue, task_id, timeout, for_result=True))

    async def close(self) -> None:
        """End all waits; they raise `ClientClosedError`."""
        own, others = self._per_loop.own(), self._per_loop.others()
        self._per_loop.forget()
        for other in others:
            other.abandon()
        if own is not None:
            await own.close()

    def abandon(self) -> None:
        """Release the connections from outside their loops; for destructors."""
        all_waits = self._per_loop.all()
        self._per_loop.forget()
        for waits in all_waits:
            waits.abandon()

    async def _wait(
        self,
        queue: str,
        task_id: str,
        timeout: Duration | None,
        *,
        for_result: bool,
    ) -> tuple[FinishedTask, float | None]:
        check_name("queue", queue)
        check_name("task_id", task_id)
        seconds = None if timeout is None else parse_seconds("timeout", timeout)
        self._driver.check_open()
        waits = self._per_loop.here()
        watched, waiter = waits.enter(queue, task_id, for_result=for_result)
        try:
            if seconds == 0:
                return await self._check_once(watched, waiter), watched.retention
            async with asyncio.timeout(seconds):
                return await waiter.ended, watched.retention
        except TimeoutError as error:
            if waiter.ended.done() and not waiter.ended.cancelled():
                return waiter.ended.result(), watched.retention
            if isinstance(error, PyasynqError):
                raise
            raise WaitTimeoutError(queue, task_id, seconds or 0.0) from watched.trouble
        finally:
            waits.leave(watched, waiter)
            if not self._driver.stays_open and waits.is_idle:
                await waits.close()

    @staticmethod
    async def _check_once(watched: WatchedTask, waiter: Waiter) -> FinishedTask:
        futures: list[asyncio.Future[Any]] = [waiter.checked, waiter.ended]
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        if waiter.ended.done():
            return waiter.ended.result()
        if watched.trouble is not None:
            raise watched.trouble
        raise WaitTimeoutError(watched.queue, watched.id, 0.0)
