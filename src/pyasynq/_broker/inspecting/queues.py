"""Reading and pausing queues."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import FIRST_SEND, time_arguments
from pyasynq._broker.inspecting.group_counts import PAGES_AT_ONCE, GroupCounts
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import INSPECT_MEMORY, INSPECT_PAUSE, INSPECT_QUEUE, INSPECT_UNPAUSE
from pyasynq._broker.stored import parse_number
from pyasynq._broker.stored_limits import read_limits
from pyasynq._checks import check_name, is_whole, parse_seconds
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import QueueKeys, queue_keys
from pyasynq.errors import InvalidOptionError, QueueNotPausedError, QueuePausedError
from pyasynq.info import DailyStatistics, QueueInfo
from pyasynq.limits import UNLIMITED, QueueLimits

if TYPE_CHECKING:
    from pyasynq._clock import Instant
    from pyasynq.options import Duration

_MAX_DAYS: Final = 366


class QueueCounts(NamedTuple):
    """Number of tasks of a queue in each state, and of its ended attempts.

    Attributes:
        paused: nothing is taken from the queue.
        pause_left: seconds after which the pause ends by itself; None if it does not.
        latency: how many seconds the next task has been waiting; 0 when none waits.
        aggregating: number of tasks in all groups, including tasks that are being aggregated right now.
        aggregating_at: when they were counted, if there are more than 1,000 groups; None for now.
        processed, failed: attempts of this day, in UTC; failed ones are counted in both.
        limits: limits stored for the queue.
        due: number of scheduled and retry tasks that are due and not forwarded.
    """

    queue: str
    paused: bool
    pause_left: float | None
    latency: float
    pending: int
    active: int
    scheduled: int
    retry: int
    archived: int
    completed: int
    aggregating: int
    groups: int
    processed: int
    failed: int
    processed_total: int
    failed_total: int
    aggregating_at: Instant | None = None
    limits: QueueLimits = UNLIMITED
    due: int = 0

    @property
    def size(self) -> int:
        """Number of all tasks of the queue."""
        waiting = self.pending + self.scheduled + self.retry + self.aggregating
        return waiting + self.active + self.archived + self.completed


def queue_info(
    queue: str, *, now: Instant, group_counts: GroupCounts | None = None, memory: bool = False
) -> Plan[QueueInfo]:
    """Describe a queue; with `memory`, estimate the memory that it takes."""
    yield from require_queue(queue)
    return (yield from describe_queue(queue, now=now, group_counts=group_counts, memory=memory))


def describe_queue(
    queue: str,
    *,
    now: Instant,
    group_counts: GroupCounts | None = None,
    group_pages: int = PAGES_AT_ONCE,
    memory: bool = False,
) -> Plan[QueueInfo]:
    """Describe a queue that exists, in one call unless it has many groups or memory is asked for."""
    counts = yield from count_tasks(queue, now, group_counts, group_pages)
    weighed = (yield from memory_usage(queue, counts.aggregating)) if memory else None
    left, counted_at, timestamp = counts.pause_left, counts.aggregating_at, now.to_datetime()
    return QueueInfo(
        queue=queue,
        pending=counts.pending,
        active=counts.active,
        scheduled=counts.scheduled,
        retry=counts.retry,
        archived=counts.archived,
        completed=counts.completed,
        aggregating=counts.aggregating,
        groups=counts.groups,
        processed=counts.processed,
        failed=counts.failed,
        processed_total=counts.processed_total,
        failed_total=counts.failed_total,
        latency=timedelta(seconds=counts.latency),
        paused=counts.paused,
        timestamp=timestamp,
        paused_until=None if left is None else now.plus(left).to_datetime(),
        aggregating_at=counted_at and counted_at.to_datetime(),
        memory_usage=weighed,
        memory_at=timestamp if memory else None,
        due=counts.due,
        limits=counts.limits,
    )


def queue_memory(queue: str) -> Plan[int]:
    """Return how many bytes a queue takes, estimated from a sample of its tasks."""
    yield from require_queue(queue)
    groups = yield from count_tasks(queue)
    return (yield from memory_usage(queue, groups.aggregating))


def count_tasks(
    queue: str,
    now: Instant | None = None,
    group_counts: GroupCounts | None = None,
    group_pages: int = PAGES_AT_ONCE,
) -> Plan[QueueCounts]:
    """Return the counts of a queue; they are all zero for a missing queue.

    With `now=None`, today is taken from this host's clock.

    In a queue of more than 1,000 groups, each call counts the tasks of `group_pages` pages of 500 groups;
    `group_counts` keeps the counts of the other groups.
    """
    keys = queue_keys(queue)
    asked_at = now or SYSTEM_CLOCK.now()
    today = asked_at.to_datetime()
    *counts, paused, pause_milliseconds, latency_microseconds, limits = yield ScriptCall(
        INSPECT_QUEUE,
        (
            *collections(keys),
            keys.groups,
            keys.aggregation_sets,
            keys.processed_on(today),
            keys.failed_on(today),
            keys.processed,
            keys.failed,
            keys.paused,
            keys.limits,
        ),
        (keys.task_prefix, keys.group_prefix, *time_arguments(now)),
        Replay.SAFE,
    )
    *states, grouped, staged, groups, processed, failed, processed_total, failed_total, due = map(int, counts)
    pending, active, scheduled, retry, archived, completed = states
    pause_left = pause_milliseconds / 1_000 if pause_milliseconds >= 0 else None
    counted_at = None
    many = group_counts or GroupCounts()
    if grouped < 0:
        grouped, counted_at = yield from many.count(queue, groups, asked_at, group_pages)
    else:
        many.forget(queue)
    return QueueCounts(
        queue,
        bool(paused),
        pause_left,
        latency_microseconds / 1_000_000,
        pending,
        active,
        scheduled,
        retry,
        archived,
        completed,
        grouped + staged,
        groups,
        processed,
        failed,
        processed_total,
        failed_total,
        counted_at,
        read_limits(limits),
        due,
    )


def collections(keys: QueueKeys) -> tuple[str, ...]:
    """Return the keys of the six collections of a queue's ungrouped tasks, one for each state."""
    return keys.pending, keys.active, keys.scheduled, keys.retry, keys.archived, keys.completed


