"""Removal of a queue, with all keys under its name."""

from __future__ import annotations

import functools
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import chunks
from pyasynq._broker.inspecting.actions import delete_tasks
from pyasynq._broker.inspecting.bulk import act_on_collection
from pyasynq._broker.inspecting.group_counts import forget_empty_groups, scan_groups
from pyasynq._broker.inspecting.queues import collections, count_tasks
from pyasynq._broker.inspecting.tasks import collection_key
from pyasynq._broker.outbox import deliver_endings, list_endings
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import INSPECT_LIST_GROUPED, INSPECT_REMOVE_QUEUE
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import ALL_QUEUES, QueueKeys, queue_keys
from pyasynq.errors import QueueBusyError, QueueNotEmptyError, RedisError
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.inspecting.actions import Moved
    from pyasynq._broker.inspecting.bulk import Progress
    from pyasynq._redis.plan import Argument

_KEYS_AT_ONCE: Final = 1_000
_GROUPED_AT_ONCE: Final = 250
"""Number of grouped tasks, and of groups, in one call: about 4 ms of Redis' time."""
_GLOB: Final = re.compile(r"([\\*?\[\]])")
_LEFTOVERS: Final = (b"t:", b"g:", b"unique:", b"processed:", b"failed:", b"x:")
_DELETED_STATES: Final = (
    TaskState.PENDING,
    TaskState.SCHEDULED,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.COMPLETED,
)


def remove_queue(queue: str, *, force: bool, progress: Progress | None) -> Plan[int]:
    """Remove a queue that has no tasks, or with `force` its tasks too; return how many tasks were deleted.

    Locks, counters, groups and pyasynq's own keys are deleted too, found by a scan of all keys of the
    database in steps of 1,000. A task that is enqueued meanwhile is never deleted without `force`, and keeps
    its queue. Completion callbacks of the deleted tasks are enqueued.

    Raises:
        QueueNotEmptyError: when it has tasks, or with `force`, when more came while it was emptied.
        QueueBusyError: with `force`, when tasks are active.
    """
    yield from require_queue(queue)
    if not force:
        yield from remove_empty_queue(queue)
        return 0
    if active := (yield from count_tasks(queue)).active:
        raise QueueBusyError(queue, active)
    deleted = yield from _delete_tasks(queue_keys(queue), progress)
    yield from remove_empty_queue(queue, is_forced=True)
    # Done after the removal, because a callback may go into the removed queue.
    with suppress(RedisError):
        while endings := (yield from list_endings(queue, seconds=0.0)):
            if not (yield from deliver_endings(queue, endings)):
                break
    return deleted


