"""One attempt of `pyasynq work`: its command, its lease, and its settling."""

from __future__ import annotations

import asyncio
import enum
import logging
import os
import signal
import time
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from pyasynq._human_text import bytes_text, shorten_end
from pyasynq._visible_text import visible
from pyasynq.sdk.errors import ServiceError

from .command_process import KEY_VARIABLE, MOST_ERRORS, MOST_OUTPUT, CommandProcess

if TYPE_CHECKING:
    from pyasynq.gateway.leases.bodies import LeasedTask
    from pyasynq.sdk.service_connection import ServiceConnection

_log = logging.getLogger("pyasynq.work")

_ARCHIVE_CODES: Final = frozenset({64, 65, 77, 78})
"""Exit codes that archive the task: EX_USAGE, EX_DATAERR, EX_NOPERM and EX_CONFIG of sysexits.h.

Another attempt would end in the same way.
"""
_LONGEST_LOGGED: Final = 300
_AGAIN_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 55.0
"""Seconds for which a settle request is repeated; the service remembers its first answer for 60 seconds."""
_OK: Final = frozenset({200, 204})
_GONE: Final = 410
_OVER: Final = frozenset({404, 409, _GONE})
_REFUSED_RESULT: Final = frozenset({413, 422})


class EndCause(enum.Enum):
    """Reason for which a command is ended before it has finished."""

    CANCELLED = "the task was cancelled"
    TIMED_OUT = "the task timed out"
    LOST = "its lease is lost"
    STOPPED = "this worker ends"


@dataclass(frozen=True, slots=True)
class CommandWorkerSettings:
    """Settings of `pyasynq work` from its command line.

    Attributes:
        queues: names of the queues to lease from.
        program: absolute path and arguments of the command.
        concurrency: maximum number of commands that run at the same time.
        lease: duration of a lease in seconds.
        grace: grace period: seconds between TERM and KILL.
    """

    queues: tuple[str, ...]
    program: tuple[str, ...]
    concurrency: int
    lease: float
    grace: float


