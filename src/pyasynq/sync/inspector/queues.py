# Generated from src/pyasynq/inspector/queues.py by tools/unasync.py; change that file and run `make sync`.
"""The inspector's methods about queues."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyasynq._broker import inspecting
from pyasynq._broker.inspecting import queues as plans_of_queues
from pyasynq._broker.inspecting.queue_sweep import QueueSweep, find_queues
from pyasynq._broker.inspecting.reading import find_missing_info, replica_state
from pyasynq._broker.queue_registry import queue_names
from pyasynq._broker.stored_limits import set_limits
from pyasynq._redis.read_pairs import read_both_blocking
from pyasynq.limits import UNCHANGED, Unchanged

from ._base import InspectorBase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq.info import DailyStatistics, GroupInfo, GroupPage, QueueInfo, QueueInfos, ReplicaState
    from pyasynq.limits import QueueLimits
    from pyasynq.options import Duration


class QueueInspector(InspectorBase):
    """Describes, pauses, limits and removes queues."""

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return self._run(queue_names())

    def queue_info(self, queue: str, *, memory: bool = False) -> QueueInfo:
        """Return the counts of a queue and its latency; with `memory`, also an estimate of its memory.

        Above 1,000 groups each call counts 5,000 of them: `aggregating` is then as old as `aggregating_at`.
        """
        plan = plans_of_queues.queue_info(
            queue, now=self._now(), group_counts=self._group_counts, memory=memory
        )
        return self._run(plan)

    def queue_infos(self, queues: Iterable[str] | None = None, *, memory: bool = False) -> QueueInfos:
        """Describe many queues, 200 in one pipeline to each node.

        A queue that does not exist or cannot be read is in `unreadable` of the result; the others are read.
        Above 1,000 groups, each call counts 500 of a queue.

        Args:
            queues: their names; None is all queues.
            memory: whether to estimate memory as well. Each call does so for 50 queues, or 10 if there are
                very many: those with the oldest estimates. The others have the last estimate of this
                inspector, scaled to their number of tasks, and its time.

        Returns:
            the queues in the order of `queues`, or sorted by name.

        Raises:
            RedisUnavailableError: when no node could be reached. If only some could, the queues of the
                others are in `unreadable`.
        """
        found, missing = self._run(find_queues(queues))
        estimates = self._memory_estimates if memory else None
        sweep = QueueSweep(found, missing, self._driver.find_node, estimates)
        # With asyncio, Redis describes one part while this process reads the replies about another.
        read_both_blocking(self._take_parts(sweep), self._take_parts(sweep))
        if not self._reads_replica:
            return sweep.result()
        replicas = self.replicas()
        times = [state.as_of for state in replicas]
        known = [time for time in times if time is not None]
        as_of = min(known) if known and len(known) == len(times) else None
        rights = () if replicas else self._run(find_missing_info())
        return replace(sweep.result(), as_of=as_of, missing_rights=rights)

    def _take_parts(self, sweep: QueueSweep) -> int:
        """Describe the queues part by part, until none is left; return the number of parts."""
        parts = 0
        while plans := sweep.next_plans(self._now(), self._group_counts):
            outcomes = self._driver.run_batch([self._guard(plan) for plan in plans.values()])
            sweep.take(plans, outcomes)
            parts += 1
        return parts

    def replicas(self) -> list[ReplicaState]:
        """Return the replication lag of the replicas that this inspector reads from.

        In a cluster there is an entry for each primary, in the order of slots. The result is empty if the
        inspector reads from primaries, or if the user may not call INFO.
        """
        if not self._reads_replica:
            return []
        self._run(queue_names())  # the nodes of a cluster are known after the first call
        plans = [replica_state(place, now=self._now()) for place in self._driver.places]
        return [state for state in self._run_in_parts(plans) if state is not None]

    def queue_memory(self, queue: str) -> int:
        """Return how many bytes a queue takes, estimated from up to 220 of its tasks."""
        return self._run(plans_of_queues.queue_memory(queue))

    def history(self, queue: str, days: int) -> list[DailyStatistics]:
        """Return the attempts of each of the last 1 to 366 `days`, in UTC, today first."""
        return self._run(plans_of_queues.history(queue, days, now=self._now()))

    def groups(self, queue: str) -> list[GroupInfo]:
        """Return all groups of a queue, by name, in calls of about 500; for very many, see `group_page`."""
        return self._run(inspecting.group_counts.describe_groups(queue))

    def group_page(self, queue: str, *, cursor: str = "", page_size: int = 100) -> GroupPage:
        """Return a page of the groups of a queue, in no particular order.

        Pass the `cursor` of a page to get the next one, until it is empty. A group that exists all the time
        is on at least one page.

        Args:
            queue: the queue's name.
            cursor: cursor of the previous page; empty for the first one.
            page_size: about how many groups, at most 1,000. If a queue has few groups,
                Redis returns all of them in one page.

        Raises:
            InvalidOptionError: also for an invalid cursor.
        """
        return self._run(inspecting.group_counts.list_group_page(queue, cursor, page_size))

    def pause_queue(self, queue: str, duration: Duration | None = None) -> None:
        """Pause a queue, which need not exist yet: workers take no tasks from it until `unpause_queue`.

        With a duration, rounded up to whole seconds, the pause ends by itself: workers go on within
        5 seconds. Enqueueing, running tasks and the forwarding of due tasks go on.

        Raises:
            QueuePausedError: when it is paused already; that pause stays as it is.
        """
        self._require_primary()
        self._run(plans_of_queues.pause_queue(queue, duration, now=self._now()))

    def unpause_queue(self, queue: str) -> None:
        """Resume a paused queue. Raises `QueueNotPausedError` when it is not paused."""
        self._require_primary()
        self._run(plans_of_queues.unpause_queue(queue))

    def set_queue_limits(
        self,
        queue: str,
        *,
        max_run: int | Unchanged | None = UNCHANGED,
        rate: float | Unchanged | None = UNCHANGED,
        period: Duration | None = None,
        burst: int | None = None,
        ordered: bool | Unchanged | None = UNCHANGED,
        expected: QueueLimits | None = None,
    ) -> QueueLimits:
        """Set a queue's concurrency limit, rate limit and order for all pyasynq servers.

        A value set here overrides what servers were started with, until None removes it. An omitted value
        stays as it is. Servers apply a change when they next read the queue's state, within 5 seconds;
        running tasks continue. The queue need not exist yet. Servers in Go ignore limits and order.

        Args:
            queue: its name.
            max_run: largest number of its tasks that run at once, at least 1; to stop the queue, pause it.
            rate: largest number of its tasks that start per `period`, more than 0.
            period: the period of `rate`, in seconds or a `timedelta`; one second by default.
            burst: number of tasks that may start at once after a quiet time, with `rate`; see `Queue`.
            ordered: True runs its tasks strictly one after the other (FIFO). False ends that, even for
                servers with `Queue(ordered=True)`. None removes the stored order: the queue is ordered again
                as soon as a server with `Queue(ordered=True)` asks it for tasks.
            expected: the stored limits as `QueueInfo.limits` has them. If others are stored by now, nothing
                is changed (compare-and-set).

        Returns:
            the limits stored for the queue now.

        Raises:
            QueueLimitsChangedError: the stored limits are not `expected`.
            ReplyLostError: with `expected`, the connection broke: they may have been changed.
        """
        self._require_primary()
        plan = set_limits(queue, max_run, rate, period, burst, ordered=ordered, expected=expected)
        return self._run(plan)

    def remove_queue(
        self, queue: str, *, force: bool = False, progress: Callable[[int, int], object] | None = None
    ) -> int:
        """Remove a queue and all its keys: locks, counters, pause, groups, limits, ticks of schedules.

        A queue with tasks, in any state, is removed by `force` only. They are deleted in short calls; after
        each, `progress` is called with the number of deleted tasks and the total. The queue's other keys are
        found by a scan of all keys of the database, 1,000 in one call. If tasks are enqueued meanwhile, the
        queue continues to exist.

        Returns:
            how many tasks were deleted.

        Raises:
            QueueNotEmptyError: without `force`, when it has tasks; with it, when more came meanwhile.
            QueueBusyError: with `force`, when tasks are active.
        """
        self._require_primary()
        plan = inspecting.removal.remove_queue(queue, force=force, progress=progress)
        return self._run_in_steps(plan)
