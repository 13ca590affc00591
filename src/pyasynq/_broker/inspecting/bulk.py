"""Running, archiving and deleting all tasks of one state, in many short calls."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, TypeAlias

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._broker.inspecting.actions import archive_tasks, delete_tasks, run_tasks
from pyasynq._broker.inspecting.tasks import collection_key, parse_state
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import INSPECT_DROP_GHOSTS
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import QueueKeys, queue_keys
from pyasynq.errors import ArchiveFullError
from pyasynq.info import BulkResult
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.inspecting.actions import ActPlan, ArchiveLimits
    from pyasynq._clock import Instant

    Progress: TypeAlias = Callable[[int, int], object]
    """Callback with the number of tasks processed so far, and their total."""

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


def run_all(
    queue: str, state: str, *, group: str, progress: Progress | None, now: Instant
) -> Plan[BulkResult]:
    """Put all tasks of a state at the end of their queue; return how many."""
    known = parse_state(state, group, _RUN_STATES)
    yield from require_queue(queue)
    act = functools.partial(run_tasks, queue, now=now)
    return (yield from act_on_all(queue, known, act, group=group, progress=progress))


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
    """Archive all tasks of a state; return how many.

    Raises:
        ArchiveFullError: when the archive has not room for all, and `trim` is False; nothing was changed.
    """
    known = parse_state(state, group, _ARCHIVE_STATES)
    yield from require_queue(queue)
    if not trim:
        tasks = yield from _size(collection_key(queue_keys(queue), known, group), known)
        if surplus := (yield from archive_surplus(queue, tasks, limits)):
            raise ArchiveFullError(queue, tasks, surplus, limits.max_size)
    act = functools.partial(archive_tasks, queue, limits=limits, now=now)
    return (yield from act_on_all(queue, known, act, group=group, progress=progress))


def delete_all(queue: str, state: str, *, group: str, progress: Progress | None) -> Plan[BulkResult]:
    """Delete all tasks of a state; return how many."""
    known = parse_state(state, group, _DELETE_STATES)
    yield from require_queue(queue)
    act = functools.partial(delete_tasks, queue)
    return (yield from act_on_all(queue, known, act, group=group, progress=progress))


def act_on_all(
    queue: str, state: TaskState, act: ActPlan, *, group: str = "", progress: Progress | None = None
) -> Plan[BulkResult]:
    """Apply an action to all tasks of a state, or of a group, in steps of 1,000; return how many.

    The operation ends when it has processed as many tasks as there were at its start. Tasks that came into
    the state meanwhile may be among them. Ids without a task are dropped. An exception from `progress` ends
    the operation between two calls.
    """
    keys = queue_keys(queue)
    return (yield from act_on_collection(keys, collection_key(keys, state, group), state, act, progress))


def archive_surplus(queue: str, number: int, limits: ArchiveLimits) -> Plan[int]:
    """Return how many archived tasks would be deleted if `number` more tasks were archived."""
    if not number:
        return 0
    archived_key = queue_keys(queue).archived
    # Tasks archived up to the cutoff are deleted in any case, so they are not counted.
    command = ("ZCOUNT", archived_key, f"({limits.cutoff}", "+inf")
    archived = yield CommandCall(command, archived_key, Replay.SAFE)
    return max(0, int(archived) + number - limits.max_size)


def _size(collection: str, state: TaskState) -> Plan[int]:
    command = ("LLEN" if state is TaskState.PENDING else "ZCARD", collection)
    return int((yield CommandCall(command, collection, Replay.SAFE)))


def act_on_collection(
    keys: QueueKeys, collection: str, state: TaskState, act: ActPlan, progress: Progress | None
) -> Plan[BulkResult]:
    """Apply an action to all tasks of a collection, as `act_on_all` does."""
    is_list = state is TaskState.PENDING
    total = yield from _size(collection, state)
    seen = done = skipped = trimmed = 0
    while seen < total:
        ids = yield from _first_ids(collection, min(MAX_TASKS, total - seen), is_list=is_list)
        if not ids:
            break
        moved = yield from act(ids, state.value)
        if moved.refused:
            yield ScriptCall(
                INSPECT_DROP_GHOSTS,
                (collection,),
                (keys.task_prefix, state.value, *moved.refused),
                Replay.SAFE,
            )
        seen += len(ids)
        done += moved.done
        skipped += len(moved.refused)
        trimmed += moved.trimmed
        if progress is not None:
            progress(seen, total)
    return BulkResult(done, skipped, trimmed)


def _first_ids(collection: str, number: int, *, is_list: bool) -> Plan[list[str]]:
    command = ("LRANGE", collection, -number, -1) if is_list else ("ZRANGE", collection, 0, number - 1)
    ids = [decode_name(task_id) for task_id in (yield CommandCall(command, collection, Replay.SAFE))]
    return ids[::-1] if is_list else ids
