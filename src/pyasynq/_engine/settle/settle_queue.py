"""Settle queue: the only writer of outcomes, which it sends to Redis in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker import settle
from pyasynq._engine.run.attempt import LARGE_BYTES, expect_renewals
from pyasynq._engine.run.outcome import DONE, Decision
from pyasynq._engine.run.settle_record import NOTHING, make_unchanged_record
from pyasynq._engine.settle.settle_batches import Batch, BatchMaker, Entry, done_entries, is_final
from pyasynq.errors import LeaseExpiredError, SettleError
from pyasynq.events import ArchiveTrimmed, LeaseLost, Outcome, SettleDelayed, SettleRefused, TaskSettled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from pyasynq._background.redis_time import RedisTime
    from pyasynq._broker.outbox import StoredEnding
    from pyasynq._broker.settle import Settled
    from pyasynq._clock import Clock
    from pyasynq._engine.lease.roster import Roster
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.run.settle_record import SettleRecord
    from pyasynq._engine.settings import EngineSettings
    from pyasynq.config import ServerConfig
    from pyasynq.events import Events


_MOST_REFUSALS: Final = 3
"""Number of refusals of an outcome sent alone, after which another outcome is written in its place."""


class SettleQueue:
    """Unconfirmed outcomes. Only its methods write the fields, on the event loop.

    New outcomes leave with the next round of the processor, grouped by queue and kind. The syncer retries
    outcomes whose write failed, each on its own, so that a refused outcome cannot delay the others.
    If Redis refuses a success permanently, a failure is written in its place. Without a valid lease nothing
    is sent; the heartbeat tries to renew it. The engine sets the callbacks while it is built.
    """

    def __init__(
        self,
        config: ServerConfig,
        settings: EngineSettings,
        *,
        roster: Roster,
        events: Events,
        clock: Clock,
        redis_time: RedisTime,
    ) -> None:
        self._settings = settings
        self.batches = BatchMaker(config, clock, redis_time)
        self._roster = roster
        self._events = events
        self._clock = clock
        self._redis_time = redis_time
        self._done: dict[str, list[Attempt]] = {}
        """Fast path, by queue: ended attempts that succeeded and keep nothing in Redis."""
        self._fresh: list[Entry] = []
        """New outcomes that have not been sent, except those in `_done`."""
        self._delayed: list[Entry] = []
        """Outcomes whose write failed, which wait for the syncer."""
        self._held: list[Entry] | None = None
        """Requeues that are held back; None while requeues are sent at once."""
        self._withheld_queues: Collection[str] = frozenset()
        self._withheld: list[Entry] = []
        """Outcomes of the queues in `_withheld_queues`, whose node is slow or unreachable."""
        self._in_flight = 0
        """Number of outcomes that were sent and not answered."""
        self.on_put: Callable[[], None] = lambda: None
        """Called when there is an outcome to send."""
        self.on_lost: Callable[[Attempt], None] = self._emit_lost
        """Called with an attempt whose lease is lost."""
        self.last_error: Exception | None = None
        """The last error of a settle call."""
        self.on_endings: Callable[[str, Sequence[StoredEnding]], None] = lambda _queue, _endings: None
        """Callback that gets a queue and the ends of its tasks that have completion callbacks."""
        self.on_refused: Callable[[Attempt, SettleError], tuple[Decision, SettleRecord]]
        """Returns what to write when Redis permanently refuses a success."""

    @property
    def fresh(self) -> int:
        """Number of new outcomes that have not been sent, not counting outcomes that are held back."""
        return len(self._fresh) + sum([len(attempts) for attempts in self._done.values()])

    @property
    def delayed(self) -> int:
        """Number of outcomes whose write failed, and that wait for the syncer."""
        return len(self._delayed)

    @property
    def outstanding(self) -> int:
        """Number of outcomes that Redis has not confirmed."""
        waiting = len(self._delayed) + len(self._withheld) + len(self._held or ())
        return self.fresh + waiting + self._in_flight

    def put_done(self, attempt: Attempt) -> None:
        """Accept an attempt that succeeded and keeps nothing."""
        if attempt.verdict is not None:
            # It joins the outcomes with the same verdict, which the script stores.
            self.put(attempt, DONE)
            return
        done = self._done.get(attempt.queue)
        if done is not None:
            done.append(attempt)
        else:
            self._done[attempt.queue] = [attempt]
            self.on_put()

    def put(self, attempt: Attempt, decision: Decision, record: SettleRecord = NOTHING) -> None:
        """Accept the decision about the task of an attempt, and its record.

        If the decision is to let the task go, nothing is written: the attempt is closed at once and reported
        as lost.
        """
        action = decision.action
        if action == "let go":
            self._drop(attempt)
            return
        entry = Entry(attempt, decision, record)
        if self._held is not None and action == "requeue":
            self._held.append(entry)
            return
        self._fresh.append(entry)
        if len(self._fresh) == 1:
            self.on_put()

    def hold_requeues(self) -> None:
        """Hold back requeues until all can go in one call, in their old order."""
        self._held = []

    def release_requeues(self) -> None:
        """Send the held requeues, in the order in which the tasks were taken."""
        held, self._held = self._held or [], None
        places = {id(attempt): place for place, attempt in enumerate(self._roster)}
        self._fresh += sorted(held, key=lambda entry: places.get(id(entry.attempt), 0))
        self.on_put()

    def withhold(self, queues: Collection[str]) -> None:
        """Hold back new outcomes of exactly these queues; release the outcomes of all other queues."""
        self._withheld_queues = queues
        withheld, self._withheld = self._withheld, []
        self._fresh += withheld

    def _set_aside(self) -> None:
        """Move the new outcomes of withheld queues to `_withheld`, so that they are not sent."""
        for queue in self._done.keys() & self._withheld_queues:
            self._withheld += done_entries(self._done.pop(queue))
        self._withheld += [entry for entry in self._fresh if entry.attempt.queue in self._withheld_queues]
        self._fresh = [entry for entry in self._fresh if entry.attempt.queue not in self._withheld_queues]

    def take_fresh(self) -> list[Batch]:
        """Remove the new outcomes and return them as batches; the caller confirms each or reports its error.

        Outcomes without a valid lease wait for the syncer instead.
        """
        if self._withheld_queues:
            self._set_aside()
        done, self._done = self._done, {}
        batches = [
            batch for queue, attempts in done.items() if (batch := self._take_done_batch(queue, attempts))
        ]
        if self._fresh:
            entries, self._fresh = self._fresh, []
            batches += self.batches.together(self._take_sendable(entries))
        return batches

    def take_delayed(self) -> list[Batch]:
        """Remove the outcomes whose write failed, except blamed outcomes; return each as its own batch.

        Outcomes without a valid lease keep waiting.
        """
        entries = [entry for entry in self._delayed if not entry.blamed]
        self._delayed = [entry for entry in self._delayed if entry.blamed]
        return self.batches.alone(self._take_sendable(entries))

    def take_blamed(self) -> Iterator[Batch]:
        """Remove and yield the blamed outcomes one at a time; the caller confirms each or reports its error.

        A batch is built just before it is sent: the lease may have been renewed by then.
        """
        for entry in [entry for entry in self._delayed if entry.blamed]:
            self._delayed.remove(entry)
            yield from self.batches.alone(self._take_sendable([entry]))

    def confirm(self, batch: Batch, result: Settled | Exception, *, blamed: bool = False) -> Exception | None:
        """Process the reply to a batch: remove its attempts, or keep its outcomes for the syncer.

        `blamed` means that it was sent alone and that Redis answered another call right after it.
        Return the error if outcomes are kept for the syncer; None if they are written, or if another outcome
        is to be written in their place.
        """
        self._in_flight -= len(batch.attempts)
        if isinstance(result, Exception):
            kept = self._process_error(batch.entries or done_entries(batch.attempts), result, blamed=blamed)
            return result if kept else None
        if not result.refused:
            self._close(batch.attempts)
        else:
            self._close_or_drop(batch.entries or done_entries(batch.attempts), result.refused)
        if result.trimmed:
            self._events.emit(ArchiveTrimmed(batch.queue, result.trimmed))
        if result.endings:
            self.on_endings(batch.queue, result.endings)
        return None

    def _process_error(self, entries: Sequence[Entry], error: Exception, *, blamed: bool) -> bool:
        """Handle an error of writing outcomes, `blamed` as in `confirm`; return whether they are kept."""
        self.last_error = error
        if len(entries) == 1 and is_final(error):
            self._refuse(entries[0], error)
            return False
        for entry in entries:
            entry.sent = True
            entry.blamed = entry.blamed or entry.may_be_blamed(error)
        if blamed and self._count_refusal(entries[0], error):
            self._refuse(entries[0], error)
            return False
        self._delayed.extend(entries)
        self._events.emit(SettleDelayed(len(entries), error))
        return True

    def _count_refusal(self, entry: Entry, error: Exception) -> bool:
        """Count a refusal, at most one in each syncer interval; return whether the limit is reached."""
        now = self._clock.monotonic()
        if entry.may_be_blamed(error) and now >= entry.refused_at + self._settings.syncer_interval:
            entry.refusals += 1
            entry.refused_at = now
        return entry.refusals >= _MOST_REFUSALS

    def _refuse(self, entry: Entry, cause: Exception) -> None:
        """Write another outcome in place of one that Redis refuses.

        A success is replaced by a failure, any other outcome by archiving the unchanged message. If that is
        refused too, or if a requeue was refused, the task is left to be recovered.
        """
        attempt, action = entry.attempt, entry.decision.action
        error = SettleError(f"Redis refuses the outcome of the attempt: {cause}")
        error.__cause__ = cause
        if entry.final or action == "requeue":
            self._report_refused(entry, "it is left to be recovered", cause)
            self._close([attempt], written=False)
            return
        if action in {"done", "complete"}:
            self._report_refused(entry, "it counts as failed", cause)
            decision, record = self.on_refused(attempt, error)
            instead = Entry(attempt, decision, record)
        else:
            self._report_refused(entry, "it is archived as it was", cause)
            decision = Decision("archive", Outcome.ARCHIVED, self._redis_time.now())
            instead = Entry(attempt, decision, make_unchanged_record(str(error)), final=True)
        if attempt.settled is not None and not attempt.settled.done():
            attempt.settled.set_result(error)
        instead.sent = entry.sent
        # An outcome that replaces one refused three times is given up after one refusal.
        instead.refusals = max(0, entry.refusals - 1)
        self._fresh.append(instead)
        self.on_put()

    def _report_refused(self, entry: Entry, remedy: str, error: Exception) -> None:
        attempt = entry.attempt
        self._events.emit(SettleRefused(attempt.queue, attempt.id, remedy, error))

    def _close_or_drop(self, entries: Iterable[Entry], refused: Collection[str]) -> None:
        for entry in entries:
            if entry.attempt.id in refused and not entry.sent:
                self._drop(entry.attempt)
            else:
                self._close([entry.attempt])

    def _close(self, attempts: Sequence[Attempt], *, written: bool = True) -> None:
        self._roster.remove_all(attempts)
        wanted = self._events.wants(TaskSettled)
        for attempt in attempts:
            if attempt.size > LARGE_BYTES:
                attempt.drop_payload()
            if wanted:
                self._events.emit(TaskSettled(attempt.queue, attempt.id, written))
            if attempt.settled is not None and not attempt.settled.done():
                attempt.settled.set_result(written)

    def _drop(self, attempt: Attempt) -> None:
        self._close([attempt], written=False)
        # A cancelled attempt has already been reported as lost.
        if not isinstance(attempt.cause, LeaseExpiredError):
            self.on_lost(attempt)

    def _emit_lost(self, attempt: Attempt) -> None:
        self._events.emit(LeaseLost(attempt.queue, attempt.id))

    def _take_done_batch(self, queue: str, attempts: list[Attempt]) -> Batch | None:
        """Return attempts that succeeded and keep nothing as a batch, and count them as in flight.

        None if any attempt has lost its lease: then all of them join the other new outcomes, which are
        checked one by one.
        """
        now = self._clock.monotonic()
        if [attempt for attempt in attempts if attempt.lost or now >= attempt.lease_until]:
            self._fresh += done_entries(attempts)
            return None
        redis_now = self._redis_time.now()
        self._in_flight += len(attempts)
        # A renewal by the heartbeat's thread may reach Redis first, and must not make the claim stale.
        expect_renewals(attempts, redis_now.ceiling, self._settings.lease)
        return Batch(queue, attempts, settle.settle_done(queue, attempts, now=redis_now))

    def _take_sendable(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return the outcomes that can be sent now, and count them as in flight.

        Outcomes without a valid lease wait for the syncer. Outcomes of lost attempts are dropped.
        """
        now = self._clock.monotonic()
        sendable = []
        for entry in entries:
            attempt = entry.attempt
            if attempt.lost:
                # An outcome that was sent may have been written before the lease was lost, so no loss is
                # reported.
                if entry.sent:
                    self._close([attempt])
                else:
                    self._drop(attempt)
            elif attempt.has_lease(now):
                sendable.append(entry)
            else:
                self._delayed.append(entry)
        # A renewal by the heartbeat's thread may reach Redis first, and must not make the claim stale.
        expect_renewals(
            [entry.attempt for entry in sendable], self._redis_time.now().ceiling, self._settings.lease
        )
        self._in_flight += len(sendable)
        return sendable
