"""The doctor's plans for tasks: their places, their hashes, and repairs.

Ids are bytes here: damaged ones need not be text.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import MAX_BYTES, MAX_TASKS, chunks, time_arguments
from pyasynq._broker.doctoring.lists import LIST_WALK, count_in_list
from pyasynq._broker.scripts import DOCTOR_JUDGE, DOCTOR_READ_TASKS, DOCTOR_SETTLE, DOCTOR_WALK
from pyasynq._broker.stored import decode_name, parse_number
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.constants import LEASE_SECONDS
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument, Reply
    from pyasynq._wire.keys import QueueKeys

_LIST_STEPS: Final = 200_000
"""Number of list positions that one call may walk over: it searches both lists for each id."""
_JUDGED_AT_ONCE: Final = 50
_SAMPLE: Final = 50


@dataclass(frozen=True, slots=True)
class StoredTask:
    """The fields of a task's hash; missing ones are empty.

    Attributes:
        id: id of the task.
        score: its score in the sorted set of its state; empty if it is in none. Only for tasks that were
            read.
        places: keys of the collections that contain it; a list is repeated for each occurrence. This field
            and the following ones are set only by `judge`.
        scores: its score in each of the places; empty for lists.
        lease: `"held"` for a lease that has not ended, `"over"` for one that has; empty without a lease.
        digest: changes whenever one of the other fields changes.
        has_hash: whether there is a hash, of any content.
        listed: number of occurrences of the id in the lists pending and active, if these are too long for
            the script, which reads only their ends; otherwise 0.
    """

    id: bytes
    message: bytes
    state: str
    group: bytes
    unique_key: bytes
    attempt: bytes
    scheduled_group: bytes
    pending_since: bytes
    crashes: bytes
    score: bytes = b""
    places: tuple[bytes, ...] = ()
    scores: tuple[bytes, ...] = ()
    lease: str = ""
    digest: bytes = b""
    has_hash: bool = True
    listed: tuple[int, int] = (0, 0)


class Walked(NamedTuple):
    """One page of a walk: number of ids examined, the ids (lists and groups only), and the suspicious ids."""

    looked_at: int
    ids: list[bytes]
    suspects: list[bytes]


class Settlement(NamedTuple):
    """The desired state of a damaged task.

    Attributes:
        facts: the task as `judge` returned it; a task that has changed since is left as it is.
        seen_in: key of a collection, as it was passed to `judge`; may be empty.
        state: target state; empty to delete the task.
        place: key of the collection to put the task into.
        score: score in that collection; None keeps the present one, or uses the current time for a new
            member.
        group: group to write into the hash; None keeps the present one.
        unique_key: key of the lock to write into the hash; None keeps the present one.
        reason: stored in place of a traceback; empty for none.
        message: replacement for its message; empty keeps the present one.
    """

    facts: StoredTask
    seen_in: bytes
    state: str
    place: str | bytes
    score: int | None = None
    group: bytes | None = None
    unique_key: bytes | None = None
    reason: str = ""
    message: bytes = b""


def walk(
    queue: str, collection: str | bytes, state: str, start: int, *, group: str | bytes = ""
) -> Plan[Walked]:
    """Check the next 1,000 ids of a collection from position `start`; return the suspicious ones.

    An id is suspicious if its task is missing, incomplete, in another state or group, or lacks its lease.
    """
    keys = queue_keys(queue)
    reply = yield ScriptCall(
        DOCTOR_WALK,
        (_text(collection), keys.lease),
        (keys.task_prefix, state, group, start, start + MAX_TASKS - 1),
        Replay.SAFE,
    )
    return Walked(*reply)


def read_tasks(queue: str, ids: Sequence[bytes]) -> Plan[list[StoredTask]]:
    """Read tasks in batches: each script call returns up to 1,000 tasks or 4 MB of messages."""
    keys = queue_keys(queue)
    facts: list[StoredTask] = []
    while len(facts) < len(ids):
        some = ids[len(facts) : len(facts) + MAX_TASKS]
        number, *reply = yield ScriptCall(
            DOCTOR_READ_TASKS,
            (keys.scheduled, keys.retry, keys.archived, keys.completed),
            (keys.task_prefix, keys.group_prefix, MAX_BYTES, *some),
            Replay.SAFE,
        )
        for task_id, score, values in zip(some[:number], reply[::2], reply[1::2], strict=True):
            facts.append(StoredTask(task_id, *_values(values), score=score))
    return facts


def waiting_types(queue: str, now: Instant, seconds: int) -> Plan[set[str]]:
    """Return the types of tasks that have been pending for more than `seconds`, or wait for a retry.

    Reads the 50 oldest pending tasks and 50 retry tasks; none while the queue is paused.
    """
    keys = queue_keys(queue)
    if (yield CommandCall(("EXISTS", keys.paused), keys.paused, Replay.SAFE)):
        return set()
    pending = yield CommandCall(("LRANGE", keys.pending, -_SAMPLE, -1), keys.pending, Replay.SAFE)
    failed = yield CommandCall(("ZRANGE", keys.retry, 0, _SAMPLE - 1), keys.retry, Replay.SAFE)
    found: set[str] = set()
    for task in (yield from read_tasks(queue, [*pending, *failed])):
        since = parse_number(task.pending_since)
        if not since or now.seconds - since // 10**9 > seconds:
            with suppress(UndecodableMessageError):
                found.add(decode_task_message(task.message).type)
    return found


def judge(
    queue: str, suspects: Mapping[bytes, bytes], *, now: Instant | None = None
) -> Plan[list[StoredTask]]:
    """Read all that Redis stores about suspicious tasks: a snapshot of each.

    `suspects` maps ids to the key of the collection that each was seen in. A script searches for an id at
    both ends of the lists, so the longer the lists are, the fewer tasks one call reads. Ids in the middle of
    a long list are counted before that, page by page. The result is empty if a list changes too fast for
    counting.
    """
    keys = queue_keys(queue)
    pending = yield from count_in_list(keys.pending, suspects)
    active = yield from count_in_list(keys.active, suspects)
    facts: list[StoredTask] = []
    if pending is None or active is None:
        return facts
    for chunk in chunks(list(suspects.items()), width=4, most=(yield from _at_once(keys))):
        arguments: list[Argument] = []
        for task_id, seen_in in chunk:
            arguments += (task_id, seen_in, pending[task_id], active[task_id])
        reply = yield ScriptCall(
            DOCTOR_JUDGE,
            (*_places(keys),),
            (keys.task_prefix, keys.group_prefix, LIST_WALK, *time_arguments(now), *arguments),
            Replay.SAFE,
        )
        for at, (task_id, _) in enumerate(chunk):
            places, scores, values, lease, digest, has_hash = reply[at * 6 : at * 6 + 6]
            facts.append(
                StoredTask(
                    task_id,
                    *_values(values),
                    places=tuple(places),
                    scores=tuple(scores),
                    lease=decode_name(lease),
                    digest=digest,
                    has_hash=bool(has_hash),
                    listed=(pending[task_id], active[task_id]),
                )
            )
    return facts


def settle_damaged(
    queue: str, settlements: Sequence[Settlement], *, now: Instant | None = None
) -> Plan[list[bytes]]:
    """Repair tasks; return the ids of the repaired tasks, which had not changed since they were judged.

    A task that would have to be removed from the middle of a long list is left as it is.
    """
    keys = queue_keys(queue)
    settled: list[bytes] = []
    most = yield from _at_once(keys)
    for chunk in chunks(settlements, most=most, width=13, size_of=lambda one: len(one.message)):
        settled += yield ScriptCall(
            DOCTOR_SETTLE,
            (*_places(keys), keys.groups),
            (
                keys.task_prefix,
                keys.group_prefix,
                LEASE_SECONDS,
                LIST_WALK,
                *time_arguments(now),
                *(part for one in chunk for part in _arguments(one)),
            ),
            Replay.SAFE,
        )
    return settled


def _arguments(settlement: Settlement) -> tuple[Argument, ...]:
    facts = settlement.facts
    group, unique_key = settlement.group, settlement.unique_key
    if group is None:
        group = facts.group or facts.scheduled_group
    return (
        *(facts.id, settlement.seen_in, *facts.listed, facts.digest, settlement.state, settlement.place),
        "" if settlement.score is None else settlement.score,
        group,
        facts.unique_key if unique_key is None else unique_key,
        settlement.reason,
        settlement.message,
    )


def _at_once(keys: QueueKeys) -> Plan[int]:
    steps = 1
    for key in (keys.pending, keys.active):
        steps += min(2 * LIST_WALK, (yield CommandCall(("LLEN", key), key, Replay.SAFE)))
    return max(1, min(_JUDGED_AT_ONCE, _LIST_STEPS // steps))


def _places(keys: QueueKeys) -> tuple[str, ...]:
    sets = (keys.scheduled, keys.retry, keys.archived, keys.completed, keys.aggregation_sets)
    return keys.pending, keys.active, keys.lease, *sets


def _values(reply: Sequence[Reply]) -> tuple[bytes, str, bytes, bytes, bytes, bytes, bytes, bytes]:
    message, state, *others = (value or b"" for value in reply)
    group, unique_key, attempt, scheduled_group, pending_since, crashes = others
    text = state.decode("utf-8", "backslashreplace")
    return message, text, group, unique_key, attempt, scheduled_group, pending_since, crashes


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else decode_name(key)
