"""Unconfirmed outcomes, batches of them, and the plans that write the batches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker import settle
from pyasynq._broker.order import retry_in_order
from pyasynq._broker.settle import Claim
from pyasynq._broker.verdicts import make_note
from pyasynq._checks import parse_seconds
from pyasynq._engine.run.outcome import DONE
from pyasynq._engine.run.settle_record import NOTHING
from pyasynq.errors import PyasynqError, RedisReplyError, RedisValueTooLargeError, ReplyLostError
from pyasynq.events import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyasynq._background.redis_time import RedisTime
    from pyasynq._broker.settle import Settled
    from pyasynq._broker.verdicts import Verdict
    from pyasynq._clock import Clock
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.run.outcome import Action, Decision
    from pyasynq._engine.run.settle_record import SettleRecord
    from pyasynq._redis.plan import Plan
    from pyasynq.config import ServerConfig

SUSPECT_BYTES: Final = 65_536
"""Size in bytes from which a call may be the reason that a connection broke."""


class Entry:
    """One unconfirmed outcome. Written by the settle queue only.

    Attributes:
        sent: whether a call with it may have taken effect; then a refusal means that it did.
        blamed: whether it may have caused its last error; it is sent alone from then on.
        refusals: number of times that it was sent alone and refused, while Redis answered other calls.
        refused_at: monotonic time of the last refusal.
        final: whether it is the smallest outcome, so that none can be written in its place.
    """

    __slots__ = ("attempt", "blamed", "decision", "final", "record", "refusals", "refused_at", "sent")

    def __init__(
        self, attempt: Attempt, decision: Decision, record: SettleRecord, *, final: bool = False
    ) -> None:
        self.attempt = attempt
        self.decision = decision
        self.record = record
        self.sent = False
        self.blamed = False
        self.refusals = 0
        self.refused_at = -math.inf
        self.final = final

    @property
    def claim(self) -> Claim:
        """The current proof of ownership: the heartbeat extends the lease."""
        return Claim(self.attempt.id, self.attempt.token, self.attempt.lease_score)

    @property
    def size(self) -> int:
        """Bytes to write."""
        return sum(map(len, self.record)) + len(self.decision.result or b"")

    def may_be_blamed(self, error: Exception) -> bool:
        """Return whether this outcome may have caused an error, rather than Redis or the network.

        True for an error reply of Redis, and for an exception that is not a `PyasynqError`. For a lost
        reply, true only of a large outcome: a server or a proxy may close the connection because of it.
        """
        if isinstance(error, ReplyLostError):
            return self.size >= SUSPECT_BYTES
        # Other subclasses, such as a full Redis, a missing right or a timeout, are temporary.
        return isinstance(error, RedisReplyError) or not isinstance(error, PyasynqError)


def is_final(error: Exception) -> bool:
    """Return whether Redis will never accept what was sent."""
    return isinstance(error, RedisValueTooLargeError)


class Batch(NamedTuple):
    """Outcomes of one queue and one kind, and the plan that writes them.

    Attributes:
        entries: the outcomes. It is empty in the fast path, for first writes of attempts that succeeded and
            keep nothing in Redis.
        in_steps: whether the plan takes several calls, so that concurrent calls see intermediate states.
    """

    queue: str
    attempts: Sequence[Attempt]
    plan: Plan[Settled]
    entries: Sequence[Entry] = ()
    in_steps: bool = False

    @property
    def puts_back(self) -> bool:
        """Whether the batch makes its tasks pending again."""
        return bool(self.entries) and self.entries[0].decision.action == "requeue"


def done_entries(attempts: Iterable[Attempt]) -> list[Entry]:
    """Return an outcome for each attempt that succeeded and keeps nothing in Redis (done)."""
    return [Entry(attempt, DONE, NOTHING) for attempt in attempts]


class BatchMaker:
    """Groups outcomes into batches by queue and kind.

    Attributes:
        is_ordered: returns whether a queue is ordered; its retries are written one after another.
    """

    def __init__(self, config: ServerConfig, clock: Clock, redis_time: RedisTime) -> None:
        self._archive_max_size = config.archive_max_size
        self._archive_max_age = int(parse_seconds("archive_max_age", config.archive_max_age))
        self._clock = clock
        self._redis_time = redis_time
        self.is_ordered: Callable[[str], bool] = lambda _queue: False

    def together(self, entries: Iterable[Entry]) -> list[Batch]:
        """Return one batch for each queue, kind of outcome and verdict.

        Revoked tasks have batches of their own: completion callbacks get the outcome of the batch.
        """
        groups: dict[tuple[str, Action, bool, Verdict | None], list[Entry]] = {}
        for entry in entries:
            is_revoked = entry.decision.outcome is Outcome.REVOKED
            kind = entry.attempt.queue, entry.decision.action, is_revoked, entry.attempt.verdict
            group = groups.get(kind)
            if group is None:
                groups[kind] = [entry]
            else:
                group.append(entry)
        return [self._make_batch(queue, group) for (queue, *_), group in groups.items()]

    def alone(self, entries: Iterable[Entry]) -> list[Batch]:
        """Return one batch for each outcome."""
        return [self._make_batch(entry.attempt.queue, [entry]) for entry in entries]

    def _make_batch(self, queue: str, entries: Sequence[Entry]) -> Batch:
        attempts = [entry.attempt for entry in entries]
        if entries[0].decision.action in {"retry", "snooze"} and self.is_ordered(queue):
            tasks = [_retry(entry) for entry in entries]
            now, redis_now = self._redis_time.now(), self._clock.redis_now()
            note = make_note(attempts[0].verdict, now)
            plan = retry_in_order(queue, tasks, now=now, redis_now=redis_now, note=note)
            return Batch(queue, attempts, plan, entries, in_steps=True)
        return Batch(queue, attempts, self._plan(queue, attempts, entries), entries)

    def _plan(self, queue: str, attempts: Sequence[Attempt], entries: Sequence[Entry]) -> Plan[Settled]:
        now = self._redis_time.now()
        note = make_note(attempts[0].verdict, now)
        action = entries[0].decision.action
        if action == "done":
            outcome = "cancelled" if entries[0].decision.outcome is Outcome.REVOKED else "succeeded"
            return settle.settle_done(queue, attempts, now=now, note=note, outcome=outcome)
        if action == "complete":
            return settle.settle_complete(queue, [_complete(entry) for entry in entries], now=now, note=note)
        if action in {"retry", "snooze"}:
            return settle.settle_retry(queue, [_retry(entry) for entry in entries], now=now, note=note)
        if action == "requeue":
            tasks = [_requeue(entry) for entry in entries]
            return settle.settle_requeue(queue, tasks, now=self._clock.redis_now(), note=note)
        return settle.settle_archive(
            queue,
            [_archive(entry) for entry in entries],
            max_size=self._archive_max_size,
            cutoff=now.seconds - self._archive_max_age,
            now=now,
            note=note,
        )


def _complete(entry: Entry) -> settle.CompleteTask:
    return settle.CompleteTask(
        entry.claim,
        unique_key=entry.attempt.message.unique_key,
        message=entry.record.message,
        expires_at=entry.decision.due_at,
        result=entry.decision.result,
        progress=entry.record.progress,
    )


def _retry(entry: Entry) -> settle.RetryTask:
    return settle.RetryTask(
        entry.claim,
        message=entry.record.message,
        retry_at=entry.decision.due_at,
        is_failure=entry.decision.is_failure,
        trace=entry.record.trace,
        history_entry=entry.record.history_entry,
        progress=entry.record.progress,
        unique_key=entry.attempt.message.unique_key,
    )


def _requeue(entry: Entry) -> settle.RequeueTask:
    return settle.RequeueTask(entry.claim, history_entry=entry.record.history_entry)


def _archive(entry: Entry) -> settle.ArchiveTask:
    return settle.ArchiveTask(
        entry.claim,
        message=entry.record.message,
        archived_at=entry.decision.at.seconds,
        trace=entry.record.trace,
        history_entry=entry.record.history_entry,
        progress=entry.record.progress,
    )
