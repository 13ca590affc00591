"""Leases: renewing them while a task runs, and recovering the tasks of dead workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.arguments import FIRST_SEND, MAX_TASKS, chunks, time_arguments
from pyasynq._broker.scripts import (
    LEASE_ARCHIVE_POISON,
    LEASE_BEGIN,
    LEASE_LIST_EXPIRED,
    LEASE_RECOVER,
    LEASE_RENEW,
    LEASE_SCAN_ACTIVE,
)
from pyasynq._broker.settle import (
    ArchiveTask,
    Claim,
    Settled,
    add_reply,
    counters,
    read_ids,
    settle_archive,
    statistics_end,
    trim_rest,
)
from pyasynq._broker.stored import decode_name, whole_second
from pyasynq._broker.verdicts import is_leased
from pyasynq._clock import Instant
from pyasynq._redis.plan import Plan, Replay, Reply, ScriptCall
from pyasynq._wire.constants import LEASE_GRACE_SECONDS, LEASE_SECONDS, TaskField
from pyasynq._wire.history import NO_HISTORY, HistoryEntry
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

OWN_SLACK_SECONDS = 5
"""Grace period in seconds, from the end of the lease to the recovery of a pyasynq worker's task."""


CONFIRMED_BEGIN = "+"
"""Token suffix of servers that record starts of handlers in Redis.

Such a server records the start of a handler if one crash archives its task (`crash_limit`).
"""


RAN_ALONE = "!"
"""Marker in the token of an attempt that runs alone in its process.

The marker is void once the field `x:begun` has the token: other tasks may run in the process then.
"""


class Renewed(NamedTuple):
    """The result of renewing leases.

    Attributes:
        lease_score: Unix time at which the renewed leases end.
        redis_now: Redis' time of the renewal.
        lost: ids of tasks that we do not own any more.
    """

    lease_score: int
    redis_now: Instant
    lost: list[str]


class ExpiredTask(NamedTuple):
    """An active task whose worker seems to be dead.

    Attributes:
        id: the task's id.
        message: the bytes of its message; empty for an id without a task, which `recover` drops.
        crashes: number of earlier worker crashes during this task.
        token: token of the attempt that held the task; empty for a Go worker.
        lease_score: Unix time at which its lease ended; None if it has none.
        begun: token of the last attempt whose start is recorded in Redis; empty if no start is recorded. For
            an attempt that runs alone in its process, it is recorded before other tasks may start there.
        lapses: number of leases of this task that have ended without a sign of the worker that had it.
        extended: token of the last attempt whose remote worker has extended its lease; empty for none.
    """

    id: str
    message: bytes
    crashes: int
    token: str
    lease_score: int | None
    begun: str = ""
    lapses: int = 0
    extended: str = ""

    @property
    def was_unanswered(self) -> bool:
        """Whether the task was leased to a remote worker that has never extended its lease.

        The worker may have lost its connection before it had the whole answer, so this does not prove a
        crash.
        """
        return is_leased(self.token) and self.extended != self.token

    @property
    def was_only_taken(self) -> bool:
        """Whether the server records starts of handlers (`CONFIRMED_BEGIN`), but not that of this attempt.

        If one crash archives the task, its handler was not started: the task was only prefetched.
        """
        return self.token.endswith(CONFIRMED_BEGIN) and self.begun != self.token

    @property
    def ran_alone(self) -> bool:
        """Whether the attempt ran alone in its process when the worker died, so that it caused the crash."""
        return RAN_ALONE in self.token and self.begun != self.token


class RecoverTask(NamedTuple):
    """A task to recover, if token and lease are still those that were seen (compare-and-set).

    Attributes:
        history_entry: JSON of the attempt, for the task's history; empty for none.
        has_lapsed: True counts a lapsed lease in the task, False counts a worker crash.
    """

    id: str
    token: str
    lease_score: int | None
    history_entry: HistoryEntry = NO_HISTORY
    has_lapsed: bool = False


class Recovered(NamedTuple):
    """A recovered task, which is pending again, with its number of worker crashes or of lapsed leases."""

    id: str
    losses: int


class PoisonTask(NamedTuple):
    """A poison task, which crashed its workers; archived if token and lease are unchanged (compare-and-set).

    An empty message leaves the stored message unchanged. `archived_at` is Unix time. `history_entry` is as in
    `RecoverTask`.
    """

    id: str
    token: str
    lease_score: int | None
    message: bytes
    archived_at: int
    trace: bytes
    history_entry: HistoryEntry = NO_HISTORY


