"""Worker side of a Gearman connection: its functions, the jobs that it grabs, and their ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.errors import (
    AttemptSettledError,
    LeaseExpiredError,
    PyasynqError,
    ServerStateError,
    TaskCanceledError,
    TaskTimeoutError,
)
from pyasynq.gateway.waits import WaitEndedError

from .handles import new_attempt_handle
from .packets import PacketType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq.consumer import Attempt

    from .parts import DoorParts

    Send = Callable[..., None]

_log = logging.getLogger("pyasynq.gateway")

UNIQUE_HEADER: Final = "gearman-unique"
_LEASE_SECONDS: Final = 30.0
_RENEW_SECONDS: Final = _LEASE_SECONDS / 3
_GRAB_SECONDS: Final = 2.0
"""Maximum seconds until a woken worker grabs its reserved job."""
_PAUSE_SECONDS: Final = 1.0
_SETTLED_ELSEWHERE: Final = (TaskCanceledError, TaskTimeoutError, LeaseExpiredError, AttemptSettledError)


@dataclass(eq=False)
class _Job:
    """A job that the worker runs."""

    attempt: Attempt
    renewal: asyncio.Task[None]


class WorkerSide:
    """Worker side of a Gearman connection.

    The connection is the worker's heartbeat: when it breaks, a crash is counted for each running job.

    Args:
        parts: objects that all connections of the Gearman server share.
        send: sends a packet.
        name: returns the worker's name, for progress and logs.
    """

    def __init__(self, parts: DoorParts, send: Send, name: Callable[[], str]) -> None:
        self._parts = parts
        self._send = send
        self._name = name
        self.functions: dict[str, None] = {}
        """Functions that it can run, in the order in which it named them."""
        self._jobs: dict[bytes, _Job] = {}
        """Jobs by the handles of their attempts."""
        self._sleep: asyncio.Task[None] | None = None
        """Asyncio task that waits for a job while the worker sleeps; None otherwise."""
        self._reserved: Attempt | None = None
        """The job that the worker was woken for, until it grabs it."""

    @property
    def running(self) -> int:
        """Number of jobs that the worker runs."""
        return len(self._jobs)

    @property
    def attempts(self) -> list[Attempt]:
        """Attempts of the jobs that the worker runs."""
        return [job.attempt for job in self._jobs.values()]

    def handlers(self) -> dict[int, Callable[..., Awaitable[None]]]:
        """Return the handler of each packet type that a worker sends."""
        return {
            PacketType.CAN_DO: self._can_do,
            PacketType.CAN_DO_TIMEOUT: self._can_do,
            PacketType.CANT_DO: self._cannot_do,
            PacketType.RESET_ABILITIES: self._reset_abilities,
            PacketType.ALL_YOURS: self._ignore_all_yours,
            PacketType.PRE_SLEEP: self._pre_sleep,
            PacketType.GRAB_JOB: partial(self._grab, PacketType.JOB_ASSIGN),
            PacketType.GRAB_JOB_UNIQ: partial(self._grab, PacketType.JOB_ASSIGN_UNIQ),
            PacketType.GRAB_JOB_ALL: partial(self._grab, PacketType.JOB_ASSIGN_ALL),
            PacketType.WORK_STATUS: self._note_status,
            PacketType.WORK_DATA: lambda handle, data: self._pass_on(PacketType.WORK_DATA, handle, data),
            PacketType.WORK_WARNING: lambda handle, data: self._pass_on(
                PacketType.WORK_WARNING, handle, data
            ),
            PacketType.WORK_COMPLETE: self._complete,
            PacketType.WORK_FAIL: self._fail,
            PacketType.WORK_EXCEPTION: self._fail_with_exception,
        }

    async def end(self, reason: str) -> None:
        """Settle the jobs of a worker whose connection has broken.

        A crash is counted for each running job. A job that is only reserved for the worker is put back
        (requeue), and no crash is counted.
        """
        await self._wake()
        jobs, self._jobs = self._jobs, {}
        if jobs:
            await asyncio.gather(*(self._settle(job, job.attempt.crashed(reason)) for job in jobs.values()))

    async def release(self) -> None:
        """Put the worker's jobs back (requeue) when the instance shuts down; no crash is counted."""
        await self._wake()
        jobs, self._jobs = self._jobs, {}
        if jobs:
            await asyncio.gather(*(self._settle(job, job.attempt.requeue()) for job in jobs.values()))

    async def _can_do(self, function: bytes, _timeout: bytes = b"") -> None:
        """Register a function. The timeout in the packet is ignored: the task type has one."""
        name = function.decode("utf-8", "surrogateescape")
        if self._parts.find_function(function) is None:
            _log.warning("a Gearman worker offers %s, which is not a task type here", visible(name))
        self.functions[name] = None
        await self._sleep_again()

    async def _cannot_do(self, function: bytes) -> None:
        self.functions.pop(function.decode("utf-8", "surrogateescape"), None)
        await self._sleep_again()

    async def _reset_abilities(self) -> None:
        self.functions.clear()
        await self._sleep_again()

    async def _ignore_all_yours(self) -> None:
        """Ignore ALL_YOURS, as gearmand does."""

    async def _pre_sleep(self) -> None:
        await self._wake()
        self._sleep = asyncio.create_task(self._wait_for_job(), name="pyasynq gearman sleep")

    async def _sleep_again(self) -> None:
        """Restart the wait of a sleeping worker with its current functions."""
        if self._sleep is not None and not self._sleep.done():
            await self._pre_sleep()

    async def _wake(self) -> None:
        """End the worker's sleep (PRE_SLEEP), and put back the job that is reserved for the worker."""
        sleep, self._sleep = self._sleep, None
        if sleep is not None:
            sleep.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sleep
        attempt, self._reserved = self._reserved, None
        if attempt is not None:
            await _put_back(attempt)

    def _known_functions(self) -> list[str]:
        types = self._parts.list_types()
        return [name for name in self.functions if name in types and types[name].kind == "worker"]

    async def _wait_for_job(self) -> None:
        """Reserve a job and wake the worker; the job goes back if the worker does not grab it in time."""
        while self._reserved is None:
            try:
                self._reserved = await self._lease(wait=None)
            except (WaitEndedError, ServerStateError):
                return
            except PyasynqError as error:
                _log.debug("a Gearman worker waits for Redis: %s", visible(error))
            if self._reserved is None:
                await asyncio.sleep(_PAUSE_SECONDS)  # none of its functions is configured yet
        self._send(PacketType.NOOP)
        await asyncio.sleep(_GRAB_SECONDS)
        attempt, self._reserved = self._reserved, None
        if attempt is not None:
            await _put_back(attempt)

    async def _lease(self, wait: float | None) -> Attempt | None:
        names = self._known_functions()
        if not names:
            return None
        async with self._parts.served.using(*names) as consumer:
            take = consumer.lease(*names, limit=1, wait=wait, duration=_LEASE_SECONDS)
            taken = await (self._parts.waits.run(take) if wait is None else take)
        return taken[0] if taken else None

    async def _grab(self, answer: PacketType) -> None:
        """Assign the reserved job, or the next waiting one."""
        attempt, self._reserved = self._reserved, None
        await self._wake()
        if attempt is None and not self._parts.waits.is_ending:
            try:
                attempt = await self._lease(wait=0)
            except PyasynqError as error:
                # Without a job the worker sleeps until Redis is back; an error would end its program.
                _log.debug("a Gearman worker gets no job: %s", visible(error))
        if attempt is None:
            self._send(PacketType.NO_JOB)
            return
        handle = new_attempt_handle()
        renewal = asyncio.create_task(self._hold(handle, attempt), name="pyasynq gearman lease")
        self._jobs[handle] = _Job(attempt, renewal)
        function = attempt.task.type.encode("utf-8", "surrogateescape")
        unique = attempt.task.headers.get(UNIQUE_HEADER, attempt.id).encode("utf-8", "surrogateescape")
        workload = attempt.task.payload or b""
        match answer:
            case PacketType.JOB_ASSIGN_UNIQ:
                self._send(answer, handle, function, unique, workload)
            case PacketType.JOB_ASSIGN_ALL:
                self._send(answer, handle, function, unique, b"", workload)
            case _:
                self._send(answer, handle, function, workload)

    async def _hold(self, handle: bytes, attempt: Attempt) -> None:
        """Renew a job's lease until its attempt ends without an answer of the worker.

        The attempt was cancelled, has timed out, or has lost its lease.
        """
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                await attempt.extend(_LEASE_SECONDS)
            except _SETTLED_ELSEWHERE as error:
                _log.debug("task %s ended without its worker: %s", visible(attempt.id), visible(error))
                self._jobs.pop(handle, None)
                return
            except PyasynqError as error:
                _log.debug("lease of task %s was not renewed: %s", visible(attempt.id), visible(error))

    async def _note_status(self, handle: bytes, done: bytes, total: bytes) -> None:
        job = self._jobs.get(handle)
        if job is None:
            return
        try:
            job.attempt.progress(float(done), float(total), f"by {self._name()}")
        except ValueError:
            return  # not numbers: no progress can be shown
        self._tell_clients(job, PacketType.WORK_STATUS, done, total)

    async def _pass_on(self, kind: PacketType, handle: bytes, data: bytes) -> None:
        job = self._jobs.get(handle)
        if job is not None:
            self._tell_clients(job, kind, data)

    def _tell_clients(self, job: _Job, kind: PacketType, *arguments: bytes) -> None:
        """Forward a worker's message to clients of this instance; other clients only get the result."""
        for session in tuple(self._parts.sessions):
            session.client.tell(job.attempt.queue, job.attempt.id, kind, *arguments)

    async def _complete(self, handle: bytes, result: bytes) -> None:
        job = self._jobs.pop(handle, None)
        if job is not None:
            await self._settle(job, job.attempt.done(result or None))

    async def _fail(self, handle: bytes) -> None:
        await self._fail_with_exception(handle, b"the Gearman worker reported a failure")

    async def _fail_with_exception(self, handle: bytes, text: bytes) -> None:
        job = self._jobs.pop(handle, None)
        if job is not None:
            attempt = job.attempt
            delay = self._parts.retry_delay(attempt.queue, attempt.retried)
            await self._settle(job, attempt.retry(text.decode("utf-8", "replace"), delay))

    async def _settle(self, job: _Job, settling: Awaitable[None]) -> None:
        """Settle a job; a late result of an ended job has no effect."""
        job.renewal.cancel()
        try:
            await settling
        except _SETTLED_ELSEWHERE as error:
            _log.debug("task %s was settled before: %s", visible(job.attempt.id), visible(error))
        except PyasynqError as error:
            _log.warning("task %s was not settled: %s", visible(job.attempt.id), visible(error))


async def _put_back(attempt: Attempt) -> None:
    try:
        await attempt.requeue()
    except PyasynqError as error:
        _log.debug("task %s was not put back: %s", visible(attempt.id), visible(error))
