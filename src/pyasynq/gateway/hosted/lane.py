"""Lane: the queues of one host, from which as many tasks are leased as may run there at once.

Each host has a lane of its own, so that a slow host delays its own tasks only (the bulkhead pattern). All
commands share one lane.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.control import Retry
from pyasynq.errors import (
    AttemptSettledError,
    ConfigurationError,
    LeaseExpiredError,
    PyasynqError,
    ServerStateError,
    TaskCanceledError,
    TaskTimeoutError,
)

from .outcome import settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pyasynq.consumer import Attempt, Consumer
    from pyasynq.gateway.leases.acts import DelayOfFailure

    from .outcome import HostedOutcome

    Handle = Callable[[Attempt], Awaitable[HostedOutcome]]

_log = logging.getLogger("pyasynq.gateway")

_LEASE_SECONDS: Final = 30.0
"""Seconds of a lease: the maximum delay after a crash until a task runs again."""
_RENEW_SECONDS: Final = _LEASE_SECONDS / 3
_WAIT_SECONDS: Final = 20.0
"""Maximum seconds of one call that waits for tasks."""
_PAUSE_SECONDS: Final = 1.0
"""Seconds until the next call after a failed one."""
_BATCH: Final = 100


class Lane:
    """Leases tasks of its queues and runs the handler for each. Belongs to one event loop.

    Args:
        name: for logs.
        consumer: of the instance; it serves the queues.
        handle: runs one attempt, and returns its outcome.
        retry_delay: delay of a failed task.
        slots: number of tasks at once.
    """

    def __init__(
        self,
        name: str,
        consumer: Consumer,
        handle: Handle,
        *,
        retry_delay: DelayOfFailure,
        slots: int,
    ) -> None:
        self.name = name
        self._consumer = consumer
        self._handle = handle
        self._retry_delay = retry_delay
        self._slots = slots
        self._queues: tuple[str, ...] = ()
        self._open_at = 0.0
        """Time of the loop until which the host is left alone."""
        self._changed = asyncio.Event()
        """Set when something changed for which the lane may wait."""
        self._running: dict[asyncio.Task[None], Attempt] = {}
        self._leasing: asyncio.Task[None] | None = None
        self._abandoned: set[asyncio.Task[None]] = set()
        """Cancelled calls for tasks, which put back what they took."""
        self._is_closing = False

    @property
    def running(self) -> int:
        """Number of tasks that run now."""
        return len(self._running)

    @property
    def queues(self) -> tuple[str, ...]:
        """Names of the queues, in alphabetical order."""
        return self._queues

    def set_queues(self, queues: Iterable[str]) -> None:
        """Lease from these queues from now on."""
        names = tuple(sorted(queues))
        if names != self._queues:
            self._queues = names
            self._restart()

    def throttle(self, seconds: float) -> None:
        """Pause the host for a while: no task is leased, and none is started."""
        self._open_at = max(self._open_at, asyncio.get_running_loop().time() + seconds)
        self._restart()

    def _restart(self) -> None:
        """Lease again from the start; cancelling the current call puts its tasks back."""
        self._changed.set()
        if self._leasing is not None:
            self._leasing.cancel()
            self._abandoned.add(self._leasing)
            self._leasing.add_done_callback(self._abandoned.discard)
        self._leasing = None
        if self._queues and not self._is_closing:
            self._leasing = asyncio.create_task(self._lease_all(), name=f"pyasynq hosted {self.name}")

    def stop(self) -> None:
        """Lease nothing more."""
        self._is_closing = True
        self._restart()

    async def close(self, timeout: float, *, patience: float | None = None) -> None:
        """Stop leasing, wait for running tasks, and put back those that do not end in time.

        Args:
            timeout: seconds to wait for what was told to end.
            patience: seconds until it is told; as `timeout` unless given.
        """
        self.stop()
        if self._running:
            await asyncio.wait(self._running, timeout=timeout if patience is None else patience)
        left = list(self._running)
        for task in left:
            task.cancel()
        if left or self._abandoned:
            await asyncio.wait([*left, *self._abandoned], timeout=timeout)

    async def _lease_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            closed_for = self._open_at - loop.time()
            free = self._slots - len(self._running)
            if closed_for > 0 or free <= 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(closed_for if closed_for > 0 else None):
                        await self._changed.wait()
                continue
            try:
                attempts = await self._consumer.lease(
                    *self._queues, limit=min(free, _BATCH), wait=_WAIT_SECONDS, duration=_LEASE_SECONDS
                )
            except ServerStateError:
                return
            except ConfigurationError:
                await asyncio.sleep(_PAUSE_SECONDS)  # a queue is being served or dropped just now
                continue
            except PyasynqError as error:
                _log.debug("no task was leased for %s: %s", visible(self.name), visible(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            for attempt in attempts:
                task = asyncio.create_task(self._run(attempt), name="pyasynq hosted attempt")
                self._running[task] = attempt
                task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("a hosted attempt failed", exc_info=task.exception())

    async def _run(self, attempt: Attempt) -> None:
        """Run an attempt with its lease renewed, and settle it."""
        try:
            outcome = await self._handle_leased(attempt)
        except (TaskCanceledError, TaskTimeoutError, LeaseExpiredError, AttemptSettledError):
            return  # it was settled without us
        except asyncio.CancelledError:
            await _put_back(attempt)
            raise
        try:
            await settle(attempt, outcome, self._retry_delay)
        except (TaskCanceledError, TaskTimeoutError, LeaseExpiredError, AttemptSettledError) as error:
            _log.debug("task %s was settled otherwise: %s", visible(attempt.id), visible(error))
        except PyasynqError as error:
            _log.warning("task %s was not settled: %s", visible(attempt.id), visible(error))

    async def _handle_leased(self, attempt: Attempt) -> HostedOutcome:
        """Return the outcome of the handler.

        Raises:
            PyasynqError: the attempt has ended, as raised by `Attempt.extend`.
        """
        work = asyncio.ensure_future(self._handle(attempt))
        watch = asyncio.create_task(_hold(attempt), name="pyasynq hosted lease")
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                watch.result()  # raises why it ended
            try:
                return work.result()
            except Exception as error:  # noqa: BLE001 - a handler's error is the task's
                _log.exception("the handler of %s failed", visible(attempt.task.type))
                return Retry(reason=f"{type(error).__name__} in the service")
        finally:
            for one in (work, watch):
                one.cancel()
            await asyncio.wait({work, watch})


async def _hold(attempt: Attempt) -> None:
    """Renew the lease of an attempt until the attempt ends without its handler; then raise the cause."""
    cancelled = asyncio.create_task(attempt.wait_cancelled(), name="pyasynq hosted cancellation")
    try:
        while True:
            done, _ = await asyncio.wait({cancelled}, timeout=_RENEW_SECONDS)
            if done:
                reason = cancelled.result()
                raise reason if reason is not None else LeaseExpiredError
            try:
                await attempt.extend(_LEASE_SECONDS)
            except (TaskCanceledError, TaskTimeoutError, LeaseExpiredError, AttemptSettledError):
                raise
            except PyasynqError as error:
                _log.debug("lease of task %s was not renewed: %s", visible(attempt.id), visible(error))
    finally:
        cancelled.cancel()


async def _put_back(attempt: Attempt) -> None:
    """Put an attempt back to the front of its queue at a shutdown."""
    try:
        await attempt.requeue()
    except PyasynqError as error:
        _log.debug("task %s was not put back: %s", visible(attempt.id), visible(error))
