"""Reading and listing the tasks of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import INSPECT_FIND_TASKS, INSPECT_GET_TASK, INSPECT_LIST_TASKS
from pyasynq._broker.task_records import STATES, TaskRecord, decode_task_info, decode_task_infos, read_record
from pyasynq._checks import check_name, page_bounds
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import QueueKeys, queue_keys
from pyasynq.errors import (
    InvalidOptionError,
    TaskNotFoundError,
    UnknownTaskStateError,
)
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument
    from pyasynq.task import TaskInfo


_MOST_POSITIONS: Final = 250
"""Positions in one call: about 2.5 ms of Redis' time."""
_MOST_BYTES: Final = 1_000_000


class Scanned(NamedTuple):
    """Result of scanning a part of a collection: found tasks, and number of examined positions."""

    records: list[TaskRecord]
    positions: int


def parse_state(state: str, group: str, allowed: Collection[TaskState]) -> TaskState:
    """Return the task state with this name.

    Raises:
        InvalidOptionError: for a state that is unknown or not allowed, for aggregating tasks without a group,
            and for a group with another state.
    """
    names = [one.value for one in allowed]
    if state not in names:
        raise InvalidOptionError("state", state, f"must be one of {', '.join(names)}")
    if state == TaskState.AGGREGATING:
        check_name("group", group)
    elif group:
        raise InvalidOptionError("group", group, "only aggregating tasks are in a group")
    return TaskState(state)


def collection_key(keys: QueueKeys, state: TaskState, group: str = "") -> str:
    """Return the key of the collection in which tasks of this state are, or those of a group."""
    return keys.group(group) if state is TaskState.AGGREGATING else str(getattr(keys, state.value))


def scan_tasks(
    queue: str, state: TaskState, start: int, stop: int, *, group: str = "", texts: Sequence[bytes] = ()
) -> Plan[Scanned]:
    """Return the tasks of a state from position `start` to before `stop` whose messages contain all `texts`.

    Pending and active tasks come in the order in which they are or were taken, other tasks by their score.
    Ids without a task, and tasks in a state that we do not know, are left out. A call looks at up to 250
    positions, and replies with about 1 MB at most.
    """
    keys = queue_keys(queue)
    collection = collection_key(keys, state, group)
    records: list[TaskRecord] = []
    position = start
    while position < stop:
        end = min(stop, position + _MOST_POSITIONS)
        looked_at, more, *found = yield ScriptCall(
            INSPECT_LIST_TASKS,
            (collection, keys.lease),
            (keys.task_prefix, position, end - 1, _MOST_BYTES, *texts),
            Replay.SAFE,
        )
        records += [read_record(values) for values in found if values[2] in STATES]
        position += looked_at
        if not more:
            break
    return Scanned(records, position - start)


def list_tasks(
    queue: str, state: str, *, group: str, page: int, page_size: int, now: Instant
) -> Plan[list[TaskInfo]]:
    """Describe one page of the tasks of one state; messages that cannot be decoded are left out."""
    known = parse_state(state, group, tuple(TaskState))
    start, stop = page_bounds(page, page_size)
    yield from require_queue(queue)
    found = yield from scan_tasks(queue, known, start, stop, group=group)
    return list(decode_task_infos(found.records, now))


def list_newest_tasks(
    queue: str, state: str, *, group: str, page: int, page_size: int, now: Instant
) -> Plan[list[TaskInfo]]:
    """Describe one page of the tasks of one state, counted from the end, its tasks in reverse order."""
    known = parse_state(state, group, tuple(TaskState))
    first, after = page_bounds(page, page_size)
    yield from require_queue(queue)
    key = collection_key(queue_keys(queue), known, group)
    command = "LLEN" if known in {TaskState.PENDING, TaskState.ACTIVE} else "ZCARD"
    size = yield CommandCall((command, key), key, Replay.SAFE)
    found = yield from scan_tasks(queue, known, max(0, size - after), max(0, size - first), group=group)
    return list(decode_task_infos(reversed(found.records), now))


def find_tasks(queue: str, ids: Sequence[str], *, now: Instant) -> Plan[list[TaskInfo]]:
    """Describe the tasks of a queue that have these ids; leave out those that cannot be decoded."""
    keys = queue_keys(queue)
    places = (keys.lease, keys.scheduled, keys.retry, keys.archived, keys.completed)
    records: list[TaskRecord] = []
    first = 0
    while first < len(ids):
        some = ids[first : first + _MOST_POSITIONS]
        args: tuple[Argument, ...] = (keys.task_prefix, _MOST_BYTES, *some)
        looked_at, *found = yield ScriptCall(INSPECT_FIND_TASKS, places, args, Replay.SAFE)
        records += [read_record(values) for values in found if values[2] in STATES]
        first += looked_at
    return list(decode_task_infos(records, now))


def describe_task(queue: str, task_id: str, *, now: Instant) -> Plan[TaskInfo]:
    """Describe one task, as `get_task` finds it."""
    yield from require_queue(queue)
    return decode_task_info((yield from get_task(queue, task_id)), now)


def get_task(queue: str, task_id: str) -> Plan[TaskRecord]:
    """Return one task.

    Raises:
        TaskNotFoundError: when there is none with this id in the queue.
        UnknownTaskStateError: when its state is a word that we do not know.
    """
    keys = queue_keys(queue)
    reply = yield ScriptCall(
        INSPECT_GET_TASK,
        (keys.task(task_id), keys.lease, keys.scheduled, keys.retry, keys.archived, keys.completed),
        (task_id,),
        Replay.SAFE,
    )
    if not reply:
        raise TaskNotFoundError(queue, task_id)
    if reply[2] not in STATES:
        raise UnknownTaskStateError(queue, task_id, reply[2].decode("utf-8", "replace"))
    return read_record(reply)
