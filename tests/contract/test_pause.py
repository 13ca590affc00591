"""Pausing queues."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.dequeue import dequeue
from pyasynq._broker.inspecting import queues
from pyasynq.errors import InvalidOptionError, QueueNotPausedError, QueuePausedError
from tests.factories import NOW, Tasks
from tests.fix_broker import BlockingPerformer

if TYPE_CHECKING:
    from pyasynq._redis.plan import Plan
    from pyasynq.options import Duration
    from tests.fix_broker import Perform
    from tests.invariants import RedisClient


def pause(duration: Duration | None = None, *, after: int = 0) -> Plan[None]:
    """Pause the queue."""
    return queues.pause_queue("default", duration, now=NOW.plus(after))


def test_a_paused_queue_gives_no_tasks(perform: Perform, tasks: Tasks, redis_client: RedisClient) -> None:
    """The key holds the second since when, as in Asynq; it never expires."""
    tasks.pending("a")
    perform(pause())
    assert (b"2000000000", -1) == (redis_client.get(tasks.keys.paused), redis_client.ttl(tasks.keys.paused))
    assert [] == perform(dequeue("default", limit=1, token="t", now=NOW)).tasks
    perform(queues.unpause_queue("default"))
    assert 1 == len(perform(dequeue("default", limit=1, token="t", now=NOW)).tasks)


@pytest.mark.parametrize(("duration", "seconds"), [(60, 60), (0.5, 1), (timedelta(minutes=2), 120)])
def test_a_pause_may_end_by_itself(
    perform: Perform, tasks: Tasks, redis_client: RedisClient, duration: Duration, seconds: int
) -> None:
    """Peers in Go ask only whether the key exists; a part of a second is a whole one."""
    tasks.pending("a")
    perform(pause(duration))
    assert seconds - 5 < redis_client.ttl(tasks.keys.paused) <= seconds
    info = perform(queues.queue_info("default", now=NOW))
    assert info.paused_until is not None
    left = info.paused_until - NOW.to_datetime()
    assert timedelta(seconds=seconds - 5) < left <= timedelta(seconds=seconds)


def test_a_pause_without_an_end_tells_none(perform: Perform, tasks: Tasks) -> None:
    """Nor does a queue that is not paused."""
    tasks.pending("a")
    assert (False, None) == _pause_of(perform)
    perform(pause())
    assert (True, None) == _pause_of(perform)


def _pause_of(perform: Perform) -> tuple[bool, object]:
    info = perform(queues.queue_info("default", now=NOW))
    return info.paused, info.paused_until


def test_a_queue_is_paused_once(perform: Perform, redis_client: RedisClient, tasks: Tasks) -> None:
    """The first pause stays, with its time."""
    perform(pause(60))
    with pytest.raises(QueuePausedError, match="'default' is already paused"):
        perform(pause())
    assert redis_client.ttl(tasks.keys.paused) > 0


def test_a_queue_that_is_not_paused_cannot_go_on(perform: Perform) -> None:
    """Resuming it is an error, as in Asynq."""
    with pytest.raises(QueueNotPausedError, match="'default' is not paused"):
        perform(queues.unpause_queue("default"))


def test_calls_that_are_sent_again_find_their_own_work(redis_client: RedisClient) -> None:
    """Refusals are then not errors."""
    again = BlockingPerformer(redis_client, replay=True)
    again(pause())
    again(queues.unpause_queue("default"))
    BlockingPerformer(redis_client)(pause())
    with pytest.raises(QueuePausedError):
        again(pause(after=1))


@pytest.mark.parametrize("duration", [0, -1, float("inf"), "1"])
def test_a_pause_lasts_some_time(perform: Perform, duration: float) -> None:
    """Zero would be taken for "for ever"."""
    with pytest.raises(InvalidOptionError, match=r"^duration="):
        perform(pause(duration))


def test_a_queue_has_a_name(perform: Perform) -> None:
    """Asynq's rule; the queue need not exist."""
    for plan in (
        queues.pause_queue(" ", None, now=NOW),
        queues.unpause_queue(" "),
        queues.queue_info(" ", now=NOW),
    ):
        with pytest.raises(InvalidOptionError, match="one or more characters"):
            perform(plan)
