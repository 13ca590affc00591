"""Acts of workers on their attempts: extend, complete, fail, cancel, snooze, release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from msgspec import UNSET

from pyasynq.control import Retry
from pyasynq.errors import LeaseExpiredError
from pyasynq.gateway.leases.bodies import (
    AttemptAct,
    CancelAttempt,
    CompleteAttempt,
    ExtendAttempt,
    FailAttempt,
    ReleaseAttempt,
    SnoozeAttempt,
)
from pyasynq.web.api.problem import wrong_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyasynq.consumer import Attempt, Consumer
    from pyasynq.gateway.leases.tokens import LeaseToken


ATTEMPT_ACTS: Final[Mapping[str, type[AttemptAct]]] = {
    "extend": ExtendAttempt,
    "complete": CompleteAttempt,
    "fail": FailAttempt,
    "cancel": CancelAttempt,
    "snooze": SnoozeAttempt,
    "release": ReleaseAttempt,
}
"""Classes of acts by their names in paths."""
_NAMES: Final = {kind: name for name, kind in ATTEMPT_ACTS.items()}
DelayOfFailure: TypeAlias = "Callable[[str, int], float | None]"
"""Function that returns the seconds until a failed task is retried; None is the back-off of Asynq.

It is called with the queue and the number of earlier failures.
"""


async def perform_act(
    attempt: Attempt, act: AttemptAct, retry_delay: DelayOfFailure | None = None
) -> Attempt | None:
    """Perform a worker's act on an attempt; return the attempt if it continues, None if it is settled.

    Args:
        attempt: attempt of the task.
        act: request of the worker, such as `complete` or `extend`.
        retry_delay: returns the seconds until a failed task is retried, unless the worker gives a delay; None
            is the back-off of Asynq.

    Raises:
        ProblemError: two fields of the act contradict one another; nothing is changed.
        PyasynqError: as the methods of an attempt do.
    """
    match act:
        case ExtendAttempt():
            await _extend(attempt, act)
            return attempt
        case CompleteAttempt():
            await attempt.done(_read_result(act))
        case FailAttempt():
            await _fail(attempt, act, retry_delay)
        case CancelAttempt():
            await attempt.cancel(act.reason)
        case SnoozeAttempt():
            await attempt.snooze(act.delay)
        case ReleaseAttempt():
            await attempt.requeue()
        case _:
            assert_never(act)
    return None


async def act_by_token(
    consumer: Consumer, token: LeaseToken, act: AttemptAct, retry_delay: DelayOfFailure | None
) -> Attempt | None:
    """Perform an act on the attempt of a token; return the attempt if it continues.

    Raises what `Consumer.find` and `perform_act` do.
    """
    confirm = isinstance(act, ExtendAttempt)
    attempt = await consumer.find(token.queue, token.task_id, token.receipt, confirm=confirm)
    try:
        return await perform_act(attempt, act, retry_delay)
    except LeaseExpiredError:
        # Another instance may have moved the lease or settled the attempt.
        attempt = await consumer.find(token.queue, token.task_id, token.receipt)
    return await perform_act(attempt, act, retry_delay)


def name_act(act: AttemptAct) -> str:
    """Return the name of an act, as used in its path."""
    # Items of a batch are instances of subclasses, such as `CompleteItem`.
    return next(_NAMES[kind] for kind in type(act).__mro__ if kind in _NAMES)


async def _extend(attempt: Attempt, act: ExtendAttempt) -> None:
    await attempt.extend(act.lease)
    if act.progress is not None:
        attempt.progress(act.progress.done, act.progress.total, act.progress.note)


async def _fail(attempt: Attempt, act: FailAttempt, retry_delay: DelayOfFailure | None) -> None:
    if not act.retry:
        await attempt.archive(act.error)
    elif act.spend:
        delay = act.delay
        if delay is None and retry_delay is not None:
            delay = retry_delay(attempt.queue, attempt.retried)
        await attempt.retry(act.error, delay)
    else:
        await attempt.retry(Retry(act.delay, reason=act.error, spend=False))


def _read_result(act: CompleteAttempt) -> bytes | str | None:
    """Return the result of a task; None if it has none."""
    given = [one for one in (act.result, act.result_text, act.result_base64) if one is not UNSET]
    if len(given) > 1:
        raise wrong_value("result", "Give one of result, result_text and result_base64.")
    if act.result is not UNSET:
        return bytes(act.result)
    if act.result_text is not UNSET:
        return act.result_text
    return None if act.result_base64 is UNSET else act.result_base64
