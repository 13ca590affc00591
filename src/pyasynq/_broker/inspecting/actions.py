"""Running, archiving and deleting tasks by their ids."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from pyasynq._broker.arguments import FIRST_SEND, MAX_TASKS, chunks, time_arguments
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import (
    INSPECT_ARCHIVE,
    INSPECT_DELETE,
    INSPECT_RELEASE_LOCK,
    INSPECT_RUN,
)
from pyasynq._broker.settle import trim_rest
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.keys import QueueKeys, queue_keys
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message
from pyasynq.errors import TaskNotFoundError, TaskStateError
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Reply

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


def run_task(queue: str, task_id: str, *, now: Instant) -> Plan[None]:
    """Put one task at the end of its queue."""
    yield from require_queue(queue)
    yield from act_on_one("run", queue, task_id, functools.partial(run_tasks, queue, now=now))


def archive_task(queue: str, task_id: str, *, limits: ArchiveLimits, now: Instant) -> Plan[int]:
    """Archive one task; return how many others were trimmed."""
    yield from require_queue(queue)
    act = functools.partial(archive_tasks, queue, limits=limits, now=now)
    return (yield from act_on_one("archive", queue, task_id, act)).trimmed


def delete_task(queue: str, task_id: str) -> Plan[None]:
    """Delete one task."""
    yield from require_queue(queue)
    yield from act_on_one("delete", queue, task_id, functools.partial(delete_tasks, queue))


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
