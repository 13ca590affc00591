"""Plans of the inspector about queues: arguments are checked, results are of the ground floor's types."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pyasynq._broker.inspecting import group_counts
from pyasynq._broker.inspecting import queues as inspect_queues
from pyasynq._broker.inspecting import removal as inspect_removal
from pyasynq._broker.stored_limits import get_limits
from pyasynq._checks import checked_name, is_whole, seconds_of
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import ALL_QUEUES
from pyasynq.errors import InvalidOptionError, QueueNotFoundError
from pyasynq.info import DailyStatistics, GroupInfo, QueueInfo

if TYPE_CHECKING:
    from pyasynq._broker.inspecting.actions import Progress
    from pyasynq._broker.inspecting.group_counts import GroupCounts
    from pyasynq._clock import Instant
    from pyasynq.options import Duration

_MAX_DAYS: Final = 366


def require_queue(queue: str) -> Plan[None]:
    """Raise `QueueNotFoundError` for a queue that no task was ever enqueued to, or `InvalidOptionError`."""
    checked_name("queue", queue)
    if not (yield CommandCall(("SISMEMBER", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)):
        raise QueueNotFoundError(queue)


def queue_info(queue: str, *, now: Instant, counts_of_groups: GroupCounts | None = None) -> Plan[QueueInfo]:
    """Describe a queue."""
    yield from require_queue(queue)
    counts = (yield from inspect_queues.queue_info(queue, now, counts_of_groups))._asdict()
    memory = yield from inspect_queues.memory_usage(queue, counts["aggregating"])
    counted_at = counts.pop("aggregating_at")
    limits = yield from get_limits(queue)
    left = counts.pop("pause_left")
    return QueueInfo(
        **counts | {"latency": timedelta(seconds=counts["latency"])},
        timestamp=now.to_datetime(),
        paused_until=None if left is None else now.plus(left).to_datetime(),
        aggregating_at=counted_at and counted_at.to_datetime(),
        memory_usage=memory,
        limits=limits,
    )


def history(queue: str, days: int, *, now: Instant) -> Plan[list[DailyStatistics]]:
    """Describe each of the last `days` days, today first."""
    if not is_whole(days, 1) or days > _MAX_DAYS:
        raise InvalidOptionError("days", days, f"must be a whole number from 1 to {_MAX_DAYS}")
    yield from require_queue(queue)
    rows = yield from inspect_queues.history(queue, days, now)
    return [DailyStatistics(queue, *row) for row in rows]


def groups(queue: str) -> Plan[list[GroupInfo]]:
    """Describe the groups of a queue."""
    yield from require_queue(queue)
    sizes = yield from group_counts.group_sizes(queue)
    return [GroupInfo(name, size) for name, size in sizes.items()]


def pause_queue(queue: str, duration: Duration | None, *, now: Instant) -> Plan[None]:
    """Pause a queue for a time, or until it is ended; it need not exist yet."""
    checked_name("queue", queue)
    seconds = 0
    if duration is not None:
        seconds = math.ceil(seconds_of("duration", duration))
        if not seconds:
            raise InvalidOptionError("duration", duration, "must be more than 0 seconds; None has no end")
    yield from inspect_queues.pause(queue, duration=seconds, now=now)


def unpause_queue(queue: str) -> Plan[None]:
    """End the pause of a queue."""
    checked_name("queue", queue)
    yield from inspect_queues.unpause(queue)


def remove_queue(queue: str, *, force: bool, progress: Progress | None) -> Plan[int]:
    """Remove a queue; return how many tasks were deleted with it."""
    yield from require_queue(queue)
    return (yield from inspect_removal.remove_queue(queue, force=force, progress=progress))
