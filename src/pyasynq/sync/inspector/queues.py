# Generated from src/pyasynq/inspector/queues.py by tools/unasync.py; change that file and run `make sync`.
"""The inspector's methods about queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.inspecting import queues, removal
from pyasynq._broker.inspecting.group_counts import describe_groups
from pyasynq._broker.queue_registry import queue_names
from pyasynq._broker.stored_limits import set_limits
from pyasynq.limits import UNCHANGED, Unchanged

from ._base import InspectorBase

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.info import DailyStatistics, GroupInfo, QueueInfo
    from pyasynq.limits import QueueLimits
    from pyasynq.options import Duration


class QueueInspector(InspectorBase):
    """Looks at queues, pauses them, removes them."""

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return self._run(queue_names())

    def queue_info(self, queue: str) -> QueueInfo:
        """Return the counts of a queue, its latency, and an estimate of the memory that it takes.

        Above 1,000 groups each call counts 5,000 of them: `aggregating` is then as old as `aggregating_at`.
        """
        plan = queues.queue_info(queue, now=self._now(), group_counts=self._group_counts)
        return self._run(plan)

    def history(self, queue: str, days: int) -> list[DailyStatistics]:
        """Return what was processed on each of the last 1 to 366 `days`, in UTC, today first."""
        return self._run(queues.history(queue, days, now=self._now()))

    def groups(self, queue: str) -> list[GroupInfo]:
        """Return the groups of a queue, by name."""
        return self._run(describe_groups(queue))

    def pause_queue(self, queue: str, duration: Duration | None = None) -> None:
        """Let no worker take tasks from a queue, which need not exist yet, until `unpause_queue`.

        With a duration, rounded up to whole seconds, the pause ends by itself: workers go on within
        5 seconds. Enqueueing, what runs, and the moving of due tasks go on.

        Raises:
            QueuePausedError: when it is paused already; that pause stays as it is.
        """
        self._run(queues.pause_queue(queue, duration, now=self._now()))

    def unpause_queue(self, queue: str) -> None:
        """Let workers take tasks from a queue again. Raises `QueueNotPausedError` when it is not paused."""
        self._run(queues.unpause_queue(queue))

    def set_queue_limits(
        self,
        queue: str,
        *,
        concurrency: int | Unchanged | None = UNCHANGED,
        rate: float | Unchanged | None = UNCHANGED,
        period: Duration | None = None,
        burst: int | None = None,
        ordered: bool | Unchanged | None = UNCHANGED,
    ) -> QueueLimits:
        """Limit a queue, which need not exist yet, for all pyasynq servers, whatever they were started with.

        Each limit wins over what servers ask for, until None removes it here; one that is not given stays
        as it is. Servers obey at their next look at the queue, at the latest after 5 seconds. What runs
        goes on. Servers in Go know of no limits and of no order.

        Args:
            queue: its name.
            concurrency: how many of its tasks run at once, at least 1; to stop it, pause it.
            rate: how many of its tasks start per `period`, more than 0.
            period: of a rate that is given, in seconds or a `timedelta`; a second unless given.
            burst: of a rate that is given: how many may start at once after a quiet time; as for `Queue`.
            ordered: True lets its tasks run strictly one after the other, False does not even if servers
                are started with `Queue(ordered=True)`. None leaves it to them: what they have made an
                ordered queue is none until one of those that say so looks at it again.

        Returns:
            what is stored for the queue now.
        """
        return self._run(set_limits(queue, concurrency, rate, period, burst, ordered=ordered))

    def remove_queue(
        self, queue: str, *, force: bool = False, progress: Callable[[int, int], object] | None = None
    ) -> int:
        """Remove a queue with all that was kept for it: locks, counters, pause, groups, limits, ticks.

        A queue with tasks, in whatever state, is removed by `force` only. Then they are deleted in short
        calls, each of which `progress` is told about: tasks so far, and tasks in all. To find what is left
        it goes through all keys of the database, 1,000 in one call. Tasks that are enqueued meanwhile keep
        the queue in being.

        Returns:
            how many tasks were deleted.

        Raises:
            QueueNotEmptyError: without `force`, when it has tasks; with it, when more came meanwhile.
            QueueBusyError: with `force`, when tasks are active.
        """
        return self._run_in_steps(removal.remove_queue(queue, force=force, progress=progress))
