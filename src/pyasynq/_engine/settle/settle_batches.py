"""Batches of outcomes, and the plans that write them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker import settle
from pyasynq._broker.order import retry_in_order
from pyasynq._broker.verdicts import make_note
from pyasynq._checks import seconds_of
from pyasynq._engine.run.outcome import Archive, Complete, Decision, Done, Requeue, Retry, Snooze
from pyasynq._engine.settle.settle_entry import Batch, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyasynq._background.redis_time import RedisTime
    from pyasynq._broker.settle import Settled
    from pyasynq._broker.verdicts import Verdict
    from pyasynq._clock import Clock
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._redis.plan import Plan
    from pyasynq.config import ServerConfig


class BatchMaker:
    """Makes batches of outcomes, by queue and kind.

    Attributes:
        is_ordered: returns whether a queue is ordered; its retries are written one after another.
    """

    def __init__(self, config: ServerConfig, clock: Clock, redis_time: RedisTime) -> None:
        self._archive_max_size = config.archive_max_size
        self._archive_max_age = int(seconds_of("archive_max_age", config.archive_max_age))
        self._clock = clock
        self._redis_time = redis_time
        self.is_ordered: Callable[[str], bool] = lambda _queue: False

    def together(self, entries: Iterable[Entry]) -> list[Batch]:
        """Return one batch for each queue, kind and verdict."""
        groups: dict[tuple[str, type[Decision], Verdict | None], list[Entry]] = {}
        for entry in entries:
            kind = entry.attempt.queue, type(entry.decision), entry.attempt.verdict
            group = groups.get(kind)
            if group is None:
                groups[kind] = [entry]
            else:
                group.append(entry)
        return [self._batch(queue, group) for (queue, _, _), group in groups.items()]

    def alone(self, entries: Iterable[Entry]) -> list[Batch]:
        """Return one batch for each outcome."""
        return [self._batch(entry.attempt.queue, [entry]) for entry in entries]

    def _batch(self, queue: str, entries: Sequence[Entry]) -> Batch:
        attempts = [entry.attempt for entry in entries]
        if isinstance(entries[0].decision, Retry | Snooze) and self.is_ordered(queue):
            tasks = [_retry(entry) for entry in entries]
            now, redis_now = self._redis_time.now(), self._clock.redis_now()
            note = make_note(attempts[0].verdict, now)
            plan = retry_in_order(queue, tasks, now=now, redis_now=redis_now, note=note)
            return Batch(queue, attempts, plan, entries, in_steps=True)
        return Batch(queue, attempts, self._plan(queue, attempts, entries), entries)

    def _plan(self, queue: str, attempts: Sequence[Attempt], entries: Sequence[Entry]) -> Plan[Settled]:
        now = self._redis_time.now()
        note = make_note(attempts[0].verdict, now)
        kind = type(entries[0].decision)
        if kind is Done:
            return settle.settle_done(queue, attempts, now=now, note=note)
        if kind is Complete:
            return settle.settle_complete(queue, [_complete(entry) for entry in entries], now=now, note=note)
        if kind is Retry or kind is Snooze:
            return settle.settle_retry(queue, [_retry(entry) for entry in entries], now=now, note=note)
        if kind is Requeue:
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
    decision, written = entry.decision, entry.written
    assert isinstance(decision, Complete)  # noqa: S101 - the groups are of one kind each
    return settle.CompleteTask(
        entry.claim,
        unique_key=entry.attempt.message.unique_key,
        message=written.message,
        expires_at=decision.expires_at,
        result=decision.result,
        progress=written.progress,
    )


def _retry(entry: Entry) -> settle.RetryTask:
    decision, written = entry.decision, entry.written
    if isinstance(decision, Snooze):
        return settle.RetryTask(
            entry.claim,
            message=b"",
            retry_at=decision.due_at,
            is_failure=False,
            trace=b"",
            history_entry=written.history_entry,
            progress=written.progress,
            unique_key=entry.attempt.message.unique_key,
        )
    assert isinstance(decision, Retry)  # noqa: S101 - the groups are of one kind each
    return settle.RetryTask(
        entry.claim,
        message=written.message,
        retry_at=decision.retry_at,
        is_failure=decision.is_failure,
        trace=written.trace,
        history_entry=written.history_entry,
        progress=written.progress,
        unique_key=entry.attempt.message.unique_key,
    )


def _requeue(entry: Entry) -> settle.RequeueTask:
    return settle.RequeueTask(entry.claim, history_entry=entry.written.history_entry)


def _archive(entry: Entry) -> settle.ArchiveTask:
    decision, written = entry.decision, entry.written
    assert isinstance(decision, Archive)  # noqa: S101 - the groups are of one kind each
    return settle.ArchiveTask(
        entry.claim,
        message=written.message,
        archived_at=decision.archived_at,
        trace=written.trace,
        history_entry=written.history_entry,
        progress=written.progress,
    )
