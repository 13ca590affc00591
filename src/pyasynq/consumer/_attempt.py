"""Attempts that a consumer hands out, and the list of attempts of one `take` call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, overload

from pyasynq._broker.verdicts import Verdict
from pyasynq._engine.handlers.routes import check_result_size, received_task
from pyasynq._engine.lease.lease_errors import copy_cause
from pyasynq._engine.lease.lease_receipt import Receipt
from pyasynq._engine.run.outcome import Failed, Succeeded, Unfinished
from pyasynq.context import TaskContext
from pyasynq.control import Archive, Cancel, Retry, Snooze
from pyasynq.errors import (
    AttemptSettledError,
    InvalidOptionError,
    PyasynqError,
    ReportedError,
    ServerStateError,
)
from pyasynq.options import resolve_options

if TYPE_CHECKING:
    from pyasynq._engine.consumer_engine import ConsumerEngine
    from pyasynq._engine.run.attempt import Attempt as EngineAttempt
    from pyasynq._engine.run.outcome import Ending
    from pyasynq.consumer._config import ConsumerConfig
    from pyasynq.options import Duration
    from pyasynq.task import Task


class Attempt:
    """One run of one task, which is yours until you settle it or its lease ends.

    `done`, `retry`, `snooze`, `archive`, `cancel`, `requeue` and `crashed` settle it. Each returns when Redis
    has confirmed that, and retries until then through an outage of Redis, while the lease is renewed. A
    cancelled caller does not undo it: the attempt is settled all the same. They raise

    - TaskTimeoutError: the deadline had passed; the attempt was settled as failed with this error;
    - TaskCanceledError: cancellation was requested; the attempt was settled as the request says;
    - LeaseExpiredError: another worker has its task by now, or the lease has lapsed; its outcome does not
      count;
    - AttemptSettledError: it was settled before. A leased attempt may be settled again in the same way for
      60 seconds, with the same answer as the first time;
    - SettleError: Redis refuses the outcome for good; the attempt counts as failed;
    - RedisError: the consumer was closed before Redis confirmed; the outcome may or may not be written.
    """

    __slots__ = ("__dict__", "_attempt", "_config", "_engine")

    def __init__(self, engine: ConsumerEngine, attempt: EngineAttempt, config: ConsumerConfig) -> None:
        self._engine = engine
        self._attempt = attempt
        self._config = config

    @cached_property
    def task(self) -> Task:
        """Type, payload and headers of the task."""
        return received_task(self._attempt.message)

    @property
    def id(self) -> str:
        """The task's id, unique within its queue."""
        return self._attempt.id

    @property
    def queue(self) -> str:
        """The queue that the task came from."""
        return self._attempt.queue

    @property
    def retried(self) -> int:
        """Number of retries spent; 0 at the first attempt."""
        return self._attempt.message.retried

    @property
    def max_retry(self) -> int:
        """Number of allowed retries."""
        return self._attempt.message.retry

    @property
    def crashes(self) -> int:
        """Number of worker crashes during the task since an attempt last ended by itself."""
        return self._attempt.crashes

    @property
    def waited(self) -> float | None:
        """Seconds that the task was pending before this attempt; None if unknown."""
        return self._attempt.waited

    @property
    def deadline(self) -> datetime:
        """Time at which the attempt times out, by its timeout or deadline."""
        return datetime.fromtimestamp(self._attempt.deadline_at or 0, UTC)

    @property
    def lease_expires_at(self) -> datetime:
        """Time at which the lease ends, by Redis' clock; renewals and `extend` move it."""
        return datetime.fromtimestamp(self._attempt.lease_end, UTC)

    @property
    def receipt(self) -> str:
        """Text that identifies this attempt for `Consumer.find`, in any process; safe in URLs and JSON.

        `extend` changes it; the earlier one stays valid for 30 seconds after the end of the lease that it
        names.
        """
        return str(Receipt.of(self._attempt))

    @property
    def cancelled(self) -> PyasynqError | None:
        """Why you should stop: TaskTimeoutError, TaskCanceledError or LeaseExpiredError; None to continue.

        LeaseExpiredError also means that the consumer is being closed.
        """
        cause = self._attempt.cause
        return None if cause is None else copy_cause(cause)

    @property
    def verdict(self) -> str | None:
        """How the holder settled a leased attempt; None before that, and for attempts of `take`.

        `"done"`, `"retry"`, `"snooze"`, `"archive"`, `"cancel"`, `"requeue"` or `"crashed"`.
        """
        verdict = self._attempt.verdict
        return verdict.value if verdict is not None and verdict.by_holder else None

    async def wait_cancelled(self) -> PyasynqError | None:
        """Wait until you should stop, and return why; None when the attempt was settled instead."""
        await self._engine.sink.wait_cancelled(self._attempt)
        return self.cancelled

    async def done(self, result: bytes | str | None = None) -> None:
        """Settle: the task is done. The result, text as UTF-8, is kept for the task's retention.

        Raises:
            TypeError: for a result that is neither bytes nor text; the attempt is not settled then.
            ResultTooLargeError: for a result larger than `max_result`; nor is the attempt settled then.
        """
        if not isinstance(result, bytes | str | None):
            raise TypeError(f"a result is bytes, text or None, not {type(result).__name__}; encode it first")
        data = result.encode("utf-8", "replace") if isinstance(result, str) else result
        await self._settle(Succeeded(data), Verdict.DONE)

    async def retry(self, error: BaseException | str, delay: Duration | None = None) -> None:
        """Settle: the attempt failed, and the task is retried, or archived when no retry is left.

        As in a server, `is_failure` decides whether a retry is spent. `retry_delay` decides when the task
        runs again, unless a `delay` is given. `SkipRetry`, `RevokeTask`, `Snooze`, `Retry`, `Archive` and
        `Cancel` have the same effect as in a handler, also as the cause of the error. An error given as text
        was reported by another program.

        Raises:
            InvalidOptionError: for an invalid delay; the attempt is not settled then.
        """
        cause = ReportedError(error) if isinstance(error, str) else error
        if not isinstance(cause, BaseException):
            raise InvalidOptionError("error", error, "must be an exception or text")
        if delay is not None:
            wish = Retry(delay)
            wish.__cause__ = cause
            cause = wish
        await self._settle(Failed(cause), Verdict.RETRY)

    async def snooze(self, delay: Duration) -> None:
        """Settle: postpone the task by the delay; no failure is counted and no retry is spent.

        Raises:
            InvalidOptionError: for an invalid delay; the attempt is not settled then.
        """
        await self._settle(Failed(Snooze(delay)), Verdict.SNOOZE)

    async def archive(self, reason: str) -> None:
        """Settle: archive the task, even if retries are left; the reason becomes its error."""
        await self._settle(Failed(Archive(reason)), Verdict.ARCHIVE)

    async def cancel(self, reason: str = "") -> None:
        """Settle: cancel and delete the task; the reason is for logs and events."""
        await self._settle(Failed(Cancel(reason)), Verdict.CANCEL)

    async def requeue(self) -> None:
        """Settle: put the task back to the front of its queue, as if it had not been taken."""
        await self._settle(Unfinished(), Verdict.REQUEUE)

    async def crashed(self, reason: str) -> None:
        """Settle: report that the worker crashed. The task goes back to the front, and the crash is counted.

        At `crash_limit` the task is archived as poison instead, as when a server dies. No retry is spent.
        This call is for programs that forward tasks to workers, and notice when the connection to a worker
        breaks.

        Args:
            reason: a description of the crash, for the task's attempts.

        Raises:
            InvalidOptionError: for a reason that is not text; the attempt is not settled then.
        """
        if not isinstance(reason, str):
            raise InvalidOptionError("reason", reason, "must be text")
        await self._settle(Unfinished(crash=reason), Verdict.CRASHED)

    async def extend(self, duration: Duration) -> None:
        """Set the lease to end this duration from now, at most at the deadline; it may become shorter.

        For attempts of `Consumer.lease` and `Consumer.find`.

        Raises:
            ServerStateError: for an attempt of `take`, whose lease is renewed until its block ends.
            InvalidOptionError: for a duration above `max_lease` or under one second.
            RedisError: when Redis cannot be reached; the lease may have been extended.

        It also raises the errors of settling, such as TaskTimeoutError and TaskCanceledError. If the caller
        is cancelled, the lease may have been changed.
        """
        if self._attempt.renewed:
            raise ServerStateError(
                "this lease is renewed until it is settled; extend() is for those of lease()"
            )
        await self._engine.extend(self._attempt, self._config.lease_seconds(duration))

    async def write_result(self, data: bytes) -> None:
        """Store `data` as the task's result while it runs; `done(result)` replaces it.

        Raises:
            LeaseExpiredError: when this attempt does not own the task any more; nothing was written then.
            TypeError: when `data` is not bytes.
            ResultTooLargeError: when it is larger than `max_result`; nothing was sent.
            RedisError: when Redis cannot be reached within the timeout, or refuses the result.
        """
        attempt = self._attempt
        self._engine.sink.require_held(attempt)
        await TaskContext(attempt).write_result(data)

    def set_header(self, name: str, value: str | None) -> None:
        """Set a header of the task for its next attempts, or remove it with None; it does not wait.

        `retry` and `archive` store it with the task; `done` does so if the task is kept (retention).

        Raises:
            InvalidOptionError: for a name or a value that is not text, and for too many bytes of headers.
        """
        headers = self._attempt.message.headers
        if value is None:
            headers.pop(name, None)
        else:
            headers.update(resolve_options({"headers": {**headers, name: value}}).headers or {})
        self.__dict__.pop("task", None)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report progress, as `context().progress` does in a handler; it does not wait.

        Raises:
            InvalidOptionError: for numbers that are negative or not finite, and a note that is not text.
        """
        TaskContext(self._attempt).progress(done, total, note)

    async def _settle(self, ending: Ending, verdict: Verdict) -> None:
        if isinstance(ending, Succeeded) and ending.result is not None:
            check_result_size(ending.result, self._config.max_result)
        await self._engine.sink.settle(self._attempt, ending, verdict)

    def __repr__(self) -> str:
        return f"Attempt(id={self.id!r}, type={self._attempt.message.type!r}, queue={self.queue!r})"


class SettledAttempt(Attempt):
    """A leased attempt that its holder has settled before; only its verdict is still known.

    Settling it again in the same way succeeds. Everything else, such as `extend`, raises AttemptSettledError.
    """

    __slots__ = ("_id", "_queue", "_receipt", "_verdict")

    def __init__(self, queue: str, task_id: str, receipt: str, verdict: Verdict) -> None:
        self._queue = queue
        self._id = task_id
        self._receipt = receipt
        self._verdict = verdict

    @property
    def id(self) -> str:
        """The task's id."""
        return self._id

    @property
    def queue(self) -> str:
        """The queue that the task came from."""
        return self._queue

    @property
    def receipt(self) -> str:
        """The receipt with which the attempt was looked up."""
        return self._receipt

    @property
    def verdict(self) -> str:
        """How the attempt was settled: `"done"`, `"retry"`, and so on; see `Attempt.verdict`."""
        return self._verdict.value

    @property
    def cancelled(self) -> None:
        """None: the attempt is over."""

    async def wait_cancelled(self) -> None:
        """Return at once: the attempt is over."""

    async def _settle(self, ending: Ending, verdict: Verdict) -> None:
        del ending
        if verdict is not self._verdict:
            raise AttemptSettledError(self._queue, self._id, self._verdict.value)

    if not TYPE_CHECKING:

        @property
        def _attempt(self) -> EngineAttempt:
            raise AttemptSettledError(self._queue, self._id, self._verdict.value)

    def __repr__(self) -> str:
        return f"SettledAttempt(id={self.id!r}, queue={self.queue!r}, verdict={self.verdict!r})"


