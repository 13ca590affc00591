"""Bounded search through the tasks of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.inspecting.tasks import parse_state, scan_tasks
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.task_records import decode_task_infos
from pyasynq._checks import check_whole, parse_seconds
from pyasynq.errors import InvalidOptionError, UnknownOptionError
from pyasynq.info import SearchPage, TaskFilters
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from datetime import datetime

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan
    from pyasynq.task import TaskInfo

_DATED_STATES: Final = (
    TaskState.PENDING,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
    TaskState.AGGREGATING,
)


class _Matcher(NamedTuple):
    """Conditions of a search; None matches everything.

    Attributes:
        type: name of the task type, compared as a whole.
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
        """Texts that a matching message contains, so that Redis need not send other messages."""
        texts = [self.type, self.payload, self.error]
        return [text.encode() if isinstance(text, str) else text for text in texts if text]

    def matches(self, task: TaskInfo) -> bool:
        """Return whether a task matches."""
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
    tasks = tuple(task for task in decode_task_infos(found.records, now) if wanted.matches(task))
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
        times[name] = None if age is None else now.plus(-parse_seconds(name, age)).to_datetime()
    payload = filters.get("payload")
    return _Matcher(
        type=filters.get("type"),
        payload=payload.encode() if isinstance(payload, str) else payload,
        error=filters.get("error"),
        before=times["older_than"],
        after=times["newer_than"],
    )