def confirm_begin(queue: str, task_id: str, token: str) -> Plan[bool]:
    """Record that an attempt's handler starts, or no longer runs alone; return False if it lost the task."""
    key = queue_keys(queue).task(task_id)
    return bool((yield ScriptCall(LEASE_BEGIN, (key,), (token, TaskField.BEGUN), Replay.SAFE)))


def confirm_extended(queue: str, task_id: str, token: str) -> Plan[bool]:
    """Record that a remote worker has extended its lease; return False if the attempt lost the task.

    The token is written into a separate field, because `x:begun` means that the attempt no longer runs alone.
    """
    key = queue_keys(queue).task(task_id)
    return bool((yield ScriptCall(LEASE_BEGIN, (key,), (token, TaskField.EXTENDED), Replay.SAFE)))


def renew(
    queue: str,
    claims: Sequence[Claim],
    *,
    lease_seconds: int = LEASE_SECONDS,
    now: Instant | None = None,
) -> Plan[Renewed]:
    """Renew leases: they end `lease_seconds` from now. Return the ids of tasks that we do not own any more.

    A lease that has vanished is written again if the task is still active with our token.
    """
    keys = queue_keys(queue)
    lost: list[str] = []
    lease_score, redis_now = 0, Instant(0)
    for chunk in chunks(claims, width=len(Claim._fields)):
        reply = yield ScriptCall(
            LEASE_RENEW,
            (keys.active, keys.lease),
            (
                FIRST_SEND,
                keys.task_prefix,
                lease_seconds,
                *time_arguments(now),
                *(argument for claim in chunk for argument in claim),
            ),
            Replay.BY_TOKEN,
        )
        # Leases of later chunks end later; all leases last at least until the first chunk's end.
        lease_score = lease_score or reply[0]
        redis_now = Instant(reply[1], reply[2])
        lost += read_ids(reply[3:])
    return Renewed(lease_score, redis_now, lost)


def list_expired(
    queue: str,
    *,
    own_slack: int = OWN_SLACK_SECONDS,
    foreign_slack: int = LEASE_GRACE_SECONDS,
    limit: int = MAX_TASKS,
    now: Instant | None = None,
) -> Plan[list[ExpiredTask]]:
    """Return up to `limit` active tasks whose lease ended long enough ago, the longest ago first.

    It must have ended `own_slack` seconds ago for tasks of pyasynq workers, `foreign_slack` seconds ago for
    tasks of Go workers.
    """
    keys = queue_keys(queue)
    found: list[ExpiredTask] = []
    start, looked_at = 0, MAX_TASKS
    # Leases of Go's tasks in their grace period come first in this order: read on to the due tasks of
    # pyasynq.
    while len(found) < limit and looked_at == MAX_TASKS:
        looked_at, *reply = yield ScriptCall(
            LEASE_LIST_EXPIRED,
            (keys.lease,),
            (keys.task_prefix, own_slack, foreign_slack, start, MAX_TASKS, *time_arguments(now)),
            Replay.SAFE,
        )
        found += _expired_tasks(reply)
        start += MAX_TASKS
    return found[:limit]


def list_unleased(queue: str) -> Plan[list[ExpiredTask]]:
    """Return the active tasks that have no lease now.

    A live worker may just be renewing it: the caller recovers only tasks that a second check returns too.
    """
    return [task for task in (yield from _scan_active(queue, "")) if task.lease_score is None]


def list_server_tasks(queue: str, *, server_id: str) -> Plan[list[ExpiredTask]]:
    """Return the active tasks that this server took; for the recovery of a server known to be dead."""
    return [task for task in (yield from _scan_active(queue, f"{server_id}/")) if task.token]


def _scan_active(queue: str, token_prefix: str) -> Plan[list[ExpiredTask]]:
    keys = queue_keys(queue)
    found: dict[str, ExpiredTask] = {}
    scanned = start = 0
    while start == 0 or scanned == MAX_TASKS:
        scanned, *reply = yield ScriptCall(
            LEASE_SCAN_ACTIVE,
            (keys.active, keys.lease),
            (keys.task_prefix, token_prefix, start, MAX_TASKS),
            Replay.SAFE,
        )
        # The list changes between two calls, so an id may come twice.
        found.update((task.id, task) for task in _expired_tasks(reply))
        start += MAX_TASKS
    return list(found.values())


