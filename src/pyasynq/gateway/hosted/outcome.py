"""Outcomes of hosted attempts: the return values of handlers, and how each settles the attempt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from pyasynq.control import Archive, Cancel, ControlFlow, Retry, Snooze

if TYPE_CHECKING:
    from pyasynq.consumer import Attempt
    from pyasynq.gateway.leases.acts import DelayOfFailure

WAITS_SINCE_HEADER: Final = "pyasynq-waits-since"
"""Task header with the Unix second since which the task waits for a throttled host."""


@dataclass(frozen=True, slots=True)
class HandedOver:
    """The host has taken over the task (callback), and will settle the attempt by its lease token.

    Attributes:
        lease: seconds until the host must have extended the lease or settled the attempt.
    """

    lease: float


@dataclass(frozen=True, slots=True)
class PutBack:
    """The attempt did not take place: the task goes back to the front of its queue."""


@dataclass(frozen=True, slots=True)
class Throttled:
    """The host asks for a pause (429 or 503): no retry is spent.

    Attributes:
        seconds: seconds until the host may be called again.
        reason: text for the task's error.
    """

    seconds: float
    reason: str


HostedOutcome: TypeAlias = bytes | ControlFlow | HandedOver | PutBack | None
"""Return value of a handler: the result of a task that is done, or another outcome."""


async def settle(attempt: Attempt, outcome: HostedOutcome, retry_delay: DelayOfFailure) -> None:
    """Settle an attempt with the outcome of its handler.

    Raises:
        PyasynqError: as the methods of an attempt do.
    """
    if not _goes_on_waiting(outcome) and WAITS_SINCE_HEADER in attempt.task.headers:
        attempt.set_header(WAITS_SINCE_HEADER, None)
    match outcome:
        case HandedOver():
            await attempt.extend(outcome.lease)
        case PutBack():
            await attempt.requeue()
        case Snooze():
            await attempt.snooze(outcome.delay)
        case Archive():
            await attempt.archive(outcome.reason)
        case Cancel():
            await attempt.cancel(outcome.reason)
        case Retry() if outcome.spend and outcome.after is None:
            await attempt.retry(outcome, retry_delay(attempt.queue, attempt.retried))
        case ControlFlow():
            await attempt.retry(outcome)
        case _:
            await attempt.done(outcome)


def _goes_on_waiting(outcome: HostedOutcome) -> bool:
    """Return whether the task still waits for its host: put back, or retried without spending a retry."""
    return isinstance(outcome, PutBack) or (isinstance(outcome, Retry) and not outcome.spend)
