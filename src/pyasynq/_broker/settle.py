"""Settling: writing the outcomes of attempts, many at once, one call for each queue and kind.

Every settle first checks that the attempt still owns its task (fencing token). Ids of tasks that it does not
own any more come back as `Settled.refused`, and nothing was written for them. After a lost reply a call is
resent; tasks that its first run settled are not refused then.
A `note` is the verdict kept for leased attempts; all attempts of a call share it.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from pyasynq._broker.arguments import FIRST_SEND, MAX_TASKS, chunks, time_arguments
from pyasynq._broker.outbox import StoredEnding, read_endings
from pyasynq._broker.scripts import (
    TASK_ARCHIVE,
    TASK_COMPLETE,
    TASK_DONE,
    TASK_REQUEUE,
    TASK_RETRY,
    TASK_TRIM_ARCHIVED,
)
from pyasynq._broker.stored import decode_name
from pyasynq._broker.verdicts import NO_NOTE, VerdictNote
from pyasynq._redis.plan import Argument, CommandCall, Plan, Replay, Reply, ScriptCall, ask
from pyasynq._wire.constants import STATISTICS_SECONDS
from pyasynq._wire.history import NO_HISTORY, NO_PROGRESS, HistoryEntry, ProgressJson
from pyasynq._wire.keys import QueueKeys, queue_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyasynq._clock import Instant
    from pyasynq._redis.script import Script


class Claim(NamedTuple):
    """The proof that an attempt still owns its task.

    Attributes:
        id: the task's id.
        token: the token of the dequeue call that took it.
        lease_score: the latest lease end, Unix time, that this attempt has requested. A later one in Redis
            means that another worker has the task now. After a renewal whose reply was lost this is the
            latest score that the renewal may have set.
    """

    id: str
    token: str
    lease_score: int


class Claimant(Protocol):
    """Proof of ownership: a `Claim`, or an attempt, which is read late, because renewals move its lease."""

    @property
    def id(self) -> str:
        """The task's id."""

    @property
    def token(self) -> str:
        """The token of the dequeue call that took it."""

    @property
    def lease_score(self) -> int:
        """The latest lease end that was requested."""


class Finished(Claimant, Protocol):
    """A finished task that keeps nothing in Redis; a claim is all that settling it needs."""

    @property
    def unique_key(self) -> str:
        """The message's lock key, empty for none."""


class CompleteTask(NamedTuple):
    """A finished task, kept until `expires_at` (Unix time). A result of None keeps the stored result.

    `progress` is JSON; empty keeps the stored progress.
    """

    claim: Claim
    unique_key: str
    message: bytes
    expires_at: int
    result: bytes | None
    progress: ProgressJson = NO_PROGRESS


class RetryTask(NamedTuple):
    """A task to retry at `retry_at` (Unix time); only a failure counts in the statistics.

    Attributes:
        message: new message; empty keeps the stored message and its trace.
        trace: traceback of the error; empty for none.
        history_entry: JSON of the attempt, for the task's history; empty for none.
        progress: JSON; empty keeps the stored progress.
        unique_key: the message's lock key, empty for none.
    """

    claim: Claim
    message: bytes
    retry_at: int
    is_failure: bool
    trace: bytes
    history_entry: HistoryEntry = NO_HISTORY
    progress: ProgressJson = NO_PROGRESS
    unique_key: str = ""


class ArchiveTask(NamedTuple):
    """A task that failed for good at `archived_at` (Unix time); the rest is as in `RetryTask`."""

    claim: Claim
    message: bytes
    archived_at: int
    trace: bytes
    history_entry: HistoryEntry = NO_HISTORY
    progress: ProgressJson = NO_PROGRESS


class RequeueTask(NamedTuple):
    """An unfinished task, to return to the front of its queue as if it had not been taken.

    `history_entry` is JSON of the attempt if its worker crashed: the crash is counted, and the JSON is added
    to the task's history. Empty otherwise.
    """

    claim: Claim
    history_entry: HistoryEntry = NO_HISTORY


class Settled(NamedTuple):
    """The result of settling attempts.

    Attributes:
        refused: ids of tasks that we did not own any more; nothing was written for them.
        trimmed: number of archived tasks deleted because of the archive's size or age.
        endings: ends of the tasks that have a callback.
    """

    refused: frozenset[str]
    trimmed: int = 0
    endings: tuple[StoredEnding, ...] = ()


_T = TypeVar("_T")


_NOTHING_REFUSED: Final = Settled(frozenset())


