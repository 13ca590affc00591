"""Repair of a task's stored fields: makes message, hash and score agree."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._wire.messages import copy_task_message, encode_task_message

from ._findings import FindingKind

if TYPE_CHECKING:
    from pyasynq._broker.doctoring.tasks import StoredTask
    from pyasynq._wire.keys import QueueKeys
    from pyasynq._wire.messages import TaskMessage

_SKEW_SECONDS: Final = 2
"""Seconds by which the clock of an archiver may be behind that of the task's worker."""


class Mended(NamedTuple):
    """Repaired fields of a task, and the most severe damage in its current fields.

    Attributes:
        kind: None if nothing is wrong.
        message: empty if it needs no change.
        score: None if it needs no change, or the task has none.
        group: value of the hash's field.
        unique_key: value of the hash's field.
    """

    kind: FindingKind | None
    message: bytes
    score: int | None
    group: bytes
    unique_key: bytes


def mend(
    facts: StoredTask, message: TaskMessage | None, state: str, group: bytes | None, score: bytes
) -> Mended:
    """Return the repaired fields of a task in this state; without a decodable message, only some of them.

    Args:
        facts: the task as it is stored.
        message: decoded.
        state: state that the task should have, which selects its list or sorted set.
        group: group of the task; None for no group.
        score: score in that place; empty for lists, and if the task is not there yet.
    """
    wanted_group = _group(facts, message) if group is None else group
    if message is None:
        return Mended(None, b"", None, wanted_group, facts.unique_key)
    copy, value = copy_task_message(message), _whole(score)
    if group is not None:
        copy.group_key = group.decode("utf-8", "replace")
    copy.retry = max(0, copy.retry)
    copy.retried = min(max(0, copy.retried), copy.retry)
    if state == "completed" and value is not None:
        _date(copy, value)
    wanted_score = _score(copy, state, value)
    if wanted_score is not None and float(score) == wanted_score:
        wanted_score = None
    unique_key = copy.unique_key.encode()
    kind = _kind(facts, message, copy, group)
    if kind is None and unique_key != facts.unique_key:
        kind = FindingKind.WRONG_LOCK if wanted_score is None else FindingKind.WRONG_SCORE
    elif kind is None and wanted_score is not None:
        kind = FindingKind.WRONG_SCORE
    changed = b"" if copy == message else encode_task_message(copy)
    return Mended(kind, changed, wanted_score, wanted_group, unique_key)


def own_message(message: TaskMessage, facts: StoredTask, keys: QueueKeys) -> TaskMessage:
    """Return a copy of the message with the id and queue of the task's key, without a foreign lock key."""
    copy = copy_task_message(message)
    copy.id, copy.queue = facts.id.decode("utf-8", "replace"), keys.queue
    if not copy.unique_key.startswith(keys.prefix):
        copy.unique_key = ""
    return copy


def _kind(
    facts: StoredTask, message: TaskMessage, copy: TaskMessage, group: bytes | None
) -> FindingKind | None:
    named = {facts.group, facts.scheduled_group} - {b""}
    is_named = named <= {message.group_key.encode()} if group is None else named == {group}
    if not is_named or message.group_key != copy.group_key:
        return FindingKind.WRONG_GROUP
    if (message.retry, message.retried) != (copy.retry, copy.retried) and facts.lease != "held":
        return FindingKind.WRONG_RETRIES
    if (message.retention, message.completed_at) != (copy.retention, copy.completed_at):
        return FindingKind.WRONG_SCORE
    return None


def _group(facts: StoredTask, message: TaskMessage | None) -> bytes:
    """Return the group field for a task in no group: empty, or the group of its message."""
    named = facts.group or facts.scheduled_group
    return message.group_key.encode() if named and message else named


def _whole(score: bytes) -> int | None:
    """Return a score in whole seconds, rounded up; the current time for an infinite score."""
    if not score:
        return None
    value = float(score)
    return math.ceil(value) if math.isfinite(value) else SYSTEM_CLOCK.now().seconds


def _date(copy: TaskMessage, score: int) -> None:
    """Set the retention fields of a completed task that lacks them, from its score."""
    if copy.retention <= 0:
        copy.completed_at = copy.completed_at or score - 1
        copy.retention = max(1, score - copy.completed_at)
    elif copy.completed_at <= 0:
        copy.completed_at = score - copy.retention


def _score(copy: TaskMessage, state: str, value: int | None) -> int | None:
    if value is None:
        return None
    if state == "completed":
        return copy.completed_at + copy.retention
    if state == "archived" and value + _SKEW_SECONDS < copy.last_failed_at:
        return copy.last_failed_at
    return value
