"""Plans of the inspector about tasks: arguments are checked, results are of the ground floor's types."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from pyasynq._broker import cancellation, task_records
from pyasynq._broker.inspecting import actions as inspect_actions
from pyasynq._broker.inspecting import search as inspect_search
from pyasynq._broker.inspecting import tasks as inspect_tasks
from pyasynq._broker.inspecting import updates as inspect_updates
from pyasynq._broker.inspecting.group_counts import group_sizes
from pyasynq._broker.inspecting.queue_views import require_queue
from pyasynq._broker.inspecting.search import Wanted
from pyasynq._checks import check_whole, checked_name, instant_of, seconds_of
from pyasynq.errors import ArchiveFullError, InvalidOptionError, UnknownOptionError
from pyasynq.info import TaskFilters
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from datetime import datetime

    from pyasynq._broker.inspecting.actions import Act, ArchiveLimits, Progress
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan
    from pyasynq.info import BulkResult, CancelResult, ErrorReport, SearchPage, TypeReport
    from pyasynq.task import TaskInfo

_OUTCOMES: Final = ("retry", "archive", "delete")
_ERROR_STATES: Final = (TaskState.RETRY, TaskState.ARCHIVED)
_DATED_STATES: Final = (
    TaskState.PENDING,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
    TaskState.AGGREGATING,
)
_RUN_STATES: Final = (TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED, TaskState.AGGREGATING)
_ARCHIVE_STATES: Final = (TaskState.PENDING, TaskState.SCHEDULED, TaskState.RETRY, TaskState.AGGREGATING)
_DELETE_STATES: Final = (
    TaskState.PENDING,
    TaskState.SCHEDULED,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
    TaskState.AGGREGATING,
)


def page_bounds(page: int, page_size: int) -> tuple[int, int]:
    """Return position of the first task of a page, and of the first one after it."""
    for name, value in (("page", page), ("page_size", page_size)):
        check_whole(name, value, 1)
    return page_size * (page - 1), page_size * page


def list_tasks(
    queue: str, state: str, *, group: str, page: int, page_size: int, now: Instant
) -> Plan[list[TaskInfo]]:
    """Describe one page of the tasks of one state; messages that cannot be decoded are left out."""
    known = _state_of(state, group, tuple(TaskState))
    start, stop = page_bounds(page, page_size)
    yield from require_queue(queue)
    records = yield from inspect_tasks.list_tasks(queue, known, start, stop, group=group)
    return list(task_records.task_infos(records, now))


def task_info(queue: str, task_id: str, *, now: Instant) -> Plan[TaskInfo]:
    """Describe one task."""
    yield from require_queue(queue)
    record = yield from inspect_tasks.get_task(queue, task_id)
    return task_records.decode_task_info(record, now)


def search_tasks(
    queue: str,
    state: str,
    filters: TaskFilters,
    *,
    group: str,
    cursor: int,
    scan: int,
    now: Instant,
) -> Plan[SearchPage]:
    """Look through a part of a state."""
    known = _state_of(state, group, tuple(TaskState))
    wanted = _wanted(filters, known, now)
    check_whole("cursor", cursor, 0)
    check_whole("scan", scan, 1)
    yield from require_queue(queue)
    return (
        yield from inspect_search.search_tasks(
            queue, known, wanted, group=group, cursor=cursor, scan=scan, now=now
        )
    )


def _wanted(filters: TaskFilters, state: TaskState, now: Instant) -> Wanted:
    for name in filters:
        if name not in TaskFilters.__annotations__:
            raise UnknownOptionError(name, TaskFilters.__annotations__)
    times = {}
    for name in ("older_than", "newer_than"):
        age = filters.get(name)
        if age is not None and state not in _DATED_STATES:
            raise InvalidOptionError(name, age, f"Redis does not tell since when a task is {state}")
        times[name] = None if age is None else now.plus(-seconds_of(name, age)).to_datetime()
    payload = filters.get("payload")
    return Wanted(
        type=filters.get("type"),
        payload=payload.encode() if isinstance(payload, str) else payload,
        error=filters.get("error"),
        before=times["older_than"],
        after=times["newer_than"],
    )


def error_report(queue: str, state: str, *, scan: int, now: Instant) -> Plan[ErrorReport]:
    """Group the errors of a state."""
    known = _state_of(state, "", _ERROR_STATES)
    check_whole("scan", scan, 1)
    yield from require_queue(queue)
    return (yield from inspect_search.error_report(queue, known, scan=scan, now=now))


def type_report(queue: str, *, scan: int, now: Instant) -> Plan[TypeReport]:
    """Count the task types of a queue."""
    check_whole("scan", scan, 1)
    yield from require_queue(queue)
    groups = yield from group_sizes(queue)
    return (yield from inspect_search.type_report(queue, list(groups), scan=scan, now=now))


def run_task(queue: str, task_id: str, *, now: Instant) -> Plan[None]:
    """Put one task at the end of its queue."""
    yield from require_queue(queue)
    yield from inspect_actions.act_on_one("run", queue, task_id, _running(queue, now))


def archive_task(queue: str, task_id: str, *, limits: ArchiveLimits, now: Instant) -> Plan[int]:
    """Archive one task; return how many others were trimmed."""
    yield from require_queue(queue)
    act = _archiving(queue, limits, now)
    return (yield from inspect_actions.act_on_one("archive", queue, task_id, act)).trimmed


def delete_task(queue: str, task_id: str) -> Plan[None]:
    """Delete one task."""
    yield from require_queue(queue)
    yield from inspect_actions.act_on_one("delete", queue, task_id, _deleting(queue))


def run_all(
    queue: str, state: str, *, group: str, progress: Progress | None, now: Instant
) -> Plan[BulkResult]:
    """Put all tasks of a state at the end of their queue."""
    known = _state_of(state, group, _RUN_STATES)
    yield from require_queue(queue)
    act = _running(queue, now)
    return (yield from inspect_actions.act_on_all(queue, known, act, group=group, progress=progress))


def archive_all(
    queue: str,
    state: str,
    *,
    group: str,
    progress: Progress | None,
    limits: ArchiveLimits,
    trim: bool,
    now: Instant,
) -> Plan[BulkResult]:
    """Archive all tasks of a state; unless `trim`, only if the archive has room for them.

    Raises:
        ArchiveFullError: when it has not; nothing was changed.
    """
    known = _state_of(state, group, _ARCHIVE_STATES)
    yield from require_queue(queue)
    if not trim:
        tasks, surplus = yield from inspect_actions.archive_surplus(queue, known, group, limits)
        if surplus:
            raise ArchiveFullError(queue, tasks, surplus, limits.max_size)
    act = _archiving(queue, limits, now)
    return (yield from inspect_actions.act_on_all(queue, known, act, group=group, progress=progress))


def delete_all(queue: str, state: str, *, group: str, progress: Progress | None) -> Plan[BulkResult]:
    """Delete all tasks of a state."""
    known = _state_of(state, group, _DELETE_STATES)
    yield from require_queue(queue)
    act = _deleting(queue)
    return (yield from inspect_actions.act_on_all(queue, known, act, group=group, progress=progress))


def _running(queue: str, now: Instant) -> Act:
    return functools.partial(inspect_actions.run_tasks, queue, now=now)


def _archiving(queue: str, limits: ArchiveLimits, now: Instant) -> Act:
    return functools.partial(inspect_actions.archive_tasks, queue, limits=limits, now=now)


def _deleting(queue: str) -> Act:
    return functools.partial(inspect_actions.delete_tasks, queue)


def update_payload(queue: str, task_id: str, payload: bytes | None, *, relock: bool) -> Plan[None]:
    """Replace the payload of a task that waits for its time or is archived."""
    if not isinstance(payload, bytes | None):
        raise InvalidOptionError("payload", payload, "must be bytes; encode text or JSON first")
    yield from require_queue(queue)
    yield from inspect_updates.update_payload(queue, task_id, payload, relock=relock)


def update_process_at(queue: str, task_id: str, process_at: datetime, *, now: Instant) -> Plan[None]:
    """Set when a task that waits for its time or is archived is due."""
    due = instant_of("process_at", process_at)
    yield from require_queue(queue)
    yield from inspect_updates.update_process_at(queue, task_id, due, now=now)


def cancel(task_id: str, queue: str | None, outcome: str, *, now: Instant | None) -> Plan[list[CancelResult]]:
    """Ask the servers that run tasks of this id to cancel them."""
    checked_name("task_id", task_id)
    if outcome not in _OUTCOMES:
        raise InvalidOptionError("outcome", outcome, f"must be one of {', '.join(_OUTCOMES)}")
    if queue is not None:
        yield from require_queue(queue)
    return (yield from cancellation.request_cancelation(task_id, queue, outcome, now=now))


def _state_of(state: str, group: str, allowed: tuple[TaskState, ...]) -> TaskState:
    names = [one.value for one in allowed]
    if state not in names:
        raise InvalidOptionError("state", state, f"must be one of {', '.join(names)}")
    if state == TaskState.AGGREGATING:
        checked_name("group", group)
    elif group:
        raise InvalidOptionError("group", group, "only aggregating tasks are in a group")
    return TaskState(state)