def settle_done(
    queue: str,
    tasks: Sequence[Finished],
    *,
    now: Instant,
    note: VerdictNote = NO_NOTE,
    outcome: str = "succeeded",
) -> Plan[Settled]:
    """Delete finished tasks, release the locks they own, and count them as processed.

    Completion callbacks get the `outcome`.
    """
    keys = queue_keys(queue)
    return (
        yield from _settle(
            TASK_DONE,
            (
                keys.active,
                keys.lease,
                keys.processed,
                keys.processed_on(now.to_datetime()),
                keys.verdicts,
                keys.callbacks,
            ),
            (keys.task_prefix, str(statistics_end(now)), *_note(note), outcome),
            tasks,
            _done_arguments,
            width=4,
        )
    )


def settle_complete(
    queue: str, tasks: Sequence[CompleteTask], *, now: Instant, note: VerdictNote = NO_NOTE
) -> Plan[Settled]:
    """Keep finished tasks until their retention ends.

    Release the locks they own and count them as processed.
    """
    keys = queue_keys(queue)
    return (
        yield from _settle(
            TASK_COMPLETE,
            (
                keys.active,
                keys.lease,
                keys.completed,
                keys.processed,
                keys.processed_on(now.to_datetime()),
                keys.verdicts,
                keys.callbacks,
            ),
            (keys.task_prefix, statistics_end(now), *_note(note)),
            tasks,
            _for_each(_complete_arguments),
            width=9,
            size_of=lambda task: len(task.message) + len(task.result or b""),
        )
    )


def settle_retry(
    queue: str, tasks: Sequence[RetryTask], *, now: Instant, note: VerdictNote = NO_NOTE
) -> Plan[Settled]:
    """Move tasks to `retry` until they are due; count the failures among them.

    A lock that a task owns is prolonged until the retry, and then for as long as it was requested.
    """
    keys = queue_keys(queue)
    return (
        yield from _settle(
            TASK_RETRY,
            (keys.active, keys.lease, keys.retry, *counters(keys, now), keys.verdicts),
            (keys.task_prefix, statistics_end(now), *time_arguments(now), *_note(note)),
            tasks,
            _for_each(_retry_arguments),
            width=10,
            size_of=_failure_size,
        )
    )


def settle_archive(
    queue: str,
    tasks: Sequence[ArchiveTask],
    *,
    max_size: int,
    cutoff: int,
    now: Instant,
    note: VerdictNote = NO_NOTE,
) -> Plan[Settled]:
    """Archive tasks and count them as failed.

    Before that, delete archived tasks from `cutoff` (Unix time) or before, and the oldest ones beyond
    `max_size`, with the locks they own.
    """
    keys = queue_keys(queue)
    settled = _NOTHING_REFUSED
    for chunk in chunks(tasks, most=min(MAX_TASKS, max_size), width=8, size_of=_failure_size):
        tail = [argument for task in chunk for argument in _archive_arguments(task)]
        reply = yield ScriptCall(
            TASK_ARCHIVE,
            (
                keys.active,
                keys.lease,
                keys.archived,
                *counters(keys, now),
                keys.verdicts,
                keys.callbacks,
            ),
            (FIRST_SEND, keys.task_prefix, statistics_end(now), max_size, cutoff, *_note(note), *tail),
            Replay.BY_TOKEN,
        )
        trimmed = yield from trim_rest(keys, reply, max_size=max_size, cutoff=cutoff)
        settled = add_reply(settled, reply[2:], trimmed)
    return settled


def settle_requeue(
    queue: str, tasks: Sequence[RequeueTask], *, now: Instant | None, note: VerdictNote = NO_NOTE
) -> Plan[Settled]:
    """Put unfinished tasks back to the front of their queue; the first one will be taken first.

    Only crashes are counted, and the messages stay as they are.
    """
    keys = queue_keys(queue)
    refused: frozenset[str] = frozenset()
    # The last chunk goes first: each call puts its tasks in front of the queue.
    for chunk in reversed(list(chunks(tasks, width=4, size_of=_crash_size))):
        settled = yield from _settle(
            TASK_REQUEUE,
            (keys.active, keys.lease, keys.pending, keys.verdicts),
            (keys.task_prefix, *time_arguments(now), *_note(note)),
            chunk,
            _for_each(_requeue_arguments),
            width=4,
            size_of=_crash_size,
        )
        refused |= settled.refused
    return Settled(refused)


def probe(queue: str) -> Plan[None]:
    """Send a small command to the server of a queue, to check that it answers."""
    key = queue_keys(queue).pending
    yield CommandCall(("EXISTS", key), key, Replay.SAFE)


def count_active_and_leases(queue: str) -> list[Plan[int]]:
    """Return plans that count the active tasks and leases of a queue: they fail if a key has a wrong type."""
    keys = queue_keys(queue)
    commands = (("LLEN", keys.active), ("ZCARD", keys.lease))
    return [ask(CommandCall(command, command[1], Replay.SAFE)) for command in commands]


