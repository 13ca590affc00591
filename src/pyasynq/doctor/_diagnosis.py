"""From what is known about a task to what is wrong with it, and what it should be instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.doctoring.tasks import Settlement
from pyasynq._broker.stored import shown
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message, encode_task_message

from ._findings import FindingKind
from ._mending import mend, own_message

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyasynq._broker.doctoring.tasks import StoredTask
    from pyasynq._wire.keys import QueueKeys
    from pyasynq._wire.messages import TaskMessage

_STATES: Final = ("pending", "retry", "scheduled", "aggregating", "completed", "archived", "active")
"""Where a task is left that stands in several places, none of which its state names: the first of these."""
_FINISHED: Final = frozenset({"retry", "archived", "completed"})


class Diagnosis(NamedTuple):
    """What is wrong with a task, and what it is to be; None if only the user can tell."""

    kind: FindingKind
    settlement: Settlement | None


def looks_sound(facts: StoredTask, queue: str) -> bool:
    """Return whether nothing is wrong with a task's hash and its score."""
    if not facts.message or has_stale_fields(facts, facts.state):
        return False
    try:
        message = decode_task_message(facts.message)
    except UndecodableMessageError:
        return facts.state == "archived"
    group = facts.group if facts.state == "aggregating" else None
    is_mended = mend(facts, message, facts.state, group, facts.score).kind is None
    return is_mended and _is_own(facts, message, queue)


def has_stale_fields(facts: StoredTask, state: str) -> bool:
    """Return whether a hash has fields that a task in this state has not, or lacks one that it has."""
    return (
        (state == "pending") != bool(facts.pending_since)
        or (state != "active" and bool(facts.attempt))
        or (state != "scheduled" and bool(facts.scheduled_group))
        or (state in _FINISHED and bool(facts.crashes))
    )


def diagnose(
    facts: StoredTask, keys: QueueKeys, *, seen_in: bytes, sets: Collection[bytes]
) -> Diagnosis | None:
    """Return what is wrong with a task that was judged; None if nothing is.

    `sets` are the keys of the queue's aggregation sets: a group may have the same name as one.
    """
    if not facts.message:
        return _without_message(facts, seen_in)
    message = None
    try:
        message = decode_task_message(facts.message)
    except UndecodableMessageError as error:
        states = {_state_of(place, keys) for place in facts.places}
        if states != {"archived"} and facts.lease != "held":
            reason = f"the message cannot be decoded: {error.reason}"
            return Diagnosis(FindingKind.UNDECODABLE, _archived(facts, keys, seen_in, reason))
        if facts.lease == "held":
            return None
    if message is not None and not _is_own(facts, message, keys.queue):
        return Diagnosis(FindingKind.FOREIGN_MESSAGE, _renamed(facts, keys, seen_in, message))
    if not facts.places:
        return Diagnosis(FindingKind.ORPHAN, _orphan(facts, keys, seen_in, message))
    return _misplaced(facts, keys, seen_in, message, sets)


def _misplaced(
    facts: StoredTask, keys: QueueKeys, seen_in: bytes, message: TaskMessage | None, sets: Collection[bytes]
) -> Diagnosis | None:
    """Return what is wrong with where a task is, or with what it says of that."""
    place = _right_place(facts, keys)
    state = _state_of(place, keys)
    group = _group_of(place, keys, sets) if state == "aggregating" else None
    mended = mend(facts, message, state, group, facts.scores[facts.places.index(place)])
    kind = _kind(facts, state) or mended.kind
    if kind is None and has_stale_fields(facts, state):
        kind = FindingKind.STALE_FIELDS
    if kind is None:
        return None
    return Diagnosis(
        kind,
        Settlement(
            facts,
            seen_in,
            state,
            place,
            score=mended.score,
            group=mended.group,
            unique_key=mended.unique_key,
            message=mended.message,
        ),
    )


def _without_message(facts: StoredTask, seen_in: bytes) -> Diagnosis | None:
    delete = Settlement(facts, seen_in, "", "")
    if facts.places:
        return Diagnosis(FindingKind.GHOST, delete)
    if facts.lease:
        return Diagnosis(FindingKind.LEASE_WITHOUT_ACTIVE, delete)
    return Diagnosis(FindingKind.BLANK_TASK, delete) if facts.has_hash else None


def _kind(facts: StoredTask, state: str) -> FindingKind | None:
    if len(facts.places) > 1:
        return FindingKind.IN_TWO_PLACES
    if facts.state != state:
        return FindingKind.WRONG_STATE
    if state == "active" and not facts.lease:
        return FindingKind.ACTIVE_WITHOUT_LEASE
    if state != "active" and facts.lease:
        return FindingKind.LEASE_WITHOUT_ACTIVE
    return None


def _renamed(facts: StoredTask, keys: QueueKeys, seen_in: bytes, message: TaskMessage) -> Settlement | None:
    """Return how a task whose message names another one is put aside under its own name."""
    if facts.lease == "held":
        return None
    own = own_message(message, facts, keys)
    reason = f"pyasynq doctor found the message of task {message.id!r} of queue {message.queue!r} in it"
    states = {_state_of(place, keys) for place in facts.places}
    state = "completed" if states == {"completed"} else "archived"
    return Settlement(
        facts,
        seen_in,
        state,
        getattr(keys, state).encode(),
        unique_key=own.unique_key.encode(),
        reason=reason,
        message=encode_task_message(own),
    )


def _orphan(facts: StoredTask, keys: QueueKeys, seen_in: bytes, message: TaskMessage | None) -> Settlement:
    """Return what a task in no collection is to be."""
    group = facts.group or (message.group_key.encode() if message else b"")
    # A worker may still have an active task, and its lease brings it back if not.
    if facts.state in {"pending", "retry"} or (facts.state == "active" and facts.lease):
        return Settlement(facts, seen_in, facts.state, getattr(keys, facts.state))
    if facts.state == "aggregating" and group:
        return Settlement(facts, seen_in, "aggregating", keys.group_prefix.encode() + group, group=group)
    if facts.state == "completed" and message and message.retention and message.completed_at:
        score = message.completed_at + message.retention
        return Settlement(facts, seen_in, "completed", keys.completed, score)
    if facts.state in {"archived", "completed"}:
        return Settlement(facts, seen_in, "", "")
    reason = f"pyasynq doctor found it in no collection, in state {facts.state!r}; it may have run"
    return _archived(facts, keys, seen_in, reason)


def _archived(facts: StoredTask, keys: QueueKeys, seen_in: bytes, reason: str) -> Settlement:
    return Settlement(facts, seen_in, "archived", keys.archived, reason=reason)


def _right_place(facts: StoredTask, keys: QueueKeys) -> bytes:
    active = keys.active.encode()
    if active in facts.places and facts.lease == "held":
        return active
    for state in (facts.state, *_STATES):
        for place in facts.places:
            if _state_of(place, keys) == state:
                return place
    return facts.places[0]


def _state_of(place: bytes, keys: QueueKeys) -> str:
    if place.startswith(keys.group_prefix.encode()):
        return "aggregating"
    return shown(place[len(keys.prefix.encode()) :])


def _group_of(place: bytes, keys: QueueKeys, sets: Collection[bytes]) -> bytes:
    name = place[len(keys.group_prefix.encode()) :]
    return name.rpartition(b":")[0] if place in sets else name


def _is_own(facts: StoredTask, message: TaskMessage, queue: str) -> bool:
    return message.id.encode() == facts.id and message.queue == queue