def remove_empty_queue(queue: str, *, is_forced: bool = False) -> Plan[None]:
    """Remove a queue that has no tasks, whether its name is registered or not.

    Raises:
        QueueNotEmptyError: when it has tasks.
        QueueBusyError: with `is_forced`, when tasks are active.
    """
    keys = queue_keys(queue)
    active, tasks = yield from _delete_keys(keys)
    if is_forced and active:
        raise QueueBusyError(queue, active)
    if tasks:
        raise QueueNotEmptyError(queue, tasks)
    yield CommandCall(("SREM", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)
    if not (yield from _sweep(keys)):
        yield CommandCall(("SADD", ALL_QUEUES, queue), ALL_QUEUES, Replay.SAFE)


def _delete_tasks(keys: QueueKeys, progress: Progress | None) -> Plan[int]:
    def delete(ids: Sequence[str], from_state: str) -> Plan[Moved]:
        return delete_tasks(keys.queue, ids, from_state, with_sets=True, tells=False)

    found = yield from _collections(keys)
    groups = yield from scan_groups(keys.queue)
    found += [
        (keys.group(decode_name(name)), TaskState.AGGREGATING, size)
        for name, size in groups.items()
        if size > _GROUPED_AT_ONCE
    ]
    few = {name: size for name, size in groups.items() if size <= _GROUPED_AT_ONCE}
    total = sum(size for _, _, size in found) + sum(few.values())
    before = deleted = 0
    for collection, state, size in found:
        tell = progress and functools.partial(_report, progress, before, total)
        deleted += (yield from act_on_collection(keys, collection, state, delete, tell)).done
        before += size
    most = _GROUPED_AT_ONCE
    for names in chunks(tuple(few), most=most, size_of=few.__getitem__, most_size=most):
        ids = yield from list_grouped(keys.queue, names)
        deleted += (yield from delete(ids, TaskState.AGGREGATING.value)).done
        before += sum(few[name] for name in names)
        if progress is not None:
            progress(before, total)
    return deleted


def list_grouped(queue: str, names: Sequence[bytes]) -> Plan[list[str]]:
    """List the first 250 tasks of some groups; remove ids and names of groups without tasks."""
    keys = queue_keys(queue)
    args: tuple[Argument, ...] = (keys.group_prefix, keys.task_prefix, _GROUPED_AT_ONCE, *names)
    ids = yield ScriptCall(INSPECT_LIST_GROUPED, (keys.groups,), args, Replay.SAFE)
    return [decode_name(task_id) for task_id in ids]


def _report(progress: Progress, before: int, total: int, seen: int, _of: int) -> None:
    progress(min(before + seen, total), total)


def _collections(keys: QueueKeys) -> Plan[list[tuple[str, TaskState, int]]]:
    """Return key, state and size of the collections whose tasks may be deleted, except groups."""
    found = []
    for state in _DELETED_STATES:
        collection = collection_key(keys, state)
        command = ("LLEN" if state is TaskState.PENDING else "ZCARD", collection)
        found.append((collection, state, (yield CommandCall(command, collection, Replay.SAFE))))
    all_sets = ("ZRANGE", keys.aggregation_sets, 0, -1)
    for key in (yield CommandCall(all_sets, keys.aggregation_sets, Replay.SAFE)):
        aggregation_set = decode_name(key)
        if not aggregation_set.startswith(keys.group_prefix):
            continue  # not a set of this queue, perhaps on another node
        size = yield CommandCall(("ZCARD", aggregation_set), aggregation_set, Replay.SAFE)
        found.append((aggregation_set, TaskState.AGGREGATING, size))
    return found


def _delete_keys(keys: QueueKeys, leftovers: Sequence[bytes] = ()) -> Plan[tuple[int, int]]:
    """Delete the queue's keys if it has no tasks; return how many are active, and how many it has."""
    active, tasks, unseen = yield from _try_to_delete(keys, leftovers)
    if not tasks and unseen:
        # A script looks at 1,000 groups at most, and most names that stay behind have no tasks.
        grouped = yield from forget_empty_groups(keys.queue)
        active, tasks, unseen = yield from _try_to_delete(keys, leftovers)
        tasks = tasks or (unseen and max(grouped, unseen))
    return active, tasks


def _try_to_delete(keys: QueueKeys, leftovers: Sequence[bytes]) -> Plan[tuple[int, int, int]]:
    reply = yield ScriptCall(
        INSPECT_REMOVE_QUEUE,
        (
            *collections(keys),
            keys.groups,
            keys.aggregation_sets,
            keys.lease,
            keys.paused,
            keys.processed,
            keys.failed,
        ),
        (keys.group_prefix, *leftovers),
        Replay.SAFE,
    )
    active, tasks, unseen = reply
    return active, tasks, unseen


def _sweep(keys: QueueKeys) -> Plan[bool]:
    """Delete all other keys of the queue; stop and return False if the queue has tasks again."""
    pattern = _GLOB.sub(r"\\\1", keys.prefix) + "*"
    length = len(keys.prefix.encode())
    cursor = b""
    while cursor != b"0":
        command = ("SCAN", cursor or b"0", "MATCH", pattern, "COUNT", _KEYS_AT_ONCE)
        cursor, names = yield CommandCall(command, keys.pending, Replay.SAFE)
        # The prefix of queue `a` also begins the keys of a queue `a}:b`.
        leftovers = [name for name in names if name[length:].startswith(_LEFTOVERS)]
        # Callbacks of deleted tasks are enqueued from the outbox; Redis removes its key with the last entry.
        leftovers = [name for name in leftovers if name[length:] != b"x:outbox"]
        for chunk in chunks(leftovers):
            if (yield from _delete_keys(keys, chunk))[1]:
                return False
    return not (yield from _delete_keys(keys))[1]