def trim_rest(keys: QueueKeys, reply: Reply, *, max_size: int, cutoff: int) -> Plan[int]:
    """Delete the archived tasks that the first call left to trim; return the total number of deleted tasks.

    `reply` begins with the number of tasks that the first call deleted, and 1 if there are more to delete. A
    call deletes at most 1,000.
    """
    trimmed, more = reply[:2]
    while more:
        just_trimmed, more = yield ScriptCall(
            TASK_TRIM_ARCHIVED,
            (keys.archived,),
            (keys.task_prefix, max_size, cutoff),
            Replay.SAFE,
        )
        trimmed += just_trimmed
    return int(trimmed)


def counters(keys: QueueKeys, now: Instant) -> tuple[str, str, str, str]:
    """Return the keys of the counters that a failure increments: processed and failed, in total and today."""
    day = now.to_datetime()
    return keys.processed, keys.processed_on(day), keys.failed, keys.failed_on(day)


def statistics_end(now: Instant) -> int:
    """Return the Unix time at which today's counters expire."""
    return now.seconds + STATISTICS_SECONDS


def add_reply(settled: Settled, reply: Reply, trimmed: int = 0) -> Settled:
    """Add a script's reply: ids of refused tasks, then address and entry of each task with a callback."""
    if not reply:
        return settled._replace(trimmed=settled.trimmed + trimmed)
    refused = read_ids([one for one in reply if isinstance(one, bytes)])
    endings = read_endings([one for one in reply if not isinstance(one, bytes)])
    return Settled(settled.refused.union(refused), settled.trimmed + trimmed, (*settled.endings, *endings))


def read_ids(reply: Sequence[bytes]) -> list[str]:
    """Decode the task ids in a reply to text."""
    return [decode_name(task_id) for task_id in reply]


def _settle(
    script: Script,
    keys: tuple[str, ...],
    head: tuple[Argument, ...],
    tasks: Sequence[_T],
    arguments_of: Callable[[Sequence[_T]], Iterable[Argument]],
    *,
    width: int,
    size_of: Callable[[_T], int] | None = None,
) -> Plan[Settled]:
    settled = _NOTHING_REFUSED
    for chunk in chunks(tasks, width=width, size_of=size_of):
        args = (FIRST_SEND, *head, *arguments_of(chunk))
        reply = yield ScriptCall(script, keys, args, Replay.BY_TOKEN)
        if reply:
            settled = add_reply(settled, reply)
    return settled


def _note(note: VerdictNote) -> tuple[Argument, Argument]:
    return note.verdict, note.forget_at


def _claim(claim: Claim) -> tuple[Argument, Argument, Argument]:
    return claim.id, claim.token, claim.lease_score


def _for_each(
    arguments_of: Callable[[_T], Iterable[Argument]],
) -> Callable[[Sequence[_T]], Iterable[Argument]]:
    return lambda tasks: chain.from_iterable(map(arguments_of, tasks))


def _done_arguments(tasks: Sequence[Finished]) -> Iterable[Argument]:
    # One loop instead of a call for each task, which would cost 2 % of a drain.
    arguments: list[Argument] = []
    score, score_text = 0, "0"
    for task in tasks:
        # Tasks of one dequeue call have the same score.
        if task.lease_score != score:
            score = task.lease_score
            score_text = str(score)
        arguments += (task.id, task.token, score_text, task.unique_key)
    return arguments


def _complete_arguments(task: CompleteTask) -> tuple[Argument, ...]:
    has_result = task.result is not None
    result = task.result or b""
    return (
        *_claim(task.claim),
        task.unique_key,
        task.message,
        task.expires_at,
        int(has_result),
        result,
        task.progress,
    )


def _retry_arguments(task: RetryTask) -> tuple[Argument, ...]:
    return (
        *_claim(task.claim),
        task.message,
        task.retry_at,
        int(task.is_failure),
        task.trace,
        task.history_entry,
        task.progress,
        task.unique_key,
    )


def _archive_arguments(task: ArchiveTask) -> tuple[Argument, ...]:
    return (
        *_claim(task.claim),
        task.message,
        task.archived_at,
        task.trace,
        task.history_entry,
        task.progress,
    )


def _requeue_arguments(task: RequeueTask) -> tuple[Argument, ...]:
    return *_claim(task.claim), task.history_entry


def _crash_size(task: RequeueTask) -> int:
    return len(task.history_entry)


def _failure_size(task: RetryTask | ArchiveTask) -> int:
    return len(task.message) + len(task.trace) + len(task.history_entry)
