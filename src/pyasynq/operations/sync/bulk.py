# Generated from src/pyasynq/operations/operator/bulk.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about many tasks of one queue, done in one call: some ids, or a whole state.

An operation (`OperationOperator`) does the same with a preview, pauses and undo.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq.errors import InvalidOptionError
from pyasynq.operations.redaction import check_headers_not_redacted, check_not_redacted

from ._base import OperatorBase

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from pyasynq.info import BulkResult, TaskResults
    from pyasynq.operations.importing import ImportReport
    from pyasynq.options import Duration
    from pyasynq.task import Task, TaskState

_DAY: Final = 86_400.0


class BulkOperator(OperatorBase):
    """Moves or deletes many tasks of one queue at once; a deletion cannot be undone."""

    def run_tasks(self, queue: str, ids: Sequence[str], *, reason: str = "") -> TaskResults:
        """Put the tasks of these ids at the end of the queue; return a result for each."""
        return self._inspector.run_tasks(queue, ids)

    def archive_tasks(
        self, queue: str, ids: Sequence[str], *, trim: bool = False, reason: str = ""
    ) -> TaskResults:
        """Archive the tasks of these ids; return a result for each.

        Raises:
            ArchiveFullError: without `trim`, when older archived tasks would be deleted to make room.
        """
        return self._inspector.archive_tasks(queue, ids, trim=trim)

    def delete_tasks(self, queue: str, ids: Sequence[str], *, reason: str = "") -> TaskResults:
        """Delete the tasks of these ids and release their locks; return a result for each."""
        return self._inspector.delete_tasks(queue, ids)

    def cancel_tasks(
        self,
        queue: str,
        ids: Sequence[str],
        outcome: Literal["retry", "archive", "delete"] = "retry",
        *,
        reason: str = "",
    ) -> TaskResults:
        """Request the cancellation of the running tasks with these ids; return a result for each."""
        return self._inspector.cancel_tasks(queue, ids, outcome)

    def run_all_tasks(
        self, queue: str, state: TaskState | str, *, group: str = "", reason: str = ""
    ) -> BulkResult:
        """Put all scheduled, retry or archived tasks, or all tasks of a group, at the end of the queue."""
        return self._inspector.run_all(queue, state, group=group)

    def archive_all_tasks(
        self, queue: str, state: TaskState | str, *, group: str = "", trim: bool = False, reason: str = ""
    ) -> BulkResult:
        """Archive all pending, scheduled or retry tasks, or all tasks of a group.

        Raises:
            ArchiveFullError: without `trim`, when older archived tasks would be deleted to make room.
        """
        return self._inspector.archive_all(queue, state, group=group, trim=trim)

    def delete_all_tasks(
        self, queue: str, state: TaskState | str, *, group: str = "", reason: str = ""
    ) -> BulkResult:
        """Delete all tasks of a state other than active, or all tasks of a group, and release their locks."""
        return self._inspector.delete_all(queue, state, group=group)

    def import_tasks(
        self, queue: str, tasks: Sequence[Task], *, once_for: Duration = _DAY, reason: str = ""
    ) -> ImportReport:
        """Enqueue tasks with ids of their own, each at most once; return the outcome.

        After an error the same call may be made again: tasks that arrived before are counted as existing,
        even if they have ended meanwhile.

        Args:
            queue: the queue, which need not exist yet.
            tasks: tasks that `parse_task_line` has read, or other tasks with a `task_id`.
            once_for: time for which the ids are remembered, to skip duplicates.
            reason: why, for the audit.

        Raises:
            InvalidOptionError: a task has no `task_id`, or contains the mask of a redacted secret.
            RedisError: Redis cannot be reached; some of the tasks may have been enqueued.
        """
        from pyasynq.operations.importing import count_results  # noqa: PLC0415 - most calls need none

        for task in tasks:
            check_not_redacted("payload", task.payload or b"")
            check_headers_not_redacted(task.options.get("headers"))
            if not task.options.get("task_id"):
                raise InvalidOptionError("task_id", None, "is needed, so that nothing is enqueued twice")
        results = self._client.enqueue_many(tasks, on_error="return", queue=queue, once_for=once_for)
        return count_results(results)
