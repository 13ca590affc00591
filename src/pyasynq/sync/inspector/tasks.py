# Generated from src/pyasynq/inspector/tasks.py by tools/unasync.py; change that file and run `make sync`.
"""The inspector's methods about single tasks, and about what can be found among many."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pyasynq._broker.cancellation import is_open, look_again, request_cancelation
from pyasynq._broker.inspecting import actions, search, tasks, updates
from pyasynq._checks import seconds_of
from pyasynq._clock import sleep_blocking
from pyasynq.task import TaskState

from ._base import InspectorBase

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Literal, Unpack

    from pyasynq.info import CancelResult, ErrorReport, SearchPage, TaskFilters, TypeReport
    from pyasynq.options import Duration
    from pyasynq.task import TaskInfo

_LOOK_SECONDS: Final = 0.1


class TaskInspector(InspectorBase):
    """Looks at tasks, moves and changes them one by one."""

    def list_tasks(
        self, queue: str, state: TaskState | str, page: int = 1, page_size: int = 30, *, group: str = ""
    ) -> list[TaskInfo]:
        """Return a page of the tasks of one state; aggregating ones are listed by their group.

        Pending tasks come in the order in which they will be taken, active ones in that in which they were
        taken. All others come in ascending order: scheduled and retry ones by the time they are due, archived
        ones by the time they were archived, completed ones by the time they will be deleted, aggregating ones
        by the time they joined. Messages that cannot be decoded are left out.

        Raises:
            InvalidOptionError: for another state, and for a `page` or `page_size` below 1.
        """
        plan = tasks.list_tasks(queue, state, group=group, page=page, page_size=page_size, now=self._now())
        return self._run(plan)

    def task_info(self, queue: str, task_id: str) -> TaskInfo:
        """Return what Redis knows of a task.

        Raises:
            TaskNotFoundError: when there is none with this id in the queue.
            UnknownTaskStateError: when its state is a word that pyasynq does not know.
            UndecodableMessageError: when its message is none.
        """
        return self._run(tasks.describe_task(queue, task_id, now=self._now()))

    def search_tasks(
        self,
        queue: str,
        state: TaskState | str,
        *,
        group: str = "",
        cursor: int = 0,
        scan: int = 1_000,
        **filters: Unpack[TaskFilters],
    ) -> SearchPage:
        """Return the tasks that match all `filters`, among the next `scan` tasks of a state.

        Pass the `cursor` of the page as that of the next call until it is None. Positions are counted in the
        order of `list_tasks`, so tasks that come or go between two calls may be missed or found twice.

        Raises:
            InvalidOptionError: also for a filter by age in the states `scheduled` and `active`: Redis does
                not tell since when tasks are in them.
        """
        plan = search.search_tasks(
            queue, state, filters, group=group, cursor=cursor, scan=scan, now=self._now()
        )
        return self._run_in_steps(plan)

    def error_report(
        self, queue: str, state: TaskState | str = TaskState.ARCHIVED, *, scan: int = 10_000
    ) -> ErrorReport:
        """Group the first `scan` retry or archived tasks by their errors, the most frequent first.

        Errors are alike when their first lines are, numbers, ids and quotations aside.
        """
        plan = search.error_report(queue, state, scan=scan, now=self._now())
        return self._run_in_steps(plan)

    def type_report(self, queue: str, *, scan: int = 10_000) -> TypeReport:
        """Count the task types of a queue, looking at the first `scan` tasks of each state and each group."""
        return self._run_in_steps(search.type_report(queue, scan=scan, now=self._now()))

    def run_task(self, queue: str, task_id: str) -> None:
        """Put a scheduled, retry, archived, completed or aggregating task at the end of its queue.

        It runs by itself; after a failure, one that has a group joins the group when it is due, as in Asynq.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is active, pending, or on its way into an aggregate.
        """
        self._run(actions.run_task(queue, task_id, now=self._now()))

    def archive_task(self, queue: str, task_id: str) -> int:
        """Archive a task, whatever it waits for; return how many others were deleted to make room.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is active, archived, or on its way into an aggregate.
        """
        plan = actions.archive_task(queue, task_id, limits=self._limits(), now=self._now())
        return self._run(plan)

    def delete_task(self, queue: str, task_id: str) -> None:
        """Delete a task and release the lock that it owns.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is active or on its way into an aggregate.
        """
        self._run(actions.delete_task(queue, task_id))

    def update_payload(
        self, queue: str, task_id: str, payload: bytes | None, *, relock: bool = False
    ) -> None:
        """Replace the payload of a scheduled, retry or archived task.

        The uniqueness lock stays that of the old payload, as in Asynq. With `relock` it moves to the new one
        and keeps the time that it has left; one that has lapsed is not taken again.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is in another state.
            DuplicateTaskError: with `relock`, when another task holds the lock; nothing was changed.
        """
        self._run(updates.update_payload(queue, task_id, payload, relock=relock))

    def update_process_at(self, queue: str, task_id: str, process_at: datetime) -> None:
        """Set when a scheduled or retry task is due; an archived one becomes scheduled.

        A uniqueness lock that the task owns holds longer by as much as the task waits longer.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is in another state.
        """
        self._run(updates.update_process_at(queue, task_id, process_at, now=self._now()))

    def cancel(
        self,
        task_id: str,
        queue: str | None = None,
        outcome: Literal["retry", "archive", "delete"] = "retry",
        *,
        wait: Duration = 0.0,
    ) -> list[CancelResult]:
        """Cancel what runs under this id, in one queue or, without one, in all of them.

        Its handler gets `CancelledError`, or sees `context().cancelled`, and time to clean up; then the task
        is retried as after a failure, archived or deleted. The request holds for 60 seconds, and only for the
        attempt that runs now. A worker in Go is told too, but always retries and acknowledges nothing.

        Args:
            task_id: of the task.
            queue: where it is; None is wherever it is.
            outcome: what is to become of it.
            wait: how long to wait for the attempts to end, looking ten times a second; cancelling the wait
                does not take the request back.

        Returns:
            for each queue that has a task of this id, what is known of the request.

        Raises:
            TaskNotFoundError: when a queue is named that has no such task.
        """
        # Not the clock of the inspector: that of a test stands still meanwhile.
        until = time.monotonic() + seconds_of("wait", wait)
        results = self._run(request_cancelation(task_id, queue, outcome, now=self._clock.redis_now()))
        while any(map(is_open, results)) and time.monotonic() < until:
            sleep_blocking(_LOOK_SECONDS)
            results = self._run(look_again(results))
        return results
