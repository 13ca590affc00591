"""Enqueueing by a client that publishes what it enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.enqueueing.enqueue import enqueue_run
from pyasynq._broker.task_events import encode_event, publish_events
from pyasynq.errors import RedisError

if TYPE_CHECKING:
    from pyasynq._broker.enqueueing.enqueue import EnqueueRun, OtherResults
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan


def enqueue_and_publish(run: EnqueueRun, *, now: Instant, max_length: int) -> Plan[OtherResults]:
    """Put tasks into their queue, then publish which ones were; that this fails changes nothing for them."""
    others = yield from enqueue_run(run, now=now)
    events = [
        encode_event("enqueued", run.queue, now, task_id=item.id, type=item.type)
        for position, item in enumerate(run.tasks)
        if position not in others
    ]
    try:
        yield from publish_events(run.queue, events, max_length=max_length)
    except RedisError:
        return others
    return others