def _expired_tasks(reply: Reply) -> list[ExpiredTask]:
    fields = iter(reply)
    return [
        ExpiredTask(
            decode_name(task_id),
            message,
            crashes,
            decode_name(token),
            whole_second(score) if score else None,
            decode_name(begun),
            lapses,
            decode_name(extended),
        )
        for task_id, message, crashes, token, score, begun, lapses, extended in zip(
            *[fields] * 8, strict=True
        )
    ]


def recover(
    queue: str,
    tasks: Sequence[RecoverTask],
    *,
    own_slack: int | None = OWN_SLACK_SECONDS,
    foreign_slack: int = LEASE_GRACE_SECONDS,
    now: Instant | None = None,
) -> Plan[list[Recovered]]:
    """Put tasks of lost workers back to the front of their queue, and count the crash or lapse in the task.

    Each is checked again in the same call: still active, token and lease unchanged, and the lease ended long
    enough ago. `own_slack` None skips that last check, for a worker known to be dead. Ids without a task
    are dropped. After a lost reply, tasks recovered by the first run are missing in the result.
    """
    keys = queue_keys(queue)
    recovered: list[Recovered] = []
    # The last chunk goes first: each call puts its tasks in front of the queue.
    for chunk in reversed(list(chunks(tasks, width=5))):
        reply = yield ScriptCall(
            LEASE_RECOVER,
            (keys.active, keys.lease, keys.pending, keys.verdicts),
            (
                keys.task_prefix,
                "" if own_slack is None else own_slack,
                foreign_slack,
                *time_arguments(now),
                *(
                    argument
                    for task in chunk
                    for argument in (
                        *_encode_seen(task),
                        task.history_entry,
                        TaskField.LAPSES if task.has_lapsed else TaskField.CRASHES,
                    )
                ),
            ),
            Replay.SAFE,
        )
        recovered += [
            Recovered(decode_name(task_id), losses)
            for task_id, losses in zip(reply[::2], reply[1::2], strict=True)
        ]
    return recovered


def archive_poison(
    queue: str,
    tasks: Sequence[PoisonTask],
    *,
    max_size: int,
    cutoff: int,
    own_slack: int | None = OWN_SLACK_SECONDS,
    foreign_slack: int = LEASE_GRACE_SECONDS,
    now: Instant | None = None,
) -> Plan[Settled]:
    """Archive poison tasks, with which too many workers have died, and count them as failed.

    They are checked again as in `recover`; `refused` has the ids of tasks that have a new owner. The archive
    is trimmed as by `settle_archive`.
    """
    keys = queue_keys(queue)
    settled = Settled(frozenset())
    for chunk in chunks(tasks, most=min(MAX_TASKS, max_size), width=8, size_of=_poison_size):
        today = Instant(chunk[0].archived_at)
        tail = [
            argument
            for task in chunk
            for argument in (
                *_encode_seen(task),
                task.message,
                task.archived_at,
                task.trace,
                task.history_entry,
                b"",
            )
        ]
        reply = yield ScriptCall(
            LEASE_ARCHIVE_POISON,
            (keys.active, keys.lease, keys.archived, *counters(keys, today), keys.verdicts),
            (
                keys.task_prefix,
                "" if own_slack is None else own_slack,
                foreign_slack,
                *time_arguments(now),
                statistics_end(today),
                max_size,
                cutoff,
                *tail,
            ),
            Replay.SAFE,
        )
        trimmed = yield from trim_rest(keys, reply, max_size=max_size, cutoff=cutoff)
        settled = add_reply(settled, reply[2:], trimmed)
    return settled


def _poison_size(task: PoisonTask) -> int:
    return len(task.message) + len(task.trace) + len(task.history_entry)


def _encode_seen(task: RecoverTask | PoisonTask) -> tuple[str, str, int | str]:
    return task.id, task.token, "" if task.lease_score is None else task.lease_score


def quarantine(
    queue: str,
    claim: Claim,
    *,
    reason: str,
    max_size: int,
    cutoff: int,
    now: Instant,
) -> Plan[Settled]:
    """Archive an active task whose message cannot be decoded.

    Its bytes stay; the reason is stored in place of a traceback.
    """
    trace = reason.encode(errors="replace")
    task = ArchiveTask(claim, message=b"", archived_at=now.ceiling, trace=trace)
    return (yield from settle_archive(queue, [task], max_size=max_size, cutoff=cutoff, now=now))
