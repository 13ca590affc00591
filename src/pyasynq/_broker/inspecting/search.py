"""Looking through the tasks of a queue: search, errors by signature, numbers by type. All of it bounded."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.inspecting.group_counts import group_sizes
from pyasynq._broker.inspecting.tasks import parse_state, scan_tasks
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.task_records import task_infos
from pyasynq._checks import check_whole, seconds_of
from pyasynq.errors import InvalidOptionError, UnknownOptionError
from pyasynq.info import ErrorGroup, ErrorReport, SearchPage, TaskFilters, TypeReport, TypeStatistics
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan
    from pyasynq.task import TaskInfo

_ERROR_STATES: Final = (TaskState.RETRY, TaskState.ARCHIVED)
_DATED_STATES: Final = (
    TaskState.PENDING,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
    TaskState.AGGREGATING,
)
_SIGNATURE_CHARACTERS: Final = 200
_VARIABLE_PARTS: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<id>"),
        (r"\b0[xX][0-9a-fA-F]+\b", "<hex>"),
        (r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b", "<hex>"),
        (r'"[^"]*"', "<text>"),
        (r"(?<!\w)'[^']*'(?!\w)", "<text>"),
        (r"\d+(?:\.\d+)*", "<n>"),
    )
)


class _Matcher(NamedTuple):
    """What a search looks for; None matches everything.

    Attributes:
        type: the whole name.
        payload: bytes that the payload contains.
        error: text that the last error contains.
        before: the task has been in its state since this time or longer.
        after: the task has been in its state since this time or shorter.
    """

    type: str | None = None
    payload: bytes | None = None
    error: str | None = None
    before: datetime | None = None
    after: datetime | None = None

    @property
    def texts(self) -> list[bytes]:
        """What the bytes of a matching message must contain, so that Redis need not send the others."""
        texts = [self.type, self.payload, self.error]
        return [text.encode() if isinstance(text, str) else text for text in texts if text]

    def matches(self, task: TaskInfo) -> bool:
        """Return whether this is a task that is looked for."""
        since = task.in_state_since
        return (
            (self.type is None or task.type == self.type)
            and (self.payload is None or self.payload in task.payload)
            and (self.error is None or self.error in task.last_error)
            and (self.before is None or (since is not None and since <= self.before))
            and (self.after is None or (since is not None and since >= self.after))
        )


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
    """Return the matching tasks among the `scan` tasks of a state from position `cursor` on."""
    known = parse_state(state, group, tuple(TaskState))
    wanted = _parse_filters(filters, known, now)
    check_whole("cursor", cursor, 0)
    check_whole("scan", scan, 1)
    yield from require_queue(queue)
    stop = cursor + scan
    found = yield from scan_tasks(queue, known, cursor, stop, group=group, texts=wanted.texts)
    tasks = tuple(task for task in task_infos(found.records, now) if wanted.matches(task))
    next_cursor = stop if found.positions == scan else None
    return SearchPage(tasks, next_cursor, found.positions)


def _parse_filters(filters: TaskFilters, state: TaskState, now: Instant) -> _Matcher:
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
    return _Matcher(
        type=filters.get("type"),
        payload=payload.encode() if isinstance(payload, str) else payload,
        error=filters.get("error"),
        before=times["older_than"],
        after=times["newer_than"],
    )


def error_report(queue: str, state: str, *, scan: int, now: Instant) -> Plan[ErrorReport]:
    """Group the first `scan` tasks of a state by what is alike in their errors."""
    known = parse_state(state, "", _ERROR_STATES)
    check_whole("scan", scan, 1)
    yield from require_queue(queue)
    found = yield from scan_tasks(queue, known, 0, scan)
    groups: defaultdict[str, list[TaskInfo]] = defaultdict(list)
    for task in task_infos(found.records, now):
        if task.last_error:
            groups[error_signature(task.last_error)].append(task)
    reported = [_error_group(signature, tasks) for signature, tasks in groups.items()]
    reported.sort(key=lambda group: (-group.count, group.signature))
    return ErrorReport(tuple(reported), found.positions, found.positions < scan)


def _error_group(signature: str, tasks: Sequence[TaskInfo]) -> ErrorGroup:
    sample = max(tasks, key=lambda task: task.last_failed_at.timestamp() if task.last_failed_at else 0.0)
    types = Counter(task.type for task in tasks)
    return ErrorGroup(signature, len(tasks), dict(types.most_common()), sample.last_failed_at, sample)


def error_signature(error: str) -> str:
    """Return the first line of an error, at most 200 characters, without numbers, ids and quotations."""
    line = error.strip().partition("\n")[0]
    for pattern, name in _VARIABLE_PARTS:
        line = pattern.sub(name, line)
    return line[:_SIGNATURE_CHARACTERS]


def type_report(queue: str, *, scan: int, now: Instant) -> Plan[TypeReport]:
    """Count types over all states, looking at up to `scan` tasks of each, and of each group."""
    check_whole("scan", scan, 1)
    yield from require_queue(queue)
    groups = yield from group_sizes(queue)
    counts: defaultdict[str, Counter[TaskState]] = defaultdict(Counter)
    retried: Counter[str] = Counter()
    scanned, is_complete = 0, True
    places: list[tuple[TaskState, str]] = [
        (state, "") for state in TaskState if state is not TaskState.AGGREGATING
    ]
    places += [(TaskState.AGGREGATING, group) for group in groups]
    for state, group in places:
        found = yield from scan_tasks(queue, state, 0, scan, group=group)
        scanned += found.positions
        is_complete = is_complete and found.positions < scan
        for task in task_infos(found.records, now):
            counts[task.type][state] += 1
            retried[task.type] += task.retried
    types = [TypeStatistics(name, dict(states), retried[name]) for name, states in counts.items()]
    types.sort(key=lambda statistics: (-statistics.total, statistics.type))
    return TypeReport(tuple(types), scanned, is_complete)
