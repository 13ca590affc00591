"""Operations on several tasks that are named by their ids, with a result for each."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import chunks, time_arguments
from pyasynq._broker.cancellation import check_outcome, request_in_queue
from pyasynq._broker.inspecting.actions import (
    AGGREGATED,
    MISSING,
    Moved,
    archive_tasks,
    decode_refusals,
    delete_tasks,
    run_tasks,
)
from pyasynq._broker.inspecting.bulk import archive_surplus
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import INSPECT_RESCHEDULE
from pyasynq._checks import parse_instant, parse_seconds
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import ArchiveFullError, InvalidOptionError
from pyasynq.info import CancelStatus, Refusal, TaskResult, TaskResults
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from pyasynq._broker.inspecting.actions import ActPlan, ArchiveLimits
    from pyasynq._clock import Instant
    from pyasynq.options import Duration

_MOST_MOVED: Final = 250
_STATES: Final = {state.value: state for state in TaskState}


def check_ids(ids: Iterable[str]) -> list[str]:
    """Check task ids; return them without duplicates, in the order of their first occurrence.

    Raises:
        InvalidOptionError: for a string instead of several ids, and for an id that is not a string.
    """
    if isinstance(ids, str | bytes):
        raise InvalidOptionError("ids", ids, "must be several ids; put a single one into a list")
    unique = list(dict.fromkeys(ids))
    for task_id in unique:
        if not isinstance(task_id, str):
            raise InvalidOptionError("ids", task_id, "an id is text")
    return unique


def run_by_ids(queue: str, ids: Iterable[str], *, now: Instant) -> Plan[TaskResults]:
    """Put tasks at the end of their queue; return a result for each."""
    return (yield from _act(queue, check_ids(ids), functools.partial(run_tasks, queue, now=now)))


def archive_by_ids(
    queue: str, ids: Iterable[str], *, limits: ArchiveLimits, trim: bool, now: Instant
) -> Plan[TaskResults]:
    """Archive tasks; return a result for each.

    Raises:
        ArchiveFullError: when the archive has not room for all, and `trim` is False; nothing was changed.
    """
    unique = check_ids(ids)
    yield from require_queue(queue)
    if not trim and (surplus := (yield from archive_surplus(queue, len(unique), limits))):
        raise ArchiveFullError(queue, len(unique), surplus, limits.max_size)
    return (yield from _act(queue, unique, functools.partial(archive_tasks, queue, limits=limits, now=now)))


def delete_by_ids(queue: str, ids: Iterable[str]) -> Plan[TaskResults]:
    """Delete tasks and release the locks they own; return a result for each."""
    return (yield from _act(queue, check_ids(ids), functools.partial(delete_tasks, queue)))


def _act(queue: str, ids: Sequence[str], act: ActPlan) -> Plan[TaskResults]:
    yield from require_queue(queue)
    moved = (yield from act(ids, "")) if ids else Moved(0, {})
    return TaskResults(_list_results(ids, moved.refused), moved.trimmed)


def _list_results(ids: Iterable[str], refused: Mapping[str, str]) -> tuple[TaskResult, ...]:
    return tuple(_result(task_id, refused.get(task_id)) for task_id in ids)


def _result(task_id: str, reason: str | None) -> TaskResult:
    if reason is None:
        return TaskResult(task_id)
    if reason == MISSING:
        return TaskResult(task_id, Refusal.MISSING)
    if reason == AGGREGATED:
        return TaskResult(task_id, Refusal.AGGREGATED, TaskState.AGGREGATING)
    return TaskResult(task_id, Refusal.STATE, _STATES.get(reason, reason))


def reschedule_by_ids(
    queue: str, ids: Iterable[str], process_at: datetime, *, spread: Duration, now: Instant
) -> Plan[TaskResults]:
    """Set when scheduled and retry tasks are due; archived tasks become scheduled.

    With `spread`, the tasks are due one after the other, at even distances, the first one at `process_at`.
    """
    unique = check_ids(ids)
    first = parse_instant("process_at", process_at)
    seconds = parse_seconds("spread", spread)
    last = parse_instant("process_at", first.plus(seconds).to_datetime()) if seconds else first
    yield from require_queue(queue)
    distance = (last.ceiling - first.ceiling) / max(1, len(unique))
    times = [(task_id, first.ceiling + int(at * distance)) for at, task_id in enumerate(unique)]
    return TaskResults(_list_results(unique, (yield from reschedule_tasks(queue, times, now=now))))


def reschedule_tasks(queue: str, times: Sequence[tuple[str, int]], *, now: Instant) -> Plan[dict[str, str]]:
    """Set the second at which each task is due; return the ids of tasks that were refused, and why."""
    keys = queue_keys(queue)
    refused: dict[str, str] = {}
    for chunk in chunks(times, most=_MOST_MOVED, width=2):
        pairs = [value for pair in chunk for value in pair]
        reply = yield ScriptCall(
            INSPECT_RESCHEDULE,
            (keys.scheduled, keys.retry, keys.archived),
            (keys.task_prefix, *time_arguments(now), *pairs),
            Replay.SAFE,
        )
        refused |= decode_refusals(reply)
    return refused


def cancel_by_ids(
    queue: str, ids: Iterable[str], outcome: str, *, now: Instant | None
) -> list[Plan[TaskResult]]:
    """Return one plan for each id; it requests the task's cancellation. A batch takes two round trips.

    Raises:
        InvalidOptionError: for invalid ids, or an invalid outcome.
    """
    check_outcome(outcome)
    return [_cancel(queue, task_id, outcome, now) for task_id in check_ids(ids)]


def _cancel(queue: str, task_id: str, outcome: str, now: Instant | None) -> Plan[TaskResult]:
    result = yield from request_in_queue(queue, task_id, outcome, now=now)
    if result is None:
        return TaskResult(task_id, Refusal.MISSING)
    if result.status is CancelStatus.NOT_ACTIVE:
        return TaskResult(task_id, Refusal.STATE, result.state, result.status)
    return TaskResult(task_id, state=result.state, cancel=result.status)
