# Generated from src/pyasynq/inspector/bulk.py by tools/unasync.py; change that file and run `make sync`.
"""The inspector's methods about many tasks: all tasks of a state, or tasks by their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq import info
from pyasynq._broker import inspecting
from pyasynq._broker.queue_registry import require_queue

from ._base import InspectorBase

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime
    from typing import Literal

    from pyasynq.info import BulkResult, TaskResults
    from pyasynq.options import Duration
    from pyasynq.task import TaskState


class BulkInspector(InspectorBase):
    """Moves or deletes many tasks, in calls of up to 250 tasks.

    Redis serves others between two calls. `progress` is called after each call with the number of processed
    tasks, and the number of tasks at the start. The operation ends when it has processed that number. An
    exception from `progress` ends it at once.
    """

    def run_all(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str = "",
        progress: Callable[[int, int], object] | None = None,
    ) -> BulkResult:
        """Put all scheduled, retry or archived tasks, or those of a group, at the end of the queue.

        Tasks that were due or archived first will run first.
        """
        self._require_primary()
        plan = inspecting.bulk.run_all(queue, state, group=group, progress=progress, now=self._now())
        return self._run_in_steps(plan)

    def archive_all(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str = "",
        trim: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> BulkResult:
        """Archive all pending, scheduled or retry tasks, or those of a group.

        An archive keeps `archive_max_size` tasks; tasks beyond that are deleted, the oldest first. `trim`
        allows that; the result's `trimmed` is the number of deleted tasks.

        Raises:
            ArchiveFullError: without `trim`, when the archive has not room for all; nothing was changed.
        """
        self._require_primary()
        plan = inspecting.bulk.archive_all(
            queue, state, group=group, progress=progress, limits=self._limits(), trim=trim, now=self._now()
        )
        return self._run_in_steps(plan)

    def delete_all(
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
        self._require_primary()
        plan = inspecting.bulk.delete_all(queue, state, group=group, progress=progress)
        return self._run_in_steps(plan)

    def run_tasks(self, queue: str, ids: Iterable[str]) -> TaskResults:
        """Put the tasks of these ids at the end of the queue, as `run_task` does with one.

        Missing, active and pending tasks, and tasks being aggregated, are refused, as their results say.
        """
        self._require_primary()
        return self._run_in_steps(inspecting.by_ids.run_by_ids(queue, ids, now=self._now()))

    def archive_tasks(self, queue: str, ids: Iterable[str], *, trim: bool = False) -> TaskResults:
        """Archive the tasks of these ids, as `archive_task` does with one.

        An archive keeps `archive_max_size` tasks; tasks beyond that are deleted, the oldest first. `trim`
        allows that; the result's `trimmed` is the number of deleted tasks.

        Raises:
            ArchiveFullError: without `trim`, when the archive has not room for all; nothing was changed.
        """
        self._require_primary()
        plan = inspecting.by_ids.archive_by_ids(queue, ids, limits=self._limits(), trim=trim, now=self._now())
        return self._run_in_steps(plan)

    def delete_tasks(self, queue: str, ids: Iterable[str]) -> TaskResults:
        """Delete the tasks of these ids and release the locks they own, as `delete_task` does with one."""
        self._require_primary()
        return self._run_in_steps(inspecting.by_ids.delete_by_ids(queue, ids))

    def reschedule_tasks(
        self, queue: str, ids: Iterable[str], process_at: datetime, *, spread: Duration = 0.0
    ) -> TaskResults:
        """Set when the scheduled and retry tasks of these ids are due; archived tasks become scheduled.

        Args:
            queue: name of the tasks' queue.
            ids: ids of the tasks.
            process_at: when they are due, aware.
            spread: time span over which to spread the due times evenly, in the order of the ids, from
                `process_at` on; in seconds or a `timedelta`.
        """
        self._require_primary()
        plan = inspecting.by_ids.reschedule_by_ids(queue, ids, process_at, spread=spread, now=self._now())
        return self._run_in_steps(plan)

    def cancel_tasks(
        self, queue: str, ids: Iterable[str], outcome: Literal["retry", "archive", "delete"] = "retry"
    ) -> TaskResults:
        """Request the cancellation of the running tasks with these ids, as `cancel` for one.

        `TaskResult.cancel` says whether the request was stored for a pyasynq worker, or published to a Go
        worker, which acknowledges nothing and always retries.
        """
        self._require_primary()
        plans = inspecting.by_ids.cancel_by_ids(queue, ids, outcome, now=self._clock.redis_now())
        self._run(require_queue(queue))
        return info.TaskResults(tuple(self._run_in_parts(plans)))
