"""Running, archiving and deleting tasks by hand: by their ids, or all of one state in many short calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from pyasynq._broker.arguments import FIRST_SEND, MAX_TASKS, chunks, time_arguments
from pyasynq._broker.inspecting.tasks import collection_key
from pyasynq._broker.scripts import (
    INSPECT_ARCHIVE,
    INSPECT_DELETE,
    INSPECT_DROP_GHOSTS,
    INSPECT_RELEASE_LOCK,
    INSPECT_RUN,
)
from pyasynq._broker.settle import trim_rest
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import QueueKeys, queue_keys
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message
from pyasynq.errors import TaskNotFoundError, TaskStateError
from pyasynq.info import BulkResult
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Reply

    Progress: TypeAlias = Callable[[int, int], object]
    """Is told how many tasks have been dealt with, of how many."""

_MISSING = "missing"
_AGGREGATED = "aggregated"


class Moved(NamedTuple):
    """What became of some tasks.

    Attributes:
        done: how many are where they were to go.
        refused: ids of the others, and why: the state they are in, `missing`, or `aggregated` for a member
            of an aggregation set.
        trimmed: how many archived tasks were deleted because of the archive's size or age.
    """

    done: int
    refused: dict[str, str]
    trimmed: int = 0


class ArchiveLimits(NamedTuple):
    """How many archived tasks are kept; those archived at `cutoff` (Unix time) or before are deleted."""

    max_size: int
    cutoff: int


Act: TypeAlias = "Callable[[Sequence[str], str], Plan[Moved]]"
"""Does something with the tasks of these ids that are in this state; with an empty one, in any."""


def run_tasks(queue: str, ids: Sequence[str], from_state: str = "", *, now: Instant) -> Plan[Moved]:
    """Put tasks at the end of the queue. Active and pending ones are refused, and those being aggregated.

    In an ordered queue those that wait for another try go to the front, the first one foremost.
    """
    keys = queue_keys(queue)
    moved = Moved(0, {})
    for chunk in chunks(ids):
        reply = yield ScriptCall(
            INSPECT_RUN,
            (*keys.places, keys.limits),
            (*_head(keys, from_state), *time_arguments(now), *chunk),
            Replay.BY_TOKEN,
        )
        moved = _add(moved, *reply)
    return moved


def archive_tasks(
    queue: str, ids: Sequence[str], from_state: str = "", *, limits: ArchiveLimits, now: Instant
) -> Plan[Moved]:
    """Archive tasks, uncounted. Active and archived ones are refused, and those being aggregated."""
    keys = queue_keys(queue)
    moved = Moved(0, {})
    for chunk in chunks(ids, most=min(MAX_TASKS, limits.max_size)):
        reply = yield ScriptCall(
            INSPECT_ARCHIVE,
            keys.places,
            (*_head(keys, from_state), *limits, *time_arguments(now), *chunk),
            Replay.BY_TOKEN,
        )
        trimmed = yield from trim_rest(keys, reply, max_size=limits.max_size, cutoff=limits.cutoff)
        moved = _add(moved, *reply[2:], trimmed=trimmed)
    return moved


def delete_tasks(
    queue: str, ids: Sequence[str], from_state: str = "", *, with_sets: bool = False
) -> Plan[Moved]:
    """Delete tasks and release the locks they own. Active ones are refused.

    So are those being aggregated, unless `with_sets`.
    """
    keys = queue_keys(queue)
    moved = Moved(0, {})
    for chunk in chunks(ids):
        *reply, grouped = yield ScriptCall(
            INSPECT_DELETE,
            keys.places,
            (*_head(keys, from_state), int(with_sets), *chunk),
            Replay.BY_TOKEN,
        )
        moved = _add(moved, *reply)
        yield from _release_locks(keys, grouped)
    return moved


def _head(keys: QueueKeys, from_state: str) -> tuple[str, ...]:
    return FIRST_SEND, keys.task_prefix, keys.group_prefix, from_state


def _add(moved: Moved, done: int, refused: Reply, *, trimmed: int = 0) -> Moved:
    words = [word.decode("utf-8", "replace") for word in refused]
    reasons = moved.refused | dict(zip(words[::2], words[1::2], strict=True))
    return Moved(moved.done + done, reasons, moved.trimmed + trimmed)


def _release_locks(keys: QueueKeys, grouped: Sequence[bytes]) -> Plan[None]:
    # A Go client that adds a unique task to a group names the lock in the message only.
    for data in grouped:
        try:
            message = decode_task_message(data)
        except UndecodableMessageError:
            continue
        if message.unique_key:
            args = (message.id, message.unique_key)
            yield ScriptCall(INSPECT_RELEASE_LOCK, (keys.task(message.id),), args, Replay.SAFE)


def act_on_one(action: str, queue: str, task_id: str, act: Act) -> Plan[Moved]:
    """Do something with one task.

    Raises:
        TaskNotFoundError: when there is none with this id in the queue.
        TaskStateError: when its state does not allow it; nothing was changed.
    """
    moved = yield from act([task_id], "")
    if reason := moved.refused.get(task_id):
        refuse(action, queue, task_id, reason)
    return moved


def refuse(action: str, queue: str, task_id: str, reason: str) -> NoReturn:
    """Raise the error that stands for the reason of a refusal."""
    if reason == _MISSING:
        raise TaskNotFoundError(queue, task_id)
    state = TaskState.AGGREGATING.value if reason == _AGGREGATED else reason
    raise TaskStateError(action, queue, task_id, state)


def act_on_all(
    queue: str, state: TaskState, act: Act, *, group: str = "", progress: Progress | None = None
) -> Plan[BulkResult]:
    """Do something with all tasks of a state, or of a group, up to 1,000 in one call.

    It ends after as many tasks as there were at its start; those that join meanwhile may be among them. Ids
    without a task are dropped. What `progress` raises ends it between two calls.
    """
    keys = queue_keys(queue)
    return (yield from act_on_collection(keys, collection_key(keys, state, group), state, act, progress))


def archive_surplus(queue: str, state: TaskState, group: str, limits: ArchiveLimits) -> Plan[tuple[int, int]]:
    """Return how many tasks a state has, and how many archived ones would go if they were archived too."""
    keys = queue_keys(queue)
    total = yield from _size(collection_key(keys, state, group), state)
    # Tasks that are too old go in any case.
    command = ("ZCOUNT", keys.archived, f"({limits.cutoff}", "+inf")
    archived = yield CommandCall(command, keys.archived, Replay.SAFE)
    return total, max(0, archived + total - limits.max_size) if total else 0


def _size(collection: str, state: TaskState) -> Plan[int]:
    command = ("LLEN" if state is TaskState.PENDING else "ZCARD", collection)
    return int((yield CommandCall(command, collection, Replay.SAFE)))


def act_on_collection(
    keys: QueueKeys, collection: str, state: TaskState, act: Act, progress: Progress | None
) -> Plan[BulkResult]:
    """Do something with all tasks of a collection, as `act_on_all` does."""
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