def memory_usage(queue: str, grouped: int) -> Plan[int]:
    """Return how many bytes a queue takes, estimated from 20 tasks of each state and of five groups.

    `grouped` is how many tasks are in groups.
    """
    keys = queue_keys(queue)
    size = yield ScriptCall(
        INSPECT_MEMORY,
        (*collections(keys), keys.groups),
        (keys.task_prefix, keys.group_prefix, grouped),
        Replay.SAFE,
    )
    return int(size)


def history(queue: str, days: int, *, now: Instant) -> Plan[list[DailyStatistics]]:
    """Return the counters of the last `days` days, in UTC, today first."""
    if not is_whole(days, 1) or days > _MAX_DAYS:
        raise InvalidOptionError("days", days, f"must be a whole number from 1 to {_MAX_DAYS}")
    yield from require_queue(queue)
    keys = queue_keys(queue)
    today = now.to_datetime().date()
    dates = [today - timedelta(days=number) for number in range(days)]
    names = [name for day in dates for name in (keys.processed_on(day), keys.failed_on(day))]
    reply = yield CommandCall(("MGET", *names), keys.processed, Replay.SAFE)
    numbers = [parse_number(value) for value in reply]
    return [DailyStatistics(queue, *row) for row in zip(dates, numbers[::2], numbers[1::2], strict=True)]


def pause_queue(queue: str, duration: Duration | None = None, *, now: Instant) -> Plan[None]:
    """Pause a queue for a time, or until `unpause_queue`; it need not exist yet.

    Raises:
        QueuePausedError: when it is paused already; its pause stays as it is.
    """
    check_name("queue", queue)
    seconds = 0
    if duration is not None:
        seconds = math.ceil(parse_seconds("duration", duration))
        if not seconds:
            raise InvalidOptionError("duration", duration, "must be more than 0 seconds; None has no end")
    paused = queue_keys(queue).paused
    args = (FIRST_SEND, now.seconds, seconds)
    if not (yield ScriptCall(INSPECT_PAUSE, (paused,), args, Replay.BY_TOKEN)):
        raise QueuePausedError(queue)


def unpause_queue(queue: str) -> Plan[None]:
    """End the pause of a queue. Raises `QueueNotPausedError`."""
    check_name("queue", queue)
    paused = queue_keys(queue).paused
    if not (yield ScriptCall(INSPECT_UNPAUSE, (paused,), (FIRST_SEND,), Replay.BY_TOKEN)):
        raise QueueNotPausedError(queue)
