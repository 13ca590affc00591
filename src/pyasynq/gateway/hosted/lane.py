"""Lane (bulkhead): a concurrency limit for the queues of one host, or for all commands.

Each host has a lane of its own, so that a slow host delays only its own tasks. All commands share one lane.
A lane's slots limit the running tasks of this instance, without a call to Redis. `HostAdmission` then applies
the limits over all instances.
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

from .outcome import Throttled, settle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from pyasynq.consumer import Attempt, Consumer
    from pyasynq.gateway.leases.acts import DelayOfFailure

    from .admission import AdmittedRequests, HostAdmission
    from .outcome import HostedOutcome

    Handle = Callable[[Attempt], Awaitable[HostedOutcome]]
    PutOffTask = Callable[[Attempt, Throttled], HostedOutcome]

_log = logging.getLogger("pyasynq.gateway")

_LEASE_SECONDS: Final = 30.0
"""Seconds of a lease: the maximum delay after a crash until a task runs again."""
_RENEW_SECONDS: Final = _LEASE_SECONDS / 3
_WAIT_SECONDS: Final = 20.0
"""Maximum seconds that one lease call waits for tasks (long poll)."""
_PAUSE_SECONDS: Final = 1.0
"""Seconds until the next call after a failed one."""
_BATCH: Final = 100


class Lane:
    """Leases tasks of its queues and runs the handler for each. Belongs to one event loop.

    Args:
        name: for logs.
        consumer: consumer of the instance; it serves the queues.
        handle: function that runs one attempt, and returns its outcome.
        retry_delay: returns the seconds until a failed task is retried; None is the back-off of Asynq.
        slots: maximum number of tasks that run at once.
        admission: applies the host's limits over all instances; None admits all tasks.
        put_off: returns the outcome of a task whose host is throttled; required if `admission` is given.
    """

    def __init__(
        self,
        name: str,
        consumer: Consumer,
        handle: Handle,
        *,
        retry_delay: DelayOfFailure,
        slots: int,
        admission: HostAdmission | None = None,
        put_off: PutOffTask | None = None,
    ) -> None:
        self.name = name
        self._consumer = consumer
        self._handle = handle
        self._retry_delay = retry_delay
        self._slots = slots
        self._admission = admission
        self._put_off = put_off
        self._queues: tuple[str, ...] = ()
        self._changed = asyncio.Event()
        """Event that wakes the waiting lane: set when a task has ended, and when the lease loop restarts."""
        self._running: dict[asyncio.Task[None], Attempt] = {}
        self._leasing: asyncio.Task[None] | None = None
        self._abandoned: set[asyncio.Task[None]] = set()
        """Cancelled lease loops (asyncio tasks), each until it has put back the tasks that it took."""
        self._is_closing = False

    @property
    def running(self) -> int:
        """Number of tasks that run now."""
        return len(self._running)

    @property
    def is_throttled(self) -> bool:
        """Whether the host has asked for a pause (429 or 503) that is not over."""
        return self._admission is not None and self._admission.is_throttled

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

    async def throttle(self, seconds: float) -> None:
        """Pause the host for a while, in all instances: no task is leased, and none is started."""
        if self._admission is not None:
            self._admission.note_throttled(seconds)
            self._restart()
            await self._admission.close_gate(seconds)

    def _restart(self) -> None:
        """Start a new loop of lease calls. The cancelled call of the former loop puts its tasks back."""
        self._changed.set()
        if self._leasing is not None:
            self._leasing.cancel()
            self._abandoned.add(self._leasing)
            self._leasing.add_done_callback(self._abandoned.discard)
        self._leasing = None
        if self._queues and not self._is_closing:
            self._leasing = asyncio.create_task(self._lease_all(), name=f"pyasynq hosted {self.name}")

    def stop(self) -> None:
        """Lease no more tasks; running ones continue."""
        self._is_closing = True
        self._restart()

    async def close(self, timeout: float, *, patience: float | None = None) -> None:
        """Stop leasing, wait for running tasks, and requeue the tasks that do not end in time.

        Args:
            timeout: seconds to wait for tasks after they were cancelled.
            patience: seconds until running tasks are cancelled; by default as `timeout`.
        """
        self.stop()
        if self._running:
            await asyncio.wait(self._running, timeout=timeout if patience is None else patience)
        left = list(self._running)
        for task in left:
            task.cancel()
        if left or self._abandoned:
            await asyncio.wait([*left, *self._abandoned], timeout=timeout)
        if self._admission is not None:
            await self._admission.close()

    async def _lease_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            now, slots = loop.time(), self._slots
            pause: float | None = None
            if self._admission is not None:
                slots = min(slots, self._admission.find_window(now))
                pause = self._admission.find_pause(now) or None
            free = min(_BATCH, slots - len(self._running))
            if free <= 0 and pause is None and self._admission is not None:
                pause = self._admission.find_step(now)
            if pause is not None or free <= 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                continue
            if self._admission is not None:
                free = min(free, self._admission.count_tokens(now))
            try:
                attempts = await self._consumer.lease(
                    *self._queues, limit=free, wait=_WAIT_SECONDS, duration=_LEASE_SECONDS
                )
            except ServerStateError:
                return
            except ConfigurationError:
                await asyncio.sleep(_PAUSE_SECONDS)  # a queue is being added or dropped at this moment
                continue
            except PyasynqError as error:
                _log.debug("no task was leased for %s: %s", visible(self.name), visible(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            await self._start(attempts)

    async def _start(self, attempts: Sequence[Attempt]) -> None:
        """Start an asyncio task for each attempt, and wait for the host's admission.

        Cancelling this call stops no attempt.
        """
        admission = None
        if self._admission is not None and attempts:
            admission = asyncio.create_task(self._admission.admit(len(attempts)), name="pyasynq admission")
        for place, attempt in enumerate(attempts):
            task = asyncio.create_task(self._run(attempt, place, admission), name="pyasynq hosted attempt")
            self._running[task] = attempt
            task.add_done_callback(self._end)
        if admission is not None:
            await asyncio.wait({admission})

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            _log.error("a hosted attempt failed", exc_info=task.exception())

    async def _run(
        self, attempt: Attempt, place: int, admission: asyncio.Task[AdmittedRequests] | None
    ) -> None:
        """Run an attempt, if it is admitted, and settle it. Its lease is renewed while it runs."""
        try:
            outcome = await self._handle_admitted(attempt, place, admission)
        except (TaskCanceledError, TaskTimeoutError, LeaseExpiredError, AttemptSettledError):
            return  # the attempt has ended without its handler, so nothing is left to settle
        except asyncio.CancelledError:
            await _put_back(attempt)
            raise
        try:
            await settle(attempt, outcome, self._retry_delay)
        except (TaskCanceledError, TaskTimeoutError, LeaseExpiredError, AttemptSettledError) as error:
            _log.debug("task %s was settled otherwise: %s", visible(attempt.id), visible(error))
        except PyasynqError as error:
            _log.warning("task %s was not settled: %s", visible(attempt.id), visible(error))

    async def _handle_admitted(
        self, attempt: Attempt, place: int, admission: asyncio.Task[AdmittedRequests] | None
    ) -> HostedOutcome:
        """Run the handler if the host admits the attempt; return its outcome, or the outcome of a refusal.

        Raises:
            PyasynqError: the attempt ended meanwhile, as `Attempt.extend` raises.
        """
        if self._admission is None or admission is None:
            return await self._handle_leased(attempt)
        admitted = await asyncio.shield(admission)  # all attempts of the lease wait for this answer
        if place >= len(admitted.ids):
            refusal = admitted.refusal
            if not isinstance(refusal, Throttled):
                return refusal
            assert self._put_off is not None  # noqa: S101 - given with the admission
            return self._put_off(attempt, refusal)
        try:
            return await self._handle_leased(attempt)
        finally:
            await self._admission.release(admitted.ids[place])

    async def _handle_leased(self, attempt: Attempt) -> HostedOutcome:
        """Run the handler while the lease is renewed; return its outcome.

        Raises:
            PyasynqError: the attempt has ended, as raised by `Attempt.extend`.
        """
        work = asyncio.ensure_future(self._handle(attempt))
        watch = asyncio.create_task(_hold(attempt), name="pyasynq hosted lease")
        try:
            await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                watch.result()  # raises the cause for which the attempt ended
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
