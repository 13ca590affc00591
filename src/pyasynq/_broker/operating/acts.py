"""Steps of operations on many tasks: each acts on some tasks of one queue, and is counted exactly once.

A step and the operation's record are in different slots of a cluster, so no call writes both. A hash in
the queue's slot, the ledger, keeps the reply of the operation's last step. A process that takes over repeats
the step under the same number, and gets that reply instead of acting again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._broker.arguments import FIRST_SEND, time_arguments
from pyasynq._broker.inspecting.actions import (
    MISSING,
    decode_refusals,
    release_locks_of_grouped,
    try_deliver_endings,
)
from pyasynq._broker.inspecting.pending_places import MOST_WALKED, NO_HINTS
from pyasynq._broker.inspecting.tasks import get_task
from pyasynq._broker.operating.periods import OPERATION_SECONDS, UNDO_SECONDS
from pyasynq._broker.outbox import read_endings
from pyasynq._broker.scripts import (
    INSPECT_ARCHIVE,
    INSPECT_DELETE,
    INSPECT_RESCHEDULE,
    INSPECT_REWRITE,
    INSPECT_RUN,
    OPERATE_DELETE,
    OPERATE_UNDO,
    as_step,
)
from pyasynq._broker.settle import trim_rest
from pyasynq._broker.stored import decode_name, parse_number
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import QueueKeys, queue_keys
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message, encode_task_message
from pyasynq.errors import TaskNotFoundError, UnknownTaskStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._broker.inspecting.actions import ArchiveLimits
    from pyasynq._broker.inspecting.pending_places import Hints
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Argument
    from pyasynq._redis.script import Script
    from pyasynq._wire.messages import TaskMessage

_FORGET_SECONDS: Final = 3_600
_DONE: Final = "done"
_CHANGED: Final = "changed"
_REPEATED: Final = 1
_LOST: Final = -1
_UNPLACED: Final = 2
_UNDONE: Final = (_LOST, _UNPLACED)


class ActStep(NamedTuple):
    """Operation and number of a step, by which Redis recognises a repeated call.

    Attributes:
        operation: id of the operation.
        number: number of the step, larger than that of every earlier step.
    """

    operation: str
    number: int


class Stepped(NamedTuple):
    """Result of a step.

    Attributes:
        done: number of tasks that were moved.
        refused: ids of the refused tasks, and the reason of each.
        trimmed: number of archived tasks that were deleted to make room.
        kept: bytes of messages that are kept for undoing.
        repeated: the step was made before, by a process that has died; this is its reply.
        lost: another process has made a later step of the operation (fencing); nothing was done.
        left: number of tasks at the end of the step that are left for the next one, to keep this one short.
        unplaced: a pending task was not found by the hints; nothing was done, and the step may be made again.
    """

    done: int = 0
    refused: dict[str, str] = {}  # noqa: RUF012 - never changed
    trimmed: int = 0
    kept: int = 0
    repeated: bool = False
    lost: bool = False
    left: int = 0
    unplaced: bool = False


def run_step(
    step: ActStep, queue: str, ids: Sequence[str], from_state: str, *, now: Instant
) -> Plan[Stepped]:
    """Put tasks at the end of their queue, as an idempotent step."""
    keys = queue_keys(queue)
    head = (FIRST_SEND, keys.task_prefix, keys.group_prefix, from_state)
    call_keys, args = (*keys.places, keys.limits), (*head, *time_arguments(now), *ids)
    mark, reply = yield from take_step(step, keys, INSPECT_RUN, call_keys, args)
    return stepped(mark, *reply)


def archive_step(
    step: ActStep,
    queue: str,
    ids: Sequence[str],
    from_state: str,
    *,
    limits: ArchiveLimits,
    now: Instant,
    hints: Hints = NO_HINTS,
) -> Plan[Stepped]:
    """Archive tasks, and delete old archived tasks beyond the limits, as an idempotent step.

    The result is `unplaced` if a pending task is not at the place in its list that the hints give.
    Then nothing was archived, and the step may be made again.
    """
    keys = queue_keys(queue)
    head = (FIRST_SEND, keys.task_prefix, keys.group_prefix, from_state)
    args: tuple[Argument, ...] = (*head, *limits, *time_arguments(now), *hints, *ids)
    mark, reply = yield from take_step(step, keys, INSPECT_ARCHIVE, keys.places, args)
    if mark in _UNDONE:
        return stepped(mark)
    trimmed = yield from trim_rest(keys, reply, max_size=limits.max_size, cutoff=limits.cutoff)
    done, refused, told = reply[2:]
    yield from try_deliver_endings(queue, read_endings(told), now=now)
    return stepped(mark, done, refused)._replace(trimmed=trimmed)


def delete_step(
    step: ActStep, queue: str, ids: Sequence[str], from_state: str, *, hints: Hints = NO_HINTS
) -> Plan[Stepped]:
    """Delete tasks for good, with the locks that they own.

    The result is `unplaced` if a pending task is not at the place that the hints give, as in `archive_step`.
    """
    keys = queue_keys(queue)
    head = (FIRST_SEND, keys.task_prefix, keys.group_prefix, from_state, 0)
    args: tuple[Argument, ...] = (*head, *hints, *ids)
    mark, reply = yield from take_step(step, keys, INSPECT_DELETE, keys.places, args)
    if mark in _UNDONE:
        return stepped(mark)
    yield from release_locks_of_grouped(keys, reply[2])
    yield from try_deliver_endings(queue, read_endings(reply[3]))
    return stepped(mark, *reply[:2])


def set_aside_step(
    step: ActStep, queue: str, ids: Sequence[str], from_state: str, *, hints: Hints = NO_HINTS
) -> Plan[Stepped]:
    """Delete tasks so that `undo_step` can restore them within a day.

    The result is `unplaced` if a pending task is not at the place that the hints give, as in `archive_step`.
    """
    keys = queue_keys(queue)
    gone = keys.gone(step.operation)
    prefixes = (keys.task_prefix, keys.group_prefix, gone + ":")
    args: tuple[Argument, ...] = (*prefixes, from_state, UNDO_SECONDS, *hints, *ids)
    mark, reply = yield from take_step(step, keys, OPERATE_DELETE, (*keys.places, gone), args)
    if mark in _UNDONE:
        return stepped(mark)
    yield from try_deliver_endings(queue, read_endings(reply[3]))
    return stepped(mark, *reply[:2])._replace(kept=reply[2])


def undo_step(step: ActStep, queue: str, ids: Sequence[str], operation: str) -> Plan[Stepped]:
    """Put back tasks that an operation has deleted; the last deleted ones come first in `ids`."""
    keys = queue_keys(queue)
    gone = keys.gone(operation)
    sets = (keys.scheduled, keys.retry, keys.archived, keys.completed)
    args: tuple[Argument, ...] = (keys.task_prefix, keys.group_prefix, gone + ":", MOST_WALKED, *ids)
    call_keys = (keys.pending, *sets, keys.groups, gone)
    mark, reply = yield from take_step(step, keys, OPERATE_UNDO, call_keys, args)
    if mark in _UNDONE:
        return stepped(mark)
    return stepped(mark, *reply[:2])._replace(left=reply[2])


def reschedule_step(
    step: ActStep, queue: str, times: Sequence[tuple[str, int]], *, now: Instant
) -> Plan[Stepped]:
    """Set the second at which each of some tasks is due, as an idempotent step."""
    keys = queue_keys(queue)
    pairs: list[Argument] = [argument for pair in times for argument in pair]
    args = (keys.task_prefix, *time_arguments(now), *pairs)
    call_keys = (keys.scheduled, keys.retry, keys.archived)
    mark, refused = yield from take_step(step, keys, INSPECT_RESCHEDULE, call_keys, args)
    return stepped(mark, len(times) - len(refused) // 2, refused)


def edit_task(queue: str, task_id: str, edit: Callable[[TaskMessage], None]) -> Plan[str]:
    """Change the message of a scheduled, retry or archived task with `edit`.

    Return the reason why it was not changed; empty if it was. An edit may be repeated: the second call
    changes nothing (idempotent).
    """
    key = queue_keys(queue).task(task_id)
    outcome = _CHANGED
    # Another program may change the task between the read and the write; then it is read again.
    while outcome == _CHANGED:
        try:
            seen = (yield from get_task(queue, task_id)).message
            message = decode_task_message(seen)
        except TaskNotFoundError:
            return MISSING
        except (UndecodableMessageError, UnknownTaskStateError):
            return "undecodable"
        edit(message)
        args = (task_id, seen, encode_task_message(message), "")
        outcome = (yield ScriptCall(INSPECT_REWRITE, (key,), args, Replay.SAFE)).decode("utf-8", "replace")
    return "" if outcome == _DONE else outcome


def read_step(operation: str, queue: str) -> Plan[int]:
    """Return the number of the last step that an operation has made in a queue; 0 for none."""
    ledger = queue_keys(queue).step(operation)
    return parse_number((yield CommandCall(("HGET", ledger, "number"), ledger, Replay.SAFE)))


def forget_steps(operation: str, queue: str) -> Plan[None]:
    """Let the ledger of an ended operation, the hash of its last replies, expire in an hour.

    Until then it refuses steps of suspended processes that do not know that they lost the operation.
    """
    ledger = queue_keys(queue).step(operation)
    yield CommandCall(("EXPIRE", ledger, _FORGET_SECONDS), ledger, Replay.SAFE)


def read_restorable(operation: str, queue: str) -> Plan[list[tuple[int, str]]]:
    """Read the undo records: return the deleted tasks that can be restored, the last deleted one first.

    Each is a pair: the number of its deletion, from 1 within the operation and the queue, and its id.
    """
    gone = queue_keys(queue).gone(operation)
    numbers: dict[str, int] = {}
    cursor: bytes | int = b"0"
    while True:
        command = ("HSCAN", gone, cursor, "COUNT", 1_000)
        cursor, found = yield CommandCall(command, gone, Replay.SAFE)
        for task_id, way in zip(found[::2], found[1::2], strict=True):
            number = way.partition(b" ")[0]
            numbers[decode_name(task_id)] = int(number) if number.isdigit() else 0
        if int(cursor) == 0:
            return sorted(((number, task_id) for task_id, number in numbers.items()), reverse=True)


def take_step(
    step: ActStep, keys: QueueKeys, script: Script, call_keys: tuple[str, ...], args: tuple[Argument, ...]
) -> Plan[tuple[int, Any]]:
    """Run a script as a step; return its mark (run now, repeated or lost), for `stepped`, and its reply."""
    more = (step.number, OPERATION_SECONDS)
    # The ledger recognises a call that is sent again.
    call = ScriptCall(as_step(script), (keys.step(step.operation), *call_keys), (*args, *more), Replay.SAFE)
    mark, reply = yield call
    return mark, reply


def stepped(mark: int, done: int = 0, refused: Sequence[bytes] = ()) -> Stepped:
    """Decode the mark of a step and its reply: number of tasks done, and the refused ids with reasons."""
    if mark in _UNDONE:
        return Stepped(lost=mark == _LOST, unplaced=mark == _UNPLACED)
    return Stepped(done, decode_refusals(refused), repeated=mark == _REPEATED)
