"""Composing the message of a task from its options and the time."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._checks import check_representable
from pyasynq._wire.endings import encode_callback
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import TaskMessage, encode_task_message, new_task_message
from pyasynq.options import (
    EnqueueSettings,
    OnConflict,
    OnDuplicate,
    check_combination,
    merge_options,
    resolve_options,
)
from pyasynq.task import EnqueueStatus, Task, TaskInfo, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyasynq._clock import Instant

_PENDING: Final = TaskState.PENDING  # Python 3.11 looks enumeration members up slowly

_IDS_AT_ONCE: Final = 128
_UUID_GROUPS: Final = Struct("8s4s4s4s12s")
_RANDOM_BITS: Final = int("ffffffffffff0fff3fffffffffffffff" * _IDS_AT_ONCE, 16)
_VERSION_AND_VARIANT: Final = int("00000000000040008000000000000000" * _IDS_AT_ONCE, 16)

_ids: list[str] = []


def new_task_id() -> str:
    """Return a random UUID (version 4, RFC 9562) as text; one system call serves 128 of them."""
    try:
        return _ids.pop()
    except IndexError:
        first, *others = _new_ids()
        _ids.extend(others)
        return first


def _new_ids() -> list[str]:
    # All ids are made at once, without a Python loop: as one number, then as one text.
    random = int.from_bytes(os.urandom(16 * _IDS_AT_ONCE))
    digits = f"{random & _RANDOM_BITS | _VERSION_AND_VARIANT:0{32 * _IDS_AT_ONCE}x}".encode()
    return b" ".join(map(b"-".join, _UUID_GROUPS.iter_unpack(digits))).decode().split()


if hasattr(os, "register_at_fork"):
    # A child with a copy of the parent's pool would use the same ids as the parent.
    os.register_at_fork(after_in_child=_ids.clear)


class ConflictRules(NamedTuple):
    """Rules for enqueueing a task whose id or lock another task has already (conflict).

    Attributes:
        on_duplicate: option for the case that another task holds the lock.
        on_conflict: option for the case that another task has the id.
        process_at: new process time (Unix time) of the existing task, if its payload is replaced; 0 is now,
            None leaves it unchanged.
        payload: new payload and headers of the existing task, as encoded fields of a message.
    """

    on_duplicate: OnDuplicate
    on_conflict: OnConflict
    process_at: int | None
    payload: bytes


class Composed(NamedTuple):
    """A task in the form that goes to Redis.

    Attributes:
        id: the task's id, or a new one.
        type: the task's type.
        payload: the task's payload.
        settings: its options merged with those of the call, including queue and group.
        encoded: the message's bytes.
        state: pending, aggregating or scheduled.
        score: Unix time in whole seconds from which a scheduled task may run; 0 for others.
        lock: key of the lock of a unique task, else empty. The message names the lock too, except with
            `until="expiry"`.
        lock_ttl: seconds for which the lock holds unless renewed; 0 for a task without one.
        lock_rule: value of the hash field `x:unique_ttl`: the requested seconds of the lock, and `until`
            unless that is `"success"`. Empty if the message does not name the lock.
        rules: None to refuse the task if another one has its id or its lock.
        finished: value of the hash field `x:finished`, which names the callback; empty for none.
    """

    id: str
    type: str
    payload: bytes | None
    settings: EnqueueSettings
    encoded: bytes
    state: TaskState
    score: int = 0
    lock: str = ""
    lock_ttl: int = 0
    lock_rule: str = ""
    rules: ConflictRules | None = None
    finished: bytes = b""


def compose(
    task: Task,
    call_options: Mapping[str, object],
    *,
    now: Instant,
    new_id: Callable[[], str] = new_task_id,
) -> Composed:
    """Make the message of a task. The call's options override the task's own, one by one.

    A task is scheduled if its process time lies after `now`, otherwise aggregating if it has a group, and
    pending if not. Times and locks are rounded up to whole seconds, so nothing runs early and no lock is
    cut short.

    Raises:
        UnknownOptionError: for a name that is not an option.
        InvalidOptionError: for an invalid value.
    """
    options = merge_options(task.options, call_options) if call_options else task.options
    settings = resolve_options(options)
    check_combination(options)
    task_id = settings.task_id or new_id()
    message = TaskMessage(
        type=task.type,
        payload=task.payload,
        id=task_id,
        queue=settings.queue,
        retry=settings.max_retry,
        timeout=settings.timeout,
    )
    if settings.is_plain:
        # Protobuf spends time on empty fields too, especially on headers.
        encoded = message.SerializeToString()
        return Composed(task_id, task.type, task.payload, settings, encoded, _PENDING)
    lock = _lock(task, settings) if settings.unique_ttl else ""
    is_named = lock and settings.until != "expiry"
    message.deadline = settings.deadline
    message.unique_key = lock if is_named else ""
    message.retention = settings.retention
    message.headers.update(settings.headers or {})
    message.group_key = settings.group
    process_at = _process_at(settings, now)
    composed = Composed(
        task_id,
        task.type,
        task.payload,
        settings,
        encode_task_message(message),
        TaskState.AGGREGATING if settings.group else _PENDING,
        lock=lock,
        lock_ttl=settings.unique_ttl,
        lock_rule=_lock_rule(settings) if is_named else "",
    )
    if process_at is not None and process_at > now:
        lock_ttl = settings.unique_ttl and settings.unique_ttl + _whole_seconds_between(now, process_at)
        composed = composed._replace(state=TaskState.SCHEDULED, score=process_at.ceiling, lock_ttl=lock_ttl)
    if settings.on_finished is not None:
        composed = composed._replace(finished=encode_callback(settings.on_finished, task.type, new_task_id()))
    if settings.on_duplicate == "raise" and settings.on_conflict == "raise" and not settings.once_ttl:
        return composed
    due = None if process_at is None else composed.score
    return composed._replace(rules=_rules(settings, task.payload, due))


def _process_at(settings: EnqueueSettings, now: Instant) -> Instant | None:
    if settings.process_in is None:
        return settings.process_at
    return check_representable("process_in", settings.process_in, now.plus(settings.process_in))


def _lock(task: Task, settings: EnqueueSettings) -> str:
    keys = queue_keys(settings.queue)
    return (
        keys.own_unique(settings.unique_key) if settings.unique_key else keys.unique(task.type, task.payload)
    )


def _lock_rule(settings: EnqueueSettings) -> str:
    return (
        f"{settings.unique_ttl}" if settings.until == "success" else f"{settings.unique_ttl} {settings.until}"
    )


def _rules(settings: EnqueueSettings, payload: bytes | None, process_at: int | None) -> ConflictRules:
    fields = b""
    if settings.on_duplicate == "replace_payload":
        fields = encode_task_message(new_task_message(payload=payload, headers=settings.headers))
    return ConflictRules(settings.on_duplicate, settings.on_conflict, process_at, fields)


def _whole_seconds_between(earlier: Instant, later: Instant) -> int:
    return later.seconds - earlier.seconds + (later.microseconds > earlier.microseconds)


def new_task_info(
    composed: Composed,
    now: Instant,
    *,
    task_id: str | None = None,
    status: EnqueueStatus = EnqueueStatus.ENQUEUED,
) -> TaskInfo:
    """Describe a task that has just been enqueued.

    A pending task is due `now`; a task of a group has no due time yet.

    Args:
        composed: the task.
        now: the time of the enqueue.
        task_id: id to return; None for the id of `composed`.
        status: the outcome of the call.
    """
    settings = composed.settings
    due: datetime | None = None
    if composed.state is _PENDING:
        due = now.to_datetime()
    elif composed.state is TaskState.SCHEDULED:
        due = datetime.fromtimestamp(composed.score, UTC)
    info = TaskInfo.__new__(TaskInfo)
    # The constructor of a frozen dataclass would take longer than the rest of this function: it sets each
    # field, default or not, with a call of its own.
    info.__dict__.update(
        id=task_id or composed.id,
        queue=settings.queue,
        type=composed.type,
        payload=composed.payload or b"",
        state=composed.state,
        max_retry=settings.max_retry,
        retried=0,
        timeout=_duration(settings.timeout) if settings.timeout else None,
        deadline=datetime.fromtimestamp(settings.deadline, UTC) if settings.deadline else None,
        next_process_at=due,
        retention=_duration(settings.retention),
        headers=dict(settings.headers) if settings.headers else {},
        group=settings.group,
        enqueue_status=status,
    )
    return info


@lru_cache(maxsize=256)
def _duration(seconds: int) -> timedelta:
    return timedelta(seconds=seconds)
