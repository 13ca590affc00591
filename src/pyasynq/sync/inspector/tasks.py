# Generated from src/pyasynq/inspector/tasks.py by tools/unasync.py; change that file and run `make sync`.
"""The inspector's methods about single tasks, and its lists, searches and reports."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pyasynq._broker import cancellation, inspecting
from pyasynq._checks import check_switch, parse_seconds
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
    """Describes tasks, and moves and changes them one by one."""

    def list_tasks(
        self,
        queue: str,
        state: TaskState | str,
        page: int = 1,
        page_size: int = 30,
        *,
        group: str = "",
        newest_first: bool = False,
    ) -> list[TaskInfo]:
        """Return a page of the tasks of one state; aggregating ones are listed by their group.

        Pending tasks come in the order in which they will be taken, active tasks in the order in which they
        were taken. All others come in ascending order: scheduled and retry ones by the time they are due,
        archived ones by the time they were archived, completed ones by the time they will be deleted,
        aggregating ones by the time they joined. Messages that cannot be decoded are left out.

        `newest_first` reverses these orders. Pages are positions (offset pagination), which shift as tasks
        come and go; `walk_tasks` keeps its place (cursor pagination).

        Raises:
            InvalidOptionError: for another state, and for a `page` or `page_size` below 1.
        """
        check_switch("newest_first", newest_first)
        list_page = inspecting.tasks.list_newest_tasks if newest_first else inspecting.tasks.list_tasks
        return self._run(
            list_page(queue, state, group=group, page=page, page_size=page_size, now=self._now())
        )

    def task_info(self, queue: str, task_id: str) -> TaskInfo:
        """Return the description of a task.

        Raises:
            TaskNotFoundError: when there is none with this id in the queue.
            UnknownTaskStateError: when its state is a word that pyasynq does not know.
            UndecodableMessageError: when its message cannot be decoded.
        """
        return self._run(inspecting.tasks.describe_task(queue, task_id, now=self._now()))

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

        Pass the page's `cursor` to the next call, until it is None. Positions are counted in the
        order of `list_tasks`, so tasks that come or go between two calls may be missed or found twice.

        Raises:
            InvalidOptionError: also for a filter by age in the states `scheduled` and `active`: Redis does
                not store since when tasks are in these states.
        """
        plan = inspecting.search.search_tasks(
            queue, state, filters, group=group, cursor=cursor, scan=scan, now=self._now()
        )
        return self._run_in_steps(plan)

    def error_report(
        self,
        queue: str,
        state: TaskState | str = TaskState.ARCHIVED,
        *,
        scan: int = 10_000,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> ErrorReport:
        """Group the newest retry or archived tasks by their errors, the most frequent first.

        Errors are alike if their first lines differ only in numbers, ids and quotations.

        Args:
            queue: the queue's name.
            state: `archived` or `retry`. Redis finds archived tasks by their time. It keeps retry tasks by
                the time they are due, so the report begins with the one that is due last.
            scan: how many tasks to look at.
            since: the earliest time at which a task was archived, or failed (`retry`), aware; None is any.
            until: the latest such time.

        Returns: the errors, the number of examined tasks, and the times of the oldest and the newest of
        these.
        """
        plan = inspecting.reports.error_report(
            queue, state, scan=scan, since=since, until=until, now=self._now()
        )
        return self._run_in_steps(plan)

    def type_report(
        self,
        queue: str,
        *,
        scan: int = 10_000,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> TypeReport:
        """Count the task types of a queue among the newest tasks of each state.

        Args:
            queue: the queue's name.
            scan: how many tasks of each state to look at; the tasks of all groups are one state.
            since: the earliest time at which a task came into its state, aware; None is any.
            until: the latest such time. With a range, active and scheduled tasks are left out: Redis does
                not store since when they are in these states.
        """
        plan = inspecting.reports.type_report(queue, scan=scan, since=since, until=until)
        return self._run_in_steps(plan)

    def run_task(self, queue: str, task_id: str) -> None:
        """Put a scheduled, retry, archived, completed or aggregating task at the end of its queue.

        A task with a group runs alone; if it fails, it joins its group when it is due, as in Asynq.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is active, pending, or on its way into an aggregate.
        """
        self._require_primary()
        self._run(inspecting.actions.run_task(queue, task_id, now=self._now()))

    def archive_task(self, queue: str, task_id: str) -> int:
        """Archive a task in any waiting state; return the number of archived tasks deleted to make room.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is active, archived, or on its way into an aggregate.
        """
        self._require_primary()
        plan = inspecting.actions.archive_task(queue, task_id, limits=self._limits(), now=self._now())
        return self._run(plan)

    def delete_task(self, queue: str, task_id: str) -> None:
        """Delete a task and release the lock that it owns.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is active or on its way into an aggregate.
        """
        self._require_primary()
        self._run(inspecting.actions.delete_task(queue, task_id))

    def update_payload(
        self,
        queue: str,
        task_id: str,
        payload: bytes | None,
        *,
        relock: bool = False,
        expected: bytes | None = None,
    ) -> None:
        """Replace the payload of a scheduled, retry or archived task.

        The uniqueness lock stays that of the old payload, as in Asynq. With `relock` it becomes that of the
        new payload, and expires when the old one would have; an expired lock is not taken again. With
        `expected`, nothing is changed unless the task has this payload.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is in another state.
            DuplicateTaskError: with `relock`, when another task holds the lock; nothing was changed.
            PayloadChangedError: the payload is not the expected one.
        """
        self._require_primary()
        plan = inspecting.updates.update_payload(queue, task_id, payload, relock=relock, expected=expected)
        self._run(plan)

    def update_process_at(self, queue: str, task_id: str, process_at: datetime) -> None:
        """Set when a scheduled or retry task is due; an archived one becomes scheduled.

        A uniqueness lock that the task owns holds longer by as much as the task waits longer.

        Raises:
            TaskNotFoundError: when there is no such task.
            TaskStateError: when it is in another state.
        """
        self._require_primary()
        self._run(inspecting.updates.update_process_at(queue, task_id, process_at, now=self._now()))

    def cancel(
        self,
        task_id: str,
        queue: str | None = None,
        outcome: Literal["retry", "archive", "delete"] = "retry",
        *,
        wait: Duration = 0.0,
    ) -> list[CancelResult]:
        """Cancel the running tasks with this id, in one queue, or in all queues if none is named.

        The handler gets `CancelledError`, or sees `context().cancelled`, and has time to clean up. Then the
        task is retried as after a failure, archived or deleted. The request holds for 60 seconds, and only
        for the attempt that runs now. A worker in Go gets the request too, but always retries the task and
        acknowledges nothing.

        Args:
            task_id: id of the task.
            queue: queue of the task; None searches all queues.
            outcome: what happens to the task: it is retried, archived or deleted.
            wait: how long to wait for the attempts to end, looking ten times a second; cancelling the wait
                does not take the request back.

        Returns:
            the state of the request for each queue that has a task of this id.

        Raises:
            TaskNotFoundError: when a queue is named that has no such task.
        """
        self._require_primary()
        # Not the clock of the inspector: a test may have frozen it.
        until = time.monotonic() + parse_seconds("wait", wait)
        plan = cancellation.request_cancelation(task_id, queue, outcome, now=self._clock.redis_now())
        results = self._run(plan)
        while any(map(cancellation.is_open, results)) and time.monotonic() < until:
            sleep_blocking(_LOOK_SECONDS)
            results = self._run(cancellation.refresh_results(results))
        return results
