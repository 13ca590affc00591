"""Running, archiving and deleting tasks by their ids."""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from pyasynq._broker.arguments import FIRST_SEND, chunks, time_arguments
from pyasynq._broker.inspecting.pending_places import take_in_calls
from pyasynq._broker.outbox import StoredEnding, deliver_endings, read_endings
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import (
    INSPECT_ARCHIVE,
    INSPECT_DELETE,
    INSPECT_RELEASE_LOCK,
    INSPECT_RUN,
)
from pyasynq._broker.settle import trim_rest
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.keys import QueueKeys, queue_keys
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message
from pyasynq.errors import RedisError, TaskNotFoundError, TaskStateError
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._broker.inspecting.pending_places import Hints
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument, Reply

MISSING = "missing"
_MOST_AT_ONCE = 250
"""Maximum number of tasks in one call: about 4 ms of Redis' time."""
AGGREGATED = "aggregated"


class Moved(NamedTuple):
    """The outcome of an action on some tasks.

    Attributes:
        done: number of tasks that were moved.
        refused: ids of the refused tasks, and the reason of each: the state they are in, `missing`, or
            `aggregated` for a member of an aggregation set.
        trimmed: how many archived tasks were deleted because of the archive's size or age.
        endings: ends of the tasks that have ended and have a callback.
    """

    done: int
    refused: dict[str, str]
    trimmed: int = 0
    endings: tuple[StoredEnding, ...] = ()


class ArchiveLimits(NamedTuple):
    """Limits of the archive: number of tasks, and `cutoff`, the Unix time up to which tasks are deleted."""

    max_size: int
    cutoff: int


ActPlan: TypeAlias = "Callable[[Sequence[str], str], Plan[Moved]]"
"""Function that makes the plan of an action on tasks, given ids and required state (empty: any)."""


def run_tasks(queue: str, ids: Sequence[str], from_state: str = "", *, now: Instant) -> Plan[Moved]:
    """Put tasks at the end of the queue; return how many, and which were refused.

    Active and pending tasks, and members of aggregation sets, are refused.

    In an ordered queue, tasks waiting for a retry go to the front, in their order.
    """
    keys = queue_keys(queue)
    moved = Moved(0, {})
    for chunk in chunks(ids, most=_MOST_AT_ONCE):
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
    """Archive tasks, without counting them as failed; return how many, and which were refused.

    Active and archived tasks, and members of aggregation sets, are refused.
    """
    keys = queue_keys(queue)
    moved = Moved(0, {})

    def take(chunk: Sequence[str], hints: Hints) -> Plan[bool]:
        nonlocal moved
        args: tuple[Argument, ...] = (*_head(keys, from_state), *limits, *time_arguments(now), *hints, *chunk)
        reply = yield ScriptCall(INSPECT_ARCHIVE, keys.places, args, Replay.BY_TOKEN)
        if reply is None:
            return False
        trimmed = yield from trim_rest(keys, reply, max_size=limits.max_size, cutoff=limits.cutoff)
        done, refused, told = reply[2:]
        moved = _add(moved, done, refused, trimmed=trimmed, told=told)
        return True

    yield from take_in_calls(queue, ids, take, most=min(_MOST_AT_ONCE, limits.max_size))
    yield from try_deliver_endings(queue, moved.endings, now=now)
    return moved


def delete_tasks(
    queue: str,
    ids: Sequence[str],
    from_state: str = "",
    *,
    with_sets: bool = False,
    tells: bool = True,
) -> Plan[Moved]:
    """Delete tasks and release the locks they own; return how many, and which were refused.

    Active tasks are refused. Members of aggregation sets are refused unless `with_sets` is set. With `tells`,
    completion callbacks of the deleted tasks are enqueued; otherwise the caller enqueues them later.
    """
    keys = queue_keys(queue)
    moved = Moved(0, {})

    def take(chunk: Sequence[str], hints: Hints) -> Plan[bool]:
        nonlocal moved
        head: tuple[Argument, ...] = (*_head(keys, from_state), int(with_sets))
        args = (*head, *hints, *chunk)
        reply = yield ScriptCall(INSPECT_DELETE, keys.places, args, Replay.BY_TOKEN)
        if reply is None:
            return False
        done, refused, grouped, told = reply
        moved = _add(moved, done, refused, told=told)
        yield from release_locks_of_grouped(keys, grouped)
        return True

    yield from take_in_calls(queue, ids, take, most=_MOST_AT_ONCE)
    if tells:
        yield from try_deliver_endings(queue, moved.endings)
    return moved


def _head(keys: QueueKeys, from_state: str) -> tuple[str, ...]:
    return FIRST_SEND, keys.task_prefix, keys.group_prefix, from_state


def _add(moved: Moved, done: int, refused: Reply, *, trimmed: int = 0, told: Reply = ()) -> Moved:
    return Moved(
        moved.done + done,
        moved.refused | decode_refusals(refused),
        moved.trimmed + trimmed,
        (*moved.endings, *read_endings(told)),
    )


def try_deliver_endings(
    queue: str, endings: Sequence[StoredEnding], *, now: Instant | None = None
) -> Plan[None]:
    """Enqueue the completion callbacks of tasks that have just ended.

    Errors of Redis are ignored: the outbox relay of a server enqueues the callbacks later.
    """
    if endings:
        with suppress(RedisError):
            yield from deliver_endings(queue, endings, now=now)


def decode_refusals(reply: Sequence[bytes]) -> dict[str, str]:
    """Decode a reply that lists ids and reasons in turn; return the reason for refusing each id."""
    ids, reasons = map(decode_name, reply[::2]), reply[1::2]
    return {one: reason.decode("utf-8", "replace") for one, reason in zip(ids, reasons, strict=True)}


def release_locks_of_grouped(keys: QueueKeys, grouped: Sequence[bytes]) -> Plan[None]:
    """Release the locks of deleted tasks of groups, whose messages are in `grouped`.

    A Go client names the lock of such a task only in its message, so the deleting script could not know it.
    """
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
    """Archive one task; return the number of archived tasks deleted to make room (trimming)."""
    yield from require_queue(queue)
    act = functools.partial(archive_tasks, queue, limits=limits, now=now)
    return (yield from act_on_one("archive", queue, task_id, act)).trimmed


def delete_task(queue: str, task_id: str) -> Plan[None]:
    """Delete one task."""
    yield from require_queue(queue)
    yield from act_on_one("delete", queue, task_id, functools.partial(delete_tasks, queue))


def act_on_one(action: str, queue: str, task_id: str, act: ActPlan) -> Plan[Moved]:
    """Apply an action to one task, and return its outcome.

    Raises:
        TaskNotFoundError: when there is none with this id in the queue.
        TaskStateError: when its state does not allow it; nothing was changed.
    """
    moved = yield from act([task_id], "")
    if reason := moved.refused.get(task_id):
        raise_refusal(action, queue, task_id, reason)
    return moved


def raise_refusal(action: str, queue: str, task_id: str, reason: str) -> NoReturn:
    """Raise the error that belongs to a script's reason for refusing a task."""
    if reason == MISSING:
        raise TaskNotFoundError(queue, task_id)
    state = TaskState.AGGREGATING.value if reason == AGGREGATED else reason
    raise TaskStateError(action, queue, task_id, state)