class Attempts(Sequence[Attempt]):
    """The attempts of one `take` call, in the order to work on them; empty if there were no tasks."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        self._attempts = attempts
        self._begun: set[int] = set()

    @overload
    def __getitem__(self, index: int) -> Attempt: ...
    @overload
    def __getitem__(self, index: slice) -> list[Attempt]: ...
    def __getitem__(self, index: int | slice) -> Attempt | list[Attempt]:
        """Return an attempt, and mark it as started."""
        places = range(len(self._attempts))[index]
        if isinstance(places, int):
            self._begun.add(places)
            return self._attempts[places]
        self._begun.update(places)
        return [self._attempts[place] for place in places]

    def __len__(self) -> int:
        return len(self._attempts)

    def __repr__(self) -> str:
        return f"Attempts({list(self._attempts)!r})"


async def settle_leftovers(attempts: Attempts, engine: ConsumerEngine, error: BaseException | None) -> None:
    """Settle the attempts that a `take` block left unsettled.

    If the block raised an `Exception`, the attempts that it had started fail with it. The tasks of all other
    attempts are put back.
    """
    failed: list[asyncio.Future[bool | Exception]] = []
    rest = []
    for place, one in enumerate(attempts._attempts):  # noqa: SLF001 - the other half of the class
        attempt = one._attempt  # noqa: SLF001 - the same
        if isinstance(error, Exception) and place in attempts._begun:  # noqa: SLF001 - the same
            failed += engine.sink.fail(attempt, error)
        else:
            rest.append(attempt)
    settled = [*failed, *engine.sink.put_back(rest)]
    # A cancelled caller does not wait for Redis; closing the consumer waits for these settles.
    if settled and (error is None or isinstance(error, Exception)):
        await asyncio.wait(settled)
