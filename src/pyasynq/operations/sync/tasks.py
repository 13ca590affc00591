# Generated from src/pyasynq/operations/operator/tasks.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about single tasks, and about lists of tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyasynq._broker import inspecting
from pyasynq.errors import PayloadChangedError
from pyasynq.operations.acting import copy_of
from pyasynq.operations.audit import note_change
from pyasynq.operations.redaction import check_headers_not_redacted, check_not_redacted
from pyasynq.operations.request_keys import check_key, options_of_key
from pyasynq.task import Task, TaskState

from ._base import OperatorBase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from typing import Literal

    from pyasynq.info import CancelResult, ErrorReport, TaskPage, TypeReport
    from pyasynq.options import Duration
    from pyasynq.task import FinishedTask, TaskInfo


class TaskOperator(OperatorBase):
    """The operator's methods about single tasks: read, move, change.

    Secrets are removed from payloads, results, headers and errors; without the permission `payload.view`
    these are withheld.
    """

    def tasks(
        self, queue: str, state: TaskState | str, page: int = 1, page_size: int = 30, *, group: str = ""
    ) -> list[TaskInfo]:
        """Return a page of the tasks of one state, as `Inspector.list_tasks`."""
        return self._inspector.list_tasks(queue, state, page, page_size, group=group)

    def walk_tasks(
        self, queue: str, state: TaskState | str, *, group: str = "", cursor: str = "", page_size: int = 30
    ) -> TaskPage:
        """Return a page of the tasks of one state, the newest first, as `Inspector.walk_tasks`.

        Raises:
            InvalidOptionError: also for a cursor that a walk of this list did not return.
        """
        return self._inspector.walk_tasks(queue, state, group=group, cursor=cursor, page_size=page_size)

    def task(self, queue: str, task_id: str) -> TaskInfo:
        """Return the description of a task.

        Raises:
            TaskNotFoundError: when there is none with this id in the queue.
        """
        return self._inspector.task_info(queue, task_id)

    def find_tasks(self, ids: Iterable[str], queues: Sequence[str] | None = None) -> list[TaskInfo]:
        """Return the tasks with these ids, of these queues or of all; ids without a task are left out."""
        return self._inspector.find_tasks(ids, queues)

    def errors(
        self,
        queue: str,
        state: TaskState | str = TaskState.ARCHIVED,
        *,
        scan: int = 10_000,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> ErrorReport:
        """Group retry or archived tasks by their errors, as `Inspector.error_report`."""
        return self._inspector.error_report(queue, state, scan=scan, since=since, until=until)

    def error_reports(
        self,
        queues: Sequence[str] | None = None,
        state: TaskState | str = TaskState.ARCHIVED,
        *,
        scan: int = 10_000,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> dict[str, ErrorReport]:
        """Return what `errors` returns for many queues, which are read in shared pipelines.

        The arguments are the same as for `errors`; `scan` is a limit for each queue. `queues=None` means all
        queues that the user sees.
        """
        names = self._inspector.queues() if queues is None else list(dict.fromkeys(queues))
        return self._inspector.error_reports(names, state, scan=scan, since=since, until=until)

    def state_counts(
        self, state: TaskState | str, queues: Sequence[str] | None = None
    ) -> dict[str, int | None]:
        """Return the number of tasks of a state by queue; None for a queue that cannot be counted.

        It takes a tenth of the time of `queue_infos`. `queues=None` counts all queues that the user sees.
        """
        names = self._inspector.queues() if queues is None else list(dict.fromkeys(queues))
        return self._inspector.state_counts(
            names,
            inspecting.tasks.parse_state(
                state, "*" if state == TaskState.AGGREGATING else "", tuple(TaskState)
            ),
        )

    def types(
        self,
        queue: str,
        *,
        scan: int = 10_000,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> TypeReport:
        """Count the task types of a queue, as `Inspector.type_report`."""
        return self._inspector.type_report(queue, scan=scan, since=since, until=until)

    def wait_task(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait until a task has ended, as `Client.wait`; a task that Redis keeps includes its result.

        Raises:
            WaitTimeoutError: the task has not ended in time.
        """
        return self._client.wait(queue, task_id, timeout)

    def run_task(self, queue: str, task_id: str, *, reason: str = "") -> None:
        """Run a task now: put a scheduled, retry, archived, completed or aggregating task at its queue's end.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when its state does not allow it.
        """
        self._inspector.run_task(queue, task_id)

    def cancel_task(
        self,
        queue: str,
        task_id: str,
        outcome: Literal["retry", "archive", "delete"] = "retry",
        *,
        wait: Duration = 0.0,
        reason: str = "",
    ) -> CancelResult:
        """Cancel a running task, as `Inspector.cancel`; wait this many seconds for its end.

        Raises:
            TaskNotFoundError: when there is no such task.
        """
        [result] = self._inspector.cancel(task_id, queue, outcome, wait=wait)
        return result

    def archive_task(self, queue: str, task_id: str, *, reason: str = "") -> int:
        """Archive a task; return how many archived tasks were deleted to make room.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when its state does not allow it.
        """
        return self._inspector.archive_task(queue, task_id)

    def delete_task(self, queue: str, task_id: str, *, reason: str = "") -> None:
        """Delete a task and release the lock that it owns.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when its state does not allow it.
        """
        self._inspector.delete_task(queue, task_id)

    def reschedule_task(
        self,
        queue: str,
        task_id: str,
        process_at: datetime,
        *,
        reason: str = "",
    ) -> None:
        """Set when a scheduled or retry task is due; an archived one becomes scheduled.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is in another state.
        """
        before = self._inspector.task_info(queue, task_id)
        note_change(before.next_process_at, process_at)
        self._inspector.update_process_at(queue, task_id, process_at)

    def edit_payload(
        self,
        queue: str,
        task_id: str,
        payload: bytes,
        *,
        relock: bool = False,
        expected: bytes | None = None,
        reason: str = "",
    ) -> None:
        """Replace the payload of a scheduled, retry or archived task, as `Inspector.update_payload`.

        `expected` is the payload as `task` shows it: nothing is changed if the task has another payload now
        (compare-and-set).

        Raises:
            InvalidOptionError: the payload contains the mask of a redacted secret.
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is in another state.
            DuplicateTaskError: with `relock`, when another task holds the lock.
            PayloadChangedError: the payload is not the expected one.
        """
        check_not_redacted("payload", payload)
        before = self._inspector.task_info(queue, task_id)
        # Redact both payloads as for this user: by names, published secret fields and the user's hook.
        redact = self._redactor.task
        old, new = (
            redact(replace(before, payload=one), payload_view=True).payload.decode("utf-8", "replace")
            for one in (before.payload, payload)
        )
        note_change(old, new, before.type)
        if expected is not None and expected != self._shown(before).payload:
            raise PayloadChangedError(queue, task_id)
        self._inspector.update_payload(
            queue, task_id, payload, relock=relock, expected=None if expected is None else before.payload
        )

    def enqueue_copy(
        self,
        queue: str,
        task_id: str,
        payload: bytes | None = None,
        *,
        key: str = "",
        reason: str = "",
    ) -> TaskInfo:
        """Enqueue a copy of a task of the queue, which may be in any state, under a new id.

        Args:
            queue: queue of the task and of its copy.
            task_id: id of the task to copy. The copy has its headers, timeout, retries and retention, and no
                other option of it.
            payload: payload of the copy; None to copy the payload of the task.
            key: name of this request (idempotency key). If the user has made a copy with it within a day,
                that copy is returned, and nothing is enqueued.
            reason: why, for the audit.

        Raises:
            InvalidOptionError: the payload contains the mask of a redacted secret; or the key was used for
                something else.
            TaskNotFoundError: when there is no such task.
        """
        check_not_redacted("payload", payload or b"")
        task, options = copy_of(self._inspector.task_info(queue, task_id))
        if payload is not None:
            task = Task(task.type, payload)
        if key:
            content = ascii((queue, task_id, payload)).encode()
            options |= options_of_key(key, self.user.name, content, options)
        info = self._client.enqueue(task, **options)
        check_key(key, options.get("headers", {}), info)
        return info

    def enqueue(self, queue: str, task: Task, *, reason: str = "") -> TaskInfo:
        """Enqueue a task into this queue, which need not exist yet; the task's other options apply.

        Raises:
            InvalidOptionError: for an invalid option, or the mask of a redacted secret in payload or
                headers.
            EnqueueError: when the task exists, or another one holds its lock.
        """
        check_not_redacted("payload", task.payload or b"")
        check_headers_not_redacted(task.options.get("headers"))
        return self._client.enqueue(task, queue=queue)
