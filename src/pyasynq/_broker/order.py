"""Ordered (FIFO) queues: their tasks run strictly one after another, in the order they became pending.

Redis stores that a queue is ordered, so that every worker keeps the order. The task that is taken is the head
until it is done, archived or deleted: nothing else is taken while the queue's `active` or `retry` holds
anything, and every path that puts the head back puts it in front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.delayed import forward_tried
from pyasynq._broker.settle import RetryTask, Settled, settle_retry
from pyasynq._broker.verdicts import NO_NOTE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.verdicts import VerdictNote
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan


def retry_in_order(
    queue: str,
    tasks: Sequence[RetryTask],
    *,
    now: Instant,
    redis_now: Instant | None,
    note: VerdictNote = NO_NOTE,
) -> Plan[Settled]:
    """Move tasks of an ordered queue to `retry`, as `settle_retry` does; then put due tasks at the front.

    Between the two calls the tasks in `retry` block the queue, so no other worker takes anything.
    """
    settled = yield from settle_retry(queue, tasks, now=now, note=note)
    if any(task.retry_at <= now.seconds for task in tasks):
        yield from forward_tried(queue, now=redis_now)
    return settled
