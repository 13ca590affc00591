"""Enqueueing what replicas are to have before the caller goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyasynq._broker.durability import Confirmation, durably
from pyasynq._broker.enqueue_rules import info_of_result
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import NotDurableError
from pyasynq.task import EnqueueResult, EnqueueStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.compose import Composed
    from pyasynq._broker.enqueue import EnqueueRun
    from pyasynq._broker.plan import Plan
    from pyasynq._clock import Instant

_IN_REDIS: Final = (EnqueueStatus.ENQUEUED, EnqueueStatus.REPLACED, EnqueueStatus.EXISTING)
_NOBODY_ASKED: Final = Confirmation(0, "they were not asked")


def enqueue_durably(
    enqueue: Callable[[EnqueueRun], Plan[list[EnqueueResult]]], run: EnqueueRun, *, now: Instant
) -> Plan[list[EnqueueResult]]:
    """Put the tasks of a run into their queue; note a `NotDurableError` for those that too few replicas have.

    Replicas are waited for once, for as many as the most demanding task wants.
    """
    wanted = max(item.settings.replicas for item in run.tasks)
    if not wanted:
        return (yield from enqueue(run))
    marker = queue_keys(run.queue).fence
    results, confirmation = yield from durably(enqueue(run), marker=marker, replicas=wanted)
    known = confirmation or _NOBODY_ASKED
    return [_judged(item, result, known, now) for item, result in zip(run.tasks, results, strict=True)]


def _judged(item: Composed, result: EnqueueResult, known: Confirmation, now: Instant) -> EnqueueResult:
    if result.status not in _IN_REDIS or known.replicas >= item.settings.replicas:
        return result
    info = info_of_result(item, result, now)
    return replace(result, error=NotDurableError(info, known.replicas, item.settings.replicas, known.cause))
