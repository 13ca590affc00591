"""The inspector's methods about all tasks of one state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.inspecting import bulk

from ._base import InspectorBase

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.info import BulkResult
    from pyasynq.task import TaskState


class BulkInspector(InspectorBase):
    """Moves or deletes all tasks of a state, or of a group, in calls of up to 1,000 tasks.

    Redis serves others between two calls. `progress` is told after each: tasks dealt with so far, and how
    many there were at the start, after as many of which the operation ends. What it raises ends it at once.
    """

    async def run_all(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str = "",
        progress: Callable[[int, int], object] | None = None,
    ) -> BulkResult:
        """Put all scheduled, retry or archived tasks, or those of a group, at the end of the queue.

        Those that were due or archived first will run first.
        """
        plan = bulk.run_all(queue, state, group=group, progress=progress, now=self._now())
        return await self._run_in_steps(plan)

    async def archive_all(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str = "",
        trim: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> BulkResult:
        """Archive all pending, scheduled or retry tasks, or those of a group.

        An archive keeps `archive_max_size` tasks; what is above that is deleted, the oldest first. `trim`
        allows that; `trimmed` of the result says how many were deleted.

        Raises:
            ArchiveFullError: without `trim`, when the archive has not room for all; nothing was changed.
        """
        plan = bulk.archive_all(
            queue, state, group=group, progress=progress, limits=self._limits(), trim=trim, now=self._now()
        )
        return await self._run_in_steps(plan)

    async def delete_all(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str = "",
        progress: Callable[[int, int], object] | None = None,
    ) -> BulkResult:
        """Delete all pending, scheduled, retry, archived or completed tasks, or those of a group.

        The locks that they own are released.
        """
        plan = bulk.delete_all(queue, state, group=group, progress=progress)
        return await self._run_in_steps(plan)
