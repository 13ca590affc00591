"""Conflicts of a new task with existing ones: the rules of the call, and the results."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.enqueueing.compose import ConflictRules, new_task_info
from pyasynq._broker.stored import display_name
from pyasynq._broker.task_records import decode_task_info, read_record
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq.errors import (
    DuplicateTaskError,
    InvalidOptionError,
    TaskIDConflictError,
    UndecodableMessageError,
)
from pyasynq.task import EnqueueResult, EnqueueStatus, TaskInfo

if TYPE_CHECKING:
    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument, Reply

_REFUSE: Final = ConflictRules("raise", "raise", None, b"")
_ENQUEUED: Final = EnqueueStatus.ENQUEUED  # Python 3.11 looks enumeration members up slowly
_CONFLICT: Final = 0
_CREATED: Final = 1
_REPLACED: Final = 3
_ENQUEUED_ONCE: Final = -4
_ORDERED: Final = -5
_GONE: Final = "gone"
_DAMAGED: Final = "damaged"
_NOT_TO_BE_RETURNED: Final = (_GONE, _DAMAGED)
_STATUSES: Final = {
    "ignore": EnqueueStatus.IGNORED,
    "return_existing": EnqueueStatus.EXISTING,
    "replace_payload": EnqueueStatus.REPLACED,
}
_REASONS: Final = {
    "return_existing": "cannot be returned, since it is {}",
    "replace_payload": "cannot take another payload, since it is {}",
}


def new_task_arguments(item: Composed) -> tuple[Argument, ...]:
    """Return a script's arguments for a new task: the task, its lock, and its conflict rules."""
    rules = item.rules or _REFUSE
    return (
        item.id,
        item.encoded,
        item.state.value,
        item.score,
        item.settings.group,
        item.lock,
        item.lock_ttl,
        item.lock_rule,
        rules.on_duplicate,
        rules.on_conflict,
        "" if rules.process_at is None else rules.process_at,
        rules.payload,
        item.finished,
        item.settings.once_ttl or "",
    )


def build_enqueued(item: Composed) -> EnqueueResult:
    """Return the result of a task that was enqueued as a new task."""
    return EnqueueResult(_ENQUEUED, item.id, item.settings.queue)


def build_refusal(item: Composed, code: int, holder: str = "", reason: str = "") -> EnqueueResult:
    """Return the result of a task that a script refused with this code.

    The code is 0 if its id exists, -1 if its lock is held, and -5 if it would go to the front of an ordered
    queue.
    """
    queue = item.settings.queue
    if code == _ORDERED:
        remedy = "the queue is ordered, and no task may pass another: leave it out"
        refused = InvalidOptionError("front", item.settings.front, remedy)
        return EnqueueResult(EnqueueStatus.REFUSED, item.id, queue, refused)
    if code == _CONFLICT:
        conflict = TaskIDConflictError(queue, item.id)
        return EnqueueResult(EnqueueStatus.CONFLICT, item.id, queue, conflict)
    duplicate = DuplicateTaskError(queue, item.lock, holder, reason)
    return EnqueueResult(EnqueueStatus.DUPLICATE, item.id, queue, duplicate)


def build_result_by_rules(item: Composed, code: int, holder: Reply, now: Instant | None) -> EnqueueResult:
    """Return the result of a task that was not created.

    `holder` is a script's reply about the task that holds its lock, or that has its id already.
    """
    if code == _CONFLICT:
        return build_refusal(item, code)
    info, state = _describe_holder(holder, now or SYSTEM_CLOCK.now())
    if code == _ENQUEUED_ONCE:
        return _build_repeated(item, info)
    if info is not None and info.type != item.type:
        state = f"of type {info.type!r}"
    return _build_result(item, code, _Holder(display_name(holder[0]), state, info))


def build_tick_result(item: Composed, code: int, holder: str) -> EnqueueResult:
    """Return the result of enqueueing the task of a scheduler's tick.

    `holder` is the id of the task that holds the lock; more is not known about it.
    """
    if code == _CREATED:
        return build_enqueued(item)
    if code == _CONFLICT:
        return build_refusal(item, code)
    if code == _ENQUEUED_ONCE:
        return _build_repeated(item, None)
    return _build_result(item, code, _Holder(holder, "not one of its type that waits", None))


def build_task_info(item: Composed, result: EnqueueResult | None, now: Instant) -> TaskInfo:
    """Return what `enqueue` returns for a task that was not refused; `result` is None for a new task."""
    if result is None:
        return new_task_info(item, now)
    if result.holder is not None:
        return result.holder
    return new_task_info(item, now, task_id=result.task_id, status=result.status)


def _build_repeated(item: Composed, existing: TaskInfo | None) -> EnqueueResult:
    """Return the result of a task whose id was enqueued before, within its `once_for` (deduplication)."""
    if existing is None:
        return EnqueueResult(EnqueueStatus.IGNORED, item.id, item.settings.queue)
    holder = replace(existing, enqueue_status=EnqueueStatus.EXISTING)
    return EnqueueResult(EnqueueStatus.EXISTING, item.id, item.settings.queue, holder=holder)


class _Holder(NamedTuple):
    """The task that holds a lock; `info` is None if it was not read, or cannot be described."""

    id: str
    state: str
    info: TaskInfo | None


def _describe_holder(values: Reply, now: Instant) -> tuple[TaskInfo | None, str]:
    message, state = values[1:3]
    if not message or not state:
        return None, _GONE
    try:
        return decode_task_info(read_record(values), now), display_name(state)
    except (UndecodableMessageError, KeyError):
        return None, _DAMAGED


def _build_result(item: Composed, code: int, holder: _Holder) -> EnqueueResult:
    rule = (item.rules or _REFUSE).on_duplicate
    is_impossible = {
        "return_existing": holder.state in _NOT_TO_BE_RETURNED,
        "replace_payload": code != _REPLACED,
    }
    if rule == "raise" or is_impossible.get(rule):
        return build_refusal(item, code, holder.id, _REASONS.get(rule, "").format(holder.state))
    status = _STATUSES[rule]
    task_id = item.id if rule == "ignore" else holder.id
    info = replace(holder.info, enqueue_status=status) if holder.info and rule != "ignore" else None
    return EnqueueResult(status, task_id, item.settings.queue, holder=info)
