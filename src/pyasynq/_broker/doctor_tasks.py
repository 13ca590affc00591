"""What the doctor asks about tasks: where they are, what their hashes say, and how it puts them right.

Ids are bytes here: damage need not be text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import MAX_BYTES, MAX_TASKS, chunks, time_arguments
from pyasynq._broker.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._broker.scripts import DOCTOR_JUDGE, DOCTOR_READ_TASKS, DOCTOR_SETTLE, DOCTOR_WALK
from pyasynq._wire.constants import LEASE_SECONDS
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq._broker.plan import Argument, Reply
    from pyasynq._clock import Instant
    from pyasynq._wire.keys import QueueKeys

_LIST_STEPS: Final = 100_000
"""Positions of lists that one call may walk over: each id that is judged is searched for in both lists."""
_JUDGED_AT_ONCE: Final = 50


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What a task's hash says; what it does not hold is empty.

    Attributes:
        id: of the task.
        in_set: it is in the sorted set that its state names. Only of tasks that were read.
        places: keys of the collections that it is in, a list as often as the id stands in it. This and what
            follows is only known of tasks that were judged.
        lease: `"held"`, `"over"` or empty.
        digest: changes whenever one of the others does.
        has_hash: there is a hash, of whatever content.
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
    in_set: bool = False
    places: tuple[bytes, ...] = ()
    lease: str = ""
    digest: bytes = b""
    has_hash: bool = True


class Walked(NamedTuple):
    """A page of a collection: how many ids it has, which in a list or a group, and the suspicious ones."""

    looked_at: int
    ids: list[bytes]
    suspects: list[bytes]


class Settlement(NamedTuple):
    """What a damaged task is to be.

    Attributes:
        facts: as it was judged; it is left alone if anything has changed since.
        seen_in: key of the collection that it was judged with; may be empty.
        state: empty to delete it.
        place: key of the collection that it is to be in.
        score: if it has to be put there; None is the present.
        group: of an aggregating task.
        reason: written as its trace; empty for none.
    """

    facts: TaskFacts
    seen_in: bytes
    state: str
    place: str | bytes
    score: int | None = None
    group: bytes = b""
    reason: str = ""


def walk(
    queue: str, collection: str | bytes, state: str, start: int, *, group: str | bytes = ""
) -> Plan[Walked]:
    """Look at the next 1,000 ids of a collection from position `start`."""
    keys = queue_keys(queue)
    reply = yield ScriptCall(
        DOCTOR_WALK,
        (_text(collection), keys.lease),
        (keys.task_prefix, state, group, start, start + MAX_TASKS - 1),
        Replay.SAFE,
    )
    return Walked(*reply)


def read_tasks(queue: str, ids: Sequence[bytes]) -> Plan[list[TaskFacts]]:
    """Read tasks, in calls of up to 1,000 tasks or 4 MB of messages."""
    keys = queue_keys(queue)
    facts: list[TaskFacts] = []
    while len(facts) < len(ids):
        some = ids[len(facts) : len(facts) + MAX_TASKS]
        number, *reply = yield ScriptCall(
            DOCTOR_READ_TASKS,
            (keys.scheduled, keys.retry, keys.archived, keys.completed),
            (keys.task_prefix, keys.group_prefix, MAX_BYTES, *some),
            Replay.SAFE,
        )
        for task_id, in_set, values in zip(some[:number], reply[::2], reply[1::2], strict=True):
            facts.append(TaskFacts(task_id, *_values(values), in_set=bool(in_set)))
    return facts


def judge(
    queue: str, suspects: Mapping[bytes, bytes], *, now: Instant | None = None
) -> Plan[list[TaskFacts]]:
    """Learn all about tasks, given as ids and what each was seen in.

    An id is searched for in whole lists. So one call judges fewer tasks the longer these are.
    """
    keys = queue_keys(queue)
    facts = []
    for chunk in chunks(list(suspects.items()), most=(yield from _at_once(keys))):
        reply = yield ScriptCall(
            DOCTOR_JUDGE,
            (*_places(keys),),
            (
                keys.task_prefix,
                keys.group_prefix,
                *time_arguments(now),
                *(part for suspect in chunk for part in suspect),
            ),
            Replay.SAFE,
        )
        for at, (task_id, _) in enumerate(chunk):
            places, values, lease, digest, has_hash = reply[at * 5 : at * 5 + 5]
            facts.append(
                TaskFacts(
                    task_id,
                    *_values(values),
                    places=tuple(places),
                    lease=lease.decode(),
                    digest=digest,
                    has_hash=bool(has_hash),
                )
            )
    return facts


def settle_damaged(
    queue: str, settlements: Sequence[Settlement], *, now: Instant | None = None
) -> Plan[list[bytes]]:
    """Put tasks right; return the ids of those that were still as they had been judged."""
    keys = queue_keys(queue)
    settled: list[bytes] = []
    for chunk in chunks(settlements, most=(yield from _at_once(keys))):
        arguments: list[Argument] = []
        for one in chunk:
            score = "" if one.score is None else one.score
            arguments += (one.facts.id, one.seen_in, one.facts.digest, one.state)
            arguments += (one.place, score, one.group, one.reason)
        settled += yield ScriptCall(
            DOCTOR_SETTLE,
            (*_places(keys), keys.groups),
            (keys.task_prefix, keys.group_prefix, LEASE_SECONDS, *time_arguments(now), *arguments),
            Replay.SAFE,
        )
    return settled


def _at_once(keys: QueueKeys) -> Plan[int]:
    length = 1
    for key in (keys.pending, keys.active):
        length += yield CommandCall(("LLEN", key), key, Replay.SAFE)
    return max(1, min(_JUDGED_AT_ONCE, _LIST_STEPS // length))


def _places(keys: QueueKeys) -> tuple[str, ...]:
    sets = (keys.scheduled, keys.retry, keys.archived, keys.completed, keys.aggregation_sets)
    return keys.pending, keys.active, keys.lease, *sets


def _values(reply: Sequence[Reply]) -> tuple[bytes, str, bytes, bytes, bytes, bytes, bytes, bytes]:
    message, state, *others = (value or b"" for value in reply)
    group, unique_key, attempt, scheduled_group, pending_since, crashes = others
    text = state.decode("utf-8", "backslashreplace")
    return message, text, group, unique_key, attempt, scheduled_group, pending_since, crashes


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode()
