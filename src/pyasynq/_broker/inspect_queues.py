"""Looking at queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.arguments import time_arguments
from pyasynq._broker.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._broker.scripts import INSPECT_QUEUE
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._wire.keys import ALL_QUEUES, queue_keys

if TYPE_CHECKING:
    from pyasynq._clock import Instant


class QueueCounts(NamedTuple):
    """How many tasks of a queue are in each state, and what it has processed.

    Attributes:
        paused: nothing is taken from the queue.
        latency: how many seconds the next task has been waiting; 0 when none waits.
        aggregating: tasks in all groups, those that are being aggregated right now among them.
        processed, failed: attempts of this day, in UTC; failed ones are counted in both.
    """

    queue: str
    paused: bool
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

    @property
    def size(self) -> int:
        """All tasks of the queue."""
        waiting = self.pending + self.scheduled + self.retry + self.aggregating
        return waiting + self.active + self.archived + self.completed


def queue_names() -> Plan[list[str]]:
    """Return the names of all queues, sorted."""
    names = yield CommandCall(("SMEMBERS", ALL_QUEUES), ALL_QUEUES, Replay.SAFE)
    return sorted(name.decode() for name in names)


def queue_info(queue: str, now: Instant | None = None) -> Plan[QueueCounts]:
    """Return the counts of a queue, all zero for one that does not exist. None: today is this host's."""
    keys = queue_keys(queue)
    today = (now or SYSTEM_CLOCK.now()).to_datetime()
    *counts, paused, latency_microseconds = yield ScriptCall(
        INSPECT_QUEUE,
        (
            keys.pending,
            keys.active,
            keys.scheduled,
            keys.retry,
            keys.archived,
            keys.completed,
            keys.groups,
            keys.aggregation_sets,
            keys.processed_on(today),
            keys.failed_on(today),
            keys.processed,
            keys.failed,
            keys.paused,
        ),
        (keys.task_prefix, keys.group_prefix, *time_arguments(now)),
        Replay.SAFE,
    )
    numbers = (int(count) for count in counts)
    return QueueCounts(queue, bool(paused), latency_microseconds / 1_000_000, *numbers)
