"""Diagnosis of a task: its damage, and the settlement (state and collection) that repairs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.doctoring.tasks import Settlement
from pyasynq._broker.stored import display_name
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message, encode_task_message

from ._findings import FindingKind
from ._mending import mend, own_message

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyasynq._broker.doctoring.tasks import StoredTask
    from pyasynq._wire.keys import QueueKeys
    from pyasynq._wire.messages import TaskMessage

_STATES: Final = ("pending", "retry", "scheduled", "aggregating", "completed", "archived", "active")
"""Order of preference for a task in several collections, if its state names none of these."""
_FINISHED: Final = frozenset({"retry", "archived", "completed"})


class Diagnosis(NamedTuple):
    """Damage of a task, and the state and collection that repair it; None if only the user can decide."""

    kind: FindingKind
    settlement: Settlement | None


def looks_sound(facts: StoredTask, queue: str) -> bool:
    """Return whether a task's hash and score are undamaged."""
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
    """Return whether a hash has fields of another state, or lacks a field that `state` requires."""
    return (
        (state == "pending") != bool(facts.pending_since)
        or (state != "active" and bool(facts.attempt))
        or (state != "scheduled" and bool(facts.scheduled_group))
        or (state in _FINISHED and bool(facts.crashes))
    )


def diagnose(
    facts: StoredTask, keys: QueueKeys, *, seen_in: bytes, sets: Collection[bytes]
) -> Diagnosis | None:
    """Return the damage of a task read atomically; None if it is undamaged.

    `sets` are the keys of the queue's aggregation sets: the key of a group may look like that of a set.
    """
    if not facts.message:
        return _diagnose_hash(facts, seen_in)
    message = None
    try:
        message = decode_task_message(facts.message)
    except UndecodableMessageError as error:
        states = {_find_state(place, keys) for place in facts.places}
        if states != {"archived"} and facts.lease != "held":
            reason = f"the message cannot be decoded: {error.reason}"
            return Diagnosis(FindingKind.UNDECODABLE, _settle_archived(facts, keys, seen_in, reason))
        if facts.lease == "held":
            return None
    if message is not None and not _is_own(facts, message, keys.queue):
        return Diagnosis(FindingKind.FOREIGN_MESSAGE, _settle_renamed(facts, keys, seen_in, message))
    if not facts.places:
        return Diagnosis(FindingKind.ORPHAN, _settle_orphan(facts, keys, seen_in, message))
    return _diagnose_place(facts, keys, seen_in, message, sets)


def _diagnose_place(
    facts: StoredTask, keys: QueueKeys, seen_in: bytes, message: TaskMessage | None, sets: Collection[bytes]
) -> Diagnosis | None:
    """Return the damage in the task's collection (list or sorted set), or in the fields that name it."""
    place = _find_place(facts, keys)
    state = _find_state(place, keys)
    group = _find_group(place, keys, sets) if state == "aggregating" else None
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


def _diagnose_hash(facts: StoredTask, seen_in: bytes) -> Diagnosis | None:
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


def _settle_renamed(
    facts: StoredTask, keys: QueueKeys, seen_in: bytes, message: TaskMessage
) -> Settlement | None:
    """Return the settlement of a task whose message names another task: archive it under its own id.

    A completed task stays completed. None while a worker holds the lease of the task.
    """
    if facts.lease == "held":
        return None
    own = own_message(message, facts, keys)
    reason = f"pyasynq doctor found the message of task {message.id!r} of queue {message.queue!r} in it"
    states = {_find_state(place, keys) for place in facts.places}
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


def _settle_orphan(
    facts: StoredTask, keys: QueueKeys, seen_in: bytes, message: TaskMessage | None
) -> Settlement:
    """Return the settlement of a task in no collection: back to that of its state, if that is safe.

    Otherwise a task that has ended is deleted: an archived one, or a completed one without a known
    retention. Any other task is archived.
    """
    group = facts.group or (message.group_key.encode() if message else b"")
    # A worker may still run an active task; if none does, the task is recovered when its lease expires.
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
    return _settle_archived(facts, keys, seen_in, reason)


def _settle_archived(facts: StoredTask, keys: QueueKeys, seen_in: bytes, reason: str) -> Settlement:
    return Settlement(facts, seen_in, "archived", keys.archived, reason=reason)


def _find_place(facts: StoredTask, keys: QueueKeys) -> bytes:
    active = keys.active.encode()
    if active in facts.places and facts.lease == "held":
        return active
    for state in (facts.state, *_STATES):
        for place in facts.places:
            if _find_state(place, keys) == state:
                return place
    return facts.places[0]


def _find_state(place: bytes, keys: QueueKeys) -> str:
    if place.startswith(keys.group_prefix.encode()):
        return "aggregating"
    return display_name(place[len(keys.prefix.encode()) :])


def _find_group(place: bytes, keys: QueueKeys, sets: Collection[bytes]) -> bytes:
    name = place[len(keys.group_prefix.encode()) :]
    return name.rpartition(b":")[0] if place in sets else name


def _is_own(facts: StoredTask, message: TaskMessage, queue: str) -> bool:
    return message.id.encode() == facts.id and message.queue == queue
