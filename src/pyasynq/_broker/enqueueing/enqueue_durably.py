"""Enqueueing what replicas are to have before the caller goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyasynq._broker.enqueueing.enqueue_rules import enqueued, info_of_result
from pyasynq._redis.durability import Confirmation, durably
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import NotDurableError
from pyasynq.task import EnqueueStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.enqueueing.enqueue import EnqueueRun, OtherResults
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan

_IN_REDIS: Final = (EnqueueStatus.ENQUEUED, EnqueueStatus.REPLACED, EnqueueStatus.EXISTING)
_NOBODY_ASKED: Final = Confirmation(0, "they were not asked")


def enqueue_durably(
    enqueue: Callable[[EnqueueRun], Plan[OtherResults]], run: EnqueueRun, *, now: Instant
) -> Plan[OtherResults]:
    """Put the tasks of a run into their queue; note a `NotDurableError` for those that too few replicas have.

    Replicas are waited for once, for as many as the most demanding task wants.
    """
    wanted = max(item.settings.replicas for item in run.tasks)
    if not wanted:
        return (yield from enqueue(run))
    marker = queue_keys(run.queue).fence
    others, confirmation = yield from durably(enqueue(run), marker=marker, replicas=wanted)
    known = confirmation or _NOBODY_ASKED
    for position, item in enumerate(run.tasks):
        result = others[position] if position in others else enqueued(item)
        if result.status in _IN_REDIS and known.replicas < item.settings.replicas:
            info = info_of_result(item, result, now)
            error = NotDurableError(info, known.replicas, item.settings.replicas, known.cause)
            others[position] = replace(result, error=error)
    return others
