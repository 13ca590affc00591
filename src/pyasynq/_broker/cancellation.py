"""Requests to cancel a running task, on whichever server runs it.

A request is stored before it is published: a worker that misses the message finds the request when it next
renews its leases. A request names the attempt by its token, so the task's next attempt ignores the request.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import chunks, time_arguments
from pyasynq._broker.queue_registry import queue_names, require_queue
from pyasynq._broker.scripts import INSPECT_CANCEL
from pyasynq._broker.stored import decode_name
from pyasynq._checks import check_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import CANCEL_CHANNEL, queue_keys
from pyasynq.errors import InvalidOptionError, TaskNotFoundError
from pyasynq.info import CancelResult, CancelStatus
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant


_STATES: Final = {state.value.encode(): state for state in TaskState}
_OUTCOMES: Final = ("retry", "archive", "delete")
_REQUEST: Final = re.compile(rb"([0-9]{1,18}) (retry|archive|delete) (.*)", re.DOTALL)
"""The format of a request. Text of any other form was not written by pyasynq, and is ignored."""


class CancelRequest(NamedTuple):
    """A stored request to cancel.

    Attributes:
        requested_at: Unix time.
        outcome: what happens to the task when it is cancelled: `retry`, `archive` or `delete`.
        token: token of the attempt to cancel.
    """

    requested_at: int
    outcome: str
    token: str


def publish_cancelation(task_id: str) -> Plan[int]:
    """Publish a cancel of the task with this id, in any queue; return the number of servers that listen."""
    return int((yield CommandCall(("PUBLISH", CANCEL_CHANNEL, task_id), None, Replay.SAFE)))


def request_cancelation(
    task_id: str, queue: str | None, outcome: str, *, now: Instant | None
) -> Plan[list[CancelResult]]:
    """Store a cancel request for a task in one queue, or in all queues for None; then publish it.

    Return the result for each queue that has a task of this id.

    Raises:
        TaskNotFoundError: when a queue is named and has no such task; nothing is published then.
    """
    check_name("task_id", task_id)
    check_outcome(outcome)
    if queue is not None:
        yield from require_queue(queue)
    results = []
    for name in [queue] if queue is not None else (yield from queue_names()):
        result = yield from _write_down(name, task_id, outcome, now)
        if result is not None:
            results.append(result)
        elif queue is not None:
            raise TaskNotFoundError(queue, task_id)
    if not results or any(result.status is not CancelStatus.NOT_ACTIVE for result in results):
        yield from publish_cancelation(task_id)
    return results


def request_in_queue(
    queue: str, task_id: str, outcome: str, *, now: Instant | None
) -> Plan[CancelResult | None]:
    """Store a cancel request in a queue, and publish it if the task is active.

    Return None if the queue has no such task.
    """
    result = yield from _write_down(queue, task_id, outcome, now)
    if result is not None and result.status is not CancelStatus.NOT_ACTIVE:
        yield from publish_cancelation(task_id)
    return result


def check_outcome(outcome: str) -> None:
    """Raise `InvalidOptionError` unless this is `retry`, `archive` or `delete`."""
    if outcome not in _OUTCOMES:
        raise InvalidOptionError("outcome", outcome, f"must be one of {', '.join(_OUTCOMES)}")


def _write_down(queue: str, task_id: str, outcome: str, now: Instant | None) -> Plan[CancelResult | None]:
    keys = queue_keys(queue)
    reply = yield ScriptCall(
        INSPECT_CANCEL,
        (keys.task(task_id), keys.cancellations),
        (task_id, outcome, *time_arguments(now)),
        Replay.SAFE,
    )
    return _result(queue, task_id, *reply) if reply else None


def _result(queue: str, task_id: str, state: bytes, token: bytes) -> CancelResult:
    if state != b"active":
        return CancelResult(queue, task_id, CancelStatus.NOT_ACTIVE, _STATES.get(state))
    status = CancelStatus.REQUESTED if token else CancelStatus.SENT
    return CancelResult(queue, task_id, status, TaskState.ACTIVE, decode_name(token))


def is_open(result: CancelResult) -> bool:
    """Return whether the attempt was still running when last checked."""
    return result.status in {CancelStatus.REQUESTED, CancelStatus.SENT}


def refresh_results(results: Sequence[CancelResult]) -> Plan[list[CancelResult]]:
    """Return the current state of some cancel requests: the attempts may have ended meanwhile."""
    seen = []
    for result in results:
        if is_open(result):
            task = queue_keys(result.queue).task(result.task_id)
            reply = yield CommandCall(("HMGET", task, "state", "x:attempt"), task, Replay.SAFE)
            state, token = (value or b"" for value in reply)
            if state != b"active" or decode_name(token) != result.attempt:
                result = replace(result, status=CancelStatus.ENDED, state=_STATES.get(state))  # noqa: PLW2901
        seen.append(result)
    return seen


def read_requests(queue: str, ids: Sequence[str]) -> Plan[dict[str, CancelRequest]]:
    """Return the stored requests to cancel for some tasks of a queue."""
    key = queue_keys(queue).cancellations
    found = {}
    for chunk in chunks(ids):
        texts = yield CommandCall(("HMGET", key, *chunk), key, Replay.SAFE)
        for task_id, text in zip(chunk, texts, strict=True):
            if text is not None and (match := _REQUEST.fullmatch(text)) is not None:
                found[task_id] = CancelRequest(int(match[1]), match[2].decode(), decode_name(match[3]))
    return found