class CommandAttempt:
    """One attempt of a leased task, while its command runs. Belongs to the event loop.

    Args:
        leased: the task, as the service has described it.
        asked_at: event loop time at which the lease was requested.
        clock_skew: seconds that this machine's clock is ahead of the service's.
        connection: connection to the service.
        settings: settings of the worker.

    Attributes:
        cause: why this worker ends the command early; None if it does not.
    """

    def __init__(
        self,
        leased: LeasedTask,
        *,
        asked_at: float,
        clock_skew: float,
        connection: ServiceConnection,
        settings: CommandWorkerSettings,
    ) -> None:
        self.cause: EndCause | None = None
        self._leased = leased
        self._token = leased.token
        self._deadline = leased.deadline.timestamp() + clock_skew
        self._lease_ends = asked_at + settings.lease
        """Event loop time at which the lease ends; written by `_extend`."""
        self._connection = connection
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._process: CommandProcess | None = None
        self._kill_timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Run the command, renew the lease meanwhile, and settle the task."""
        payload = _read_payload(self._leased)
        try:
            self._process = CommandProcess(self._settings.program, payload, self._environment())
        except OSError as error:
            await self._settle("fail", {"error": f"the command cannot be started: {error.strerror}"})
            return
        renewing = asyncio.create_task(self._renew(), name="pyasynq work lease")
        timer = self._loop.call_later(max(0.0, self._deadline - time.time()), self.end, EndCause.TIMED_OUT)
        try:
            code = await self._process.wait()
        finally:
            timer.cancel()
            renewing.cancel()
            await asyncio.wait({renewing})
            if self._kill_timer is not None:
                self._kill_timer.cancel()
        await self._settle_exit(code, self._process)

    async def release(self) -> None:
        """Requeue the task at the front of its queue."""
        await self._settle("release", {})

    def end(self, cause: EndCause) -> None:
        """End the command: send TERM to its process group, and KILL after the grace period."""
        if self.cause is not None or self._process is None:
            return
        self.cause = cause
        _log.info("ending the command of task %s: %s", visible(self._leased.id), cause.value)
        self._process.signal_group(signal.SIGTERM)
        self._kill_timer = self._loop.call_later(
            self._settings.grace, self._process.signal_group, signal.SIGKILL
        )

    def _environment(self) -> dict[bytes, bytes]:
        """Return the environment of the command, in bytes: the locale may be unable to encode a task's id."""
        own = {name: value for name, value in os.environb.items() if name != KEY_VARIABLE.encode()}
        told = {
            "PYASYNQ_TASK_ID": self._leased.id,
            "PYASYNQ_TASK_TYPE": self._leased.type,
            "PYASYNQ_QUEUE": self._leased.queue,
            "PYASYNQ_ATTEMPT": str(self._leased.attempt),
            "PYASYNQ_DEADLINE": self._leased.deadline.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        # Environment variables cannot contain NUL, but ids in Redis can.
        return own | {name.encode(): value.replace("\0", "").encode() for name, value in told.items()}

    # The lease.

    async def _renew(self) -> None:
        """Renew the lease after each third of its duration, until the attempt is over."""
        pause = self._settings.lease / 3
        while self.cause not in {EndCause.CANCELLED, EndCause.LOST}:
            await asyncio.sleep(pause)
            pause = await self._extend()

    async def _extend(self) -> float:
        """Renew the lease; return the seconds until the next renewal."""
        asked_at = self._loop.time()
        third = self._settings.lease / 3
        try:
            answer = await self._connection.send(
                "POST", self._path("extend"), {"lease": self._settings.lease}, seconds=third
            )
        except ServiceError:
            return self._end_if_expired()
        if answer.status in _OK:
            self._token = str(answer.json().get("token", self._token))
            self._lease_ends = asked_at + self._settings.lease
            return third
        if answer.status in _OVER:
            self.end(read_cause(answer.json().get("reason")))
            return third
        return self._end_if_expired()

    def _end_if_expired(self) -> float:
        """End the command if its lease has expired; return the seconds until the renewal is tried again."""
        if self._loop.time() >= self._lease_ends:
            self.end(EndCause.LOST)
        return _AGAIN_SECONDS

    # Settling.

    async def _settle_exit(self, code: int, process: CommandProcess) -> None:
        name = visible(self._leased.id)
        match self.cause:
            case EndCause.CANCELLED | EndCause.LOST:
                return
            case EndCause.STOPPED:
                await self._settle("release", {})
                return
            case EndCause.TIMED_OUT:
                await self._settle("fail", {"error": "the command was ended: the task timed out"})
                return
        if code:
            text = describe_exit(code, bytes(process.errors.kept))
            _log.warning("task %s failed: %s", name, visible(shorten_end(text, _LONGEST_LOGGED)))
            await self._settle("fail", {"error": text, "retry": code not in _ARCHIVE_CODES})
            return
        if process.output.size > MOST_OUTPUT:
            cut = bytes_text(process.output.size)
            _log.warning("task %s: the result is the first 64 kB of %s on stdout", name, cut)
        output = bytes(process.output.kept)
        await self._settle("complete", {"result_base64": output} if output else {})
        _log.info("task %s is done", name)

    async def _settle(self, act: str, body: dict[str, Any]) -> None:
        until = self._loop.time() + _SETTLE_SECONDS
        name = visible(self._leased.id)
        try:
            answer = await self._connection.repeat("POST", self._path(act), body, until=until)
            if answer.status in _REFUSED_RESULT and act == "complete":
                _log.warning("task %s is done without its result: %s", name, answer.reason)
                answer = await self._connection.repeat("POST", self._path(act), {}, until=until)
        except ServiceError as error:
            _log.error("the outcome of task %s is not written: %s; it comes back", name, error)
            return
        if answer.status == _GONE:
            _log.info("task %s was settled by the service before: %s", name, answer.json().get("reason"))
        elif answer.status not in _OK:
            _log.warning("the outcome of task %s does not count: %s", name, answer.reason)

    def _path(self, act: str) -> str:
        return f"/v1/attempts/{self._token}:{act}"


def read_cause(reason: object) -> EndCause:
    """Return why the service refuses to renew a lease, from the field `reason` of its error answer."""
    return {"cancelled": EndCause.CANCELLED, "timed-out": EndCause.TIMED_OUT}.get(str(reason), EndCause.LOST)


def describe_exit(code: int, errors: bytes) -> str:
    """Return the error text for an exit code other than 0 (negative: a signal), with the end of stderr."""
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "of no name"
        how = f"the command was ended by signal {-code} ({name})"
    else:
        how = f"the command ended with exit code {code}"
    whole = errors.decode("utf-8", "replace").replace("\0", "").strip()
    told = whole.encode()[-MOST_ERRORS:].decode("utf-8", "ignore")
    return f"{how}: {told}" if told else how


def _read_payload(leased: LeasedTask) -> bytes:
    """Return the bytes of the payload from its JSON, text or Base64 form."""
    from msgspec import UNSET  # noqa: PLC0415 - of the extra `service`

    if leased.payload_text is not UNSET:
        return leased.payload_text.encode()
    if leased.payload_base64 is not UNSET:
        return leased.payload_base64
    return b"" if leased.payload is UNSET else bytes(leased.payload)
