# Generated from src/pyasynq/operations/operator/queues.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq.operations.audit import note_change

from ._base import OperatorBase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from pyasynq.info import ClusterNode, DailyStatistics, GroupInfo, GroupPage, QueueInfo, QueueInfos
    from pyasynq.limits import LimitChanges, QueueLimits
    from pyasynq.operations.limit_report import LimitReport
    from pyasynq.options import Duration


class QueueOperator(OperatorBase):
    """The operator's methods about queues: read, pause, limit, delete."""

    def queues(self, queues: Sequence[str] | None = None) -> list[str]:
        """Return the names of existing queues, sorted; `queues` limits the result to these names."""
        names = self._inspector.queues()
        return names if queues is None else [name for name in names if name in set(queues)]

    def queue_infos(self, queues: Sequence[str] | None = None, *, memory: bool = False) -> QueueInfos:
        """Return the counts of many queues, as `Inspector.queue_infos`; None is all that the user sees."""
        return self._inspector.queue_infos(queues, memory=memory)

    def queue(self, queue: str, *, memory: bool = False) -> QueueInfo:
        """Return the counts, the latency and the limits of a queue, and its memory on request."""
        return self._inspector.queue_info(queue, memory=memory)

    def history(self, queue: str, days: int) -> list[DailyStatistics]:
        """Return the attempts of each of the last 1 to 366 `days`, in UTC, today first."""
        return self._inspector.history(queue, days)

    def groups(self, queue: str) -> list[GroupInfo]:
        """Return the groups of a queue, by name."""
        return self._inspector.groups(queue)

    def group_page(self, queue: str, *, cursor: str = "", page_size: int = 100) -> GroupPage:
        """Return a page of the groups of a queue, as `Inspector.group_page`."""
        return self._inspector.group_page(queue, cursor=cursor, page_size=page_size)

    def queue_limits(self, queue: str) -> LimitReport:
        """Return stored limits of a queue, limits that servers declare, and the number of running tasks.

        Raises:
            QueueNotFoundError: when there is no such queue.
        """
        from pyasynq.operations.limit_report import LimitReport  # noqa: PLC0415 - most calls need none

        info = self._inspector.queue_info(queue)
        servers = self._inspector.servers(queue)
        return LimitReport(
            queue=queue,
            stored=info.limits,
            asked={server.id: server.limits[queue] for server in servers if queue in server.limits},
            active=info.active,
            pending=info.pending,
            ignored_by=tuple(server.id for server in servers if not server.engine),
        )

    def queue_nodes(self, queue: str) -> list[ClusterNode]:
        """Return the nodes of the cluster that have a queue, the primary first; empty for a single server."""
        return self._inspector.cluster_nodes(queue) if self._inspector.is_cluster else []

    def pause_queue(self, queue: str, duration: Duration | None = None, *, reason: str = "") -> None:
        """Pause a queue: workers take no tasks until it is resumed, or until the duration (seconds) is over.

        Raises:
            QueuePausedError: when it is paused already.
        """
        self._inspector.pause_queue(queue, duration)

    def resume_queue(self, queue: str, *, reason: str = "") -> None:
        """Resume a paused queue. Raises `QueueNotPausedError` when it is not paused."""
        self._inspector.unpause_queue(queue)

    def set_queue_limits(
        self,
        queue: str,
        *,
        expected: QueueLimits | None = None,
        reason: str = "",
        **limits: Unpack[LimitChanges],
    ) -> QueueLimits:
        """Change the limits of a queue, as `Inspector.set_queue_limits`; return the limits stored afterwards.

        Raises:
            QueueLimitsChangedError: other limits than the expected ones are stored.
        """
        before = self._inspector.queue_limits(queue)
        after = self._inspector.set_queue_limits(queue, expected=expected, **limits)
        note_change(before, after)
        return after

    def delete_queue(self, queue: str, *, force: bool = False, reason: str = "") -> int:
        """Delete a queue, with `force` also its tasks; return how many tasks were deleted. Cannot be undone.

        Raises:
            QueueNotEmptyError: without `force`, when it has tasks.
            QueueBusyError: when tasks are active.
        """
        return self._inspector.remove_queue(queue, force=force)
