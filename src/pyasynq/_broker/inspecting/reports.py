"""Reports on the tasks of a queue: errors that are alike, and task types. The newest tasks come first."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._broker.inspecting.group_counts import FIRST_PAGE, read_page
from pyasynq._broker.inspecting.tasks import collection_key, parse_state, scan_tasks
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.stored import decode_name
from pyasynq._broker.task_records import decode_records
from pyasynq._checks import check_whole, parse_instant
from pyasynq._error_signature import error_signature
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import InvalidOptionError
from pyasynq.info import ErrorGroup, ErrorReport, TypeReport, TypeStatistics
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from datetime import datetime

    from pyasynq._broker.task_records import DecodedTask
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Call, Reply

_ERROR_STATES: Final = (TaskState.RETRY, TaskState.ARCHIVED)
_LISTS: Final = (TaskState.PENDING, TaskState.ACTIVE)
_SCORED_BY_AGE: Final = (TaskState.ARCHIVED, TaskState.AGGREGATING)
"""States whose score is the second at which a task came into the state, so that Redis finds a time range."""
_UNDATED: Final = (TaskState.ACTIVE, TaskState.SCHEDULED)
"""States for which Redis does not store the time at which a task came into them."""


class TimeRange(NamedTuple):
    """Times from `since` to `until`, both included; None is open."""

    since: datetime | None
    until: datetime | None

    def has(self, time: datetime | None) -> bool:
        """Return whether a time is in the range; for an unknown time, whether both ends are open."""
        if time is None:
            return not self
        return (self.since is None or time >= self.since) and (self.until is None or time <= self.until)

    def __bool__(self) -> bool:
        return self.since is not None or self.until is not None


def parse_range(since: datetime | None, until: datetime | None) -> TimeRange:
    """Return a time range.

    Raises:
        InvalidOptionError: for a time that is naive, and for a range that ends before it begins.
    """
    for name, time in (("since", since), ("until", until)):
        if time is not None:
            parse_instant(name, time)
    if since is not None and until is not None and until < since:
        raise InvalidOptionError("until", until, "must not be before since")
    return TimeRange(since, until)


class _Positions(NamedTuple):
    """Positions of a collection, in ascending order: from `low` to before `high`."""

    low: int
    high: int


def _find_positions(key: str, state: TaskState, times: TimeRange) -> Plan[_Positions]:
    """Return which positions of a collection may have tasks of a time range."""
    if not times or state not in _SCORED_BY_AGE:
        command = ("LLEN" if state in _LISTS else "ZCARD", key)
        return _Positions(0, int((yield CommandCall(command, key, Replay.SAFE))))
    low = 0
    if times.since is not None:
        before = ("ZCOUNT", key, "-inf", f"({int(times.since.timestamp())}")
        low = int((yield CommandCall(before, key, Replay.SAFE)))
    last = "+inf" if times.until is None else str(int(times.until.timestamp()))
    high = int((yield CommandCall(("ZCOUNT", key, "-inf", last), key, Replay.SAFE)))
    return _Positions(low, max(low, high))


class _Look(NamedTuple):
    """Result of a scan: found tasks, number of examined positions, and size of the collection."""

    tasks: list[DecodedTask]
    scanned: int
    total: int


def _look_at_newest(
    queue: str,
    state: TaskState,
    times: TimeRange,
    scan: int,
    *,
    group: str = "",
    size: int | None = None,
) -> Plan[_Look]:
    """Return the tasks of up to `scan` positions, from the highest position down.

    `size` is that of the collection, if it is known.
    """
    key = collection_key(queue_keys(queue), state, group)
    if size is None or times:
        low, high = yield from _find_positions(key, state, times)
    else:
        low, high = 0, size
    tasks: list[DecodedTask] = []
    end, last = high, max(low, high - scan)
    while end > last:
        start = max(last, end - MAX_TASKS)
        found = yield from scan_tasks(queue, state, start, end, group=group)
        tasks += decode_records(reversed(found.records))
        end = start
    return _Look(tasks, high - last, high - low)


def parse_error_state(state: str) -> TaskState:
    """Return the task state with this name. Raises `InvalidOptionError` unless its tasks have failed."""
    return parse_state(state, "", _ERROR_STATES)


def error_report(
    queue: str,
    state: str,
    *,
    scan: int,
    since: datetime | None,
    until: datetime | None,
    now: Instant,
    size: int | None = None,
) -> Plan[ErrorReport]:
    """Group the newest `scan` tasks of a state by error signature.

    The time range selects archived tasks by the time of archiving, which Redis searches, and retry tasks by
    the time of their last failure. Retry tasks are read from the one that is due last. `size` is the number
    of tasks in the state, if it is known.
    """
    known = parse_error_state(state)
    check_whole("scan", scan, 1)
    times = parse_range(since, until)
    yield from require_queue(queue)
    look = yield from _look_at_newest(queue, known, times, scan, size=size)
    dated = [(task, task.in_state_since) for task in look.tasks]
    looked_at = [(task, since) for task, since in dated if times.has(since)]
    by_error: defaultdict[str, list[DecodedTask]] = defaultdict(list)
    for task, _ in looked_at:
        by_error[task.message.error_msg].append(task)
    without_error = len(by_error.pop("", ()))
    groups: defaultdict[str, list[DecodedTask]] = defaultdict(list)
    for error, tasks in by_error.items():
        groups[error_signature(error)] += tasks
    reported = [_describe_group(signature, tasks, now) for signature, tasks in groups.items()]
    reported.sort(key=lambda group: (-group.count, group.signature))
    dates = [since for _, since in looked_at if since is not None]
    return ErrorReport(
        tuple(reported),
        look.scanned,
        look.scanned == look.total,
        total=look.total,
        without_error=without_error,
        since=min(dates, default=None),
        until=max(dates, default=None),
    )


def _describe_group(signature: str, tasks: Sequence[DecodedTask], now: Instant) -> ErrorGroup:
    newest = max(tasks, key=lambda task: task.message.last_failed_at)
    failed = [task for task in tasks if task.message.last_failed_at]
    earliest = min(failed, key=lambda task: task.message.last_failed_at, default=None)
    types = Counter(task.message.type for task in tasks)
    return ErrorGroup(
        signature,
        len(tasks),
        dict(types.most_common()),
        newest.last_failed_at,
        newest.describe(now),
        earliest=None if earliest is None else earliest.last_failed_at,
    )


def type_report(queue: str, *, scan: int, since: datetime | None, until: datetime | None) -> Plan[TypeReport]:
    """Count the task types among the newest `scan` tasks of each state; all groups count as one state.

    The time range selects tasks by the time at which they came into their state.
    """
    check_whole("scan", scan, 1)
    times = parse_range(since, until)
    yield from require_queue(queue)
    undated = _UNDATED if times else ()
    looks: list[_Look] = []
    for state in TaskState:
        if state is TaskState.AGGREGATING:
            looks += yield from _look_at_groups(queue, times, scan)
        elif state not in undated:
            looks.append((yield from _look_at_newest(queue, state, times, scan)))
    counts: defaultdict[str, Counter[TaskState]] = defaultdict(Counter)
    retried: Counter[str] = Counter()
    for look in looks:
        for task in look.tasks:
            if not times or times.has(task.in_state_since):
                message = task.message
                counts[message.type][task.record.state] += 1
                retried[message.type] += message.retried
    types = [TypeStatistics(name, dict(states), retried[name]) for name, states in counts.items()]
    types.sort(key=lambda statistics: (-statistics.total, statistics.type))
    scanned, total = sum(look.scanned for look in looks), sum(look.total for look in looks)
    return TypeReport(tuple(types), scanned, scanned == total, total=total, undated=undated)


def _look_at_groups(queue: str, times: TimeRange, scan: int) -> Generator[Call, Reply, list[_Look]]:
    """Read up to `scan` tasks of groups, in the order in which Redis lists the groups.

    Only tasks that joined their group within `times` are returned.
    """
    looks: list[_Look] = []
    left = scan
    cursor, sizes = yield from read_page(queue, FIRST_PAGE)
    while True:
        for name, size in sizes.items():
            if left <= 0:
                looks.append(_Look([], 0, size))
                continue
            look = yield from _look_at_newest(
                queue, TaskState.AGGREGATING, times, left, group=decode_name(name), size=size
            )
            left -= look.scanned
            looks.append(look)
        if cursor == FIRST_PAGE:
            return looks
        if left <= 0:
            # The tasks of the groups that follow are not counted: there may be hundreds of thousands.
            looks.append(_Look([], 0, 1))
            return looks
        cursor, sizes = yield from read_page(queue, cursor)
