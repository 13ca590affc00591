"""Demand of a consumer: pending takes, and the attempts that were handed to them."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import OrderedDict
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from pyasynq._broker.find_attempt import find_verdict
from pyasynq._broker.verdicts import Verdict, is_leased
from pyasynq._engine.handlers.routes import received_task
from pyasynq._engine.lease.lease_errors import ServerStopping, build_verdict_error, copy_cause, get_verdict
from pyasynq._engine.lease.roster import SlotTable
from pyasynq._engine.run.attempt import Phase
from pyasynq._engine.run.outcome import Failed, Unfinished, build_cause_ending
from pyasynq._engine.run.runner import conclude
from pyasynq._engine.take.sink import ASKS_AT_ONCE, Capacity, Want
from pyasynq.errors import AttemptSettledError, ConfigurationError, LeaseExpiredError
from pyasynq.events import TaskStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.run.outcome import Ending
    from pyasynq._engine.take.queue_board import ServedQueue

_LAST_LOOK_SECONDS = 1.0
"""Extra seconds for a take whose timeout has ended before each of its queues was checked once."""
_AGE: Final = attrgetter("number")


class Take(Want):
    """A pending `take` or `lease` call.

    It ends when a round of dequeue calls has brought tasks. Without tasks it ends after its wait, once each
    of its queues has been asked. Used by the event loop only.

    Attributes:
        attempts: the attempts that it has received.
        error: error of the last dequeue call for this take; None if that call was answered.
        number: sequence number, which orders takes by age; set by the sink.
        unlooked: the sink's takes for which some queue has not been asked yet. A take removes itself from
            this dict when its last queue is asked.
    """

    __slots__ = ("_over", "attempts", "error", "most", "number", "ready", "timer", "unlooked")

    def __init__(self, most: int, lease: int, queues: Iterable[str] | None, *, renewed: bool) -> None:
        super().__init__(most, lease, queues, renewed=renewed)
        self.most = most
        self.number = 0
        self.unlooked: dict[Take, None] = {}
        self.attempts: list[Attempt] = []
        self.error: Exception | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None
        self._over = False

    @property
    def waiting(self) -> bool:
        """Whether this take still wants tasks."""
        return not self.ready.done() and not self.attempts

    def asked(self, queue: str) -> None:
        """Record that a dequeue call for this queue was sent; after the last queue, leave `unlooked`."""
        super().asked(queue)
        if not self.unasked:
            self.unlooked.pop(self, None)

    def heard(self, error: Exception | None) -> None:
        """Record the answer to a dequeue call; end the take if this was the last answer it waited for."""
        super().heard(error)
        if not self.ready.done():
            self.error = error
        self._look()

    def drop(self, queue: str) -> None:
        """Stop waiting for a queue that is not served any more; fail if the take waits for no other queue."""
        self.unasked.discard(queue)
        if self.queues is not None:
            self.queues -= {queue}
            if not self.queues and self.waiting:
                self.error = ConfigurationError(f"this consumer does not serve queue {queue!r} any more")
                self.close()
        self._look()

    def end_wait(self, *, at_once: bool = False) -> None:
        """Shorten the wait: end it once each queue has been asked, or now if `at_once` is set."""
        self._over = True
        if at_once:
            self.unasked.clear()
        self._look()

    def close(self) -> None:
        """End the wait; the take returns the tasks that it has."""
        if not self.ready.done():
            self.ready.set_result(None)

    def _look(self) -> None:
        if self._over and not self.unasked and not self.in_flight:
            self.close()


class ConsumerSink:
    """Demand of a consumer: gives attempts to callers (holders), and settles them.

    Used by the event loop only.

    The leases of `take` blocks are renewed until the holder settles the attempts: at a deadline or a cancel
    request, the holder gets an error first. A leased attempt lasts as long as its lease, which the holder may
    extend. Its holder may be remote and never come back, so at a deadline or a cancel request a leased
    attempt is settled at once.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._takes: dict[str | None, OrderedDict[Take, None]] = {}
        """The pending takes by queue, the oldest first; under None the takes from all queues.

        An OrderedDict is a deque from which any member can be removed in constant time.
        """
        self._unlooked: dict[Take, None] = {}
        """Takes for which some queue has not been asked yet, the oldest first."""
        self._numbers = itertools.count()
        self._closed = False
        self._alarms: dict[Attempt, asyncio.Future[None]] = {}
        self.taking = True
        self.give_back_at = math.inf
        """Infinity: no attempt is put back because it has not started, since each starts when it is taken."""
        self.held = SlotTable()
        """The attempts that callers were given and have not settled yet."""
        self.on_wanted: Callable[[Collection[str] | None], None] = lambda _: None
        """Called with the names of the wanted queues, None for all, when they change."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when more tasks may be requested: a take was added, or a slot has become free."""

    # Called by the intake.

    @property
    def is_idle(self) -> bool:
        """Whether no attempt is held."""
        return not self.held

    def capacity(self, reserved: int) -> Capacity:
        """Return the number of tasks to take now, 0 without a pending take.

        Calls in flight may bring `reserved` tasks, which already have their slots.
        """
        return Capacity(self._parts.config.concurrency - len(self.held) - reserved if self._takes else 0)

    def wants(self, room: int, suspected: Iterable[ServedQueue]) -> Sequence[Take]:
        """Return the pending takes that the next dequeue calls are for, the oldest first.

        Sets the `limit` of each, so that together they request at most `room` tasks. Only the oldest takes of
        each queue are considered, even if many are pending.

        Args:
            room: number of tasks that may be requested.
            suspected: queues in which a suspect waits; they are asked regardless of their known state.
        """
        left = room
        found = dict.fromkeys(islice(self._unlooked, left))
        to_ask = self._parts.board.to_ask(self._parts.clock.monotonic())
        names = {queue.name: None for queue in (*suspected, *to_ask)}
        found.update(dict.fromkeys(islice(self._takes.get(None, ()), ASKS_AT_ONCE * len(names))))
        for name in names:
            found.update(dict.fromkeys(islice(self._takes.get(name, ()), ASKS_AT_ONCE)))
        wants = []
        for take in sorted(found, key=_AGE):
            if left > 0 and take.waiting:
                take.limit = min(take.most, left)
                left -= take.limit
                wants.append(take)
        return wants

    def accept(self, taken: Sequence[tuple[Want, Sequence[Attempt]]], *, may_wait: bool) -> None:  # noqa: ARG002 - none waits
        """Hand each attempt to the take that requested it; put back the tasks of takes that have ended."""
        for take, attempts in taken:
            assert isinstance(take, Take)  # noqa: S101 - `wants` returns no others
            for attempt in attempts:
                self._hand_out(attempt, take)

    def _hand_out(self, attempt: Attempt, want: Take) -> None:
        parts = self._parts
        if self._closed or want.ready.done():
            self._end(attempt, Unfinished())
            return
        now = parts.clock.monotonic()
        attempt.begin(monotonic=now, unix_time=parts.redis_time.timestamp(now))
        self.hold(attempt)
        if attempt.deadline <= attempt.started:
            attempt.cause = attempt.build_timeout_error()
            self._end(attempt, Failed(attempt.cause))
            return
        if not want.attempts:
            # The other answers of this round also belong to the take.
            self._loop.call_soon(want.close)
            self._leave(want)
        want.attempts.append(attempt)
        message = attempt.message
        if parts.events.wants(TaskStarted):
            parts.events.emit(
                TaskStarted(attempt.queue, attempt.id, message.type, message.retried, attempt.waited)
            )

    def give_back(self, queue: str | None = None) -> Sequence[Attempt]:  # noqa: ARG002 - as the protocol says
        """Return no attempts: only unstarted attempts are put back, and a consumer has none."""
        return ()

    def serve(self, priorities: Mapping[str, int]) -> None:
        """Take from these queues from now on; fail takes that name only other queues."""
        for take in list(self._unlooked):
            for name in [name for name in take.unasked if name not in priorities]:
                take.drop(name)
        for name in [name for name in self._takes if name is not None and name not in priorities]:
            for take in self._takes.pop(name):
                take.drop(name)
        self.on_wanted(self._get_wanted_queues())

    def hold(self, attempt: Attempt) -> None:
        """Give a slot to an attempt that has started."""
        self.held.add(attempt)
        attempt.on_cancel = self._on_canceled

    # Called on behalf of the callers that take tasks.

    async def take(self, take: Take, wait: float | None) -> list[Attempt]:
        """Return the attempts that a take gets within this many seconds (None: no limit); remove the take.

        Raises:
            RedisError: when the last dequeue call failed and no attempt was received.

        When the caller is cancelled, the received attempts are put back.
        """
        self._enter(take)
        if wait is not None:
            take.timer = self._loop.call_later(wait, self._end_wait, take)
        try:
            await take.ready
        except BaseException:
            self.put_back(take.attempts)
            raise
        finally:
            if take.timer is not None:
                take.timer.cancel()
            self._leave(take)
        if take.error is not None and not take.attempts:
            raise take.error
        return take.attempts

    def close(self) -> None:
        """End all pending takes; give no more attempts to callers."""
        self._closed = True
        for take in {take: None for takes in self._takes.values() for take in takes}:
            take.end_wait(at_once=True)

    async def settle(self, attempt: Attempt, ending: Ending, verdict: Verdict) -> None:
        """End an attempt and wait until Redis has confirmed its outcome; a cancelled caller does not undo it.

        A leased attempt may be settled again with the same verdict, and gets the same answer as the first
        time.

        Raises:
            TaskTimeoutError: when the deadline had passed; the attempt was settled as timed out.
            TaskCanceledError: when cancellation was requested; the attempt was settled as the request says.
            LeaseExpiredError: when the attempt does not own the task any more; nothing was written.
            AttemptSettledError: when the attempt was settled before; for a leased attempt, only if it was
                settled with another verdict.
            RedisError: when the consumer was closed before Redis confirmed the outcome.
        """
        if verdict is attempt.verdict and attempt.settled is not None:
            await self._wait_confirmed(attempt, attempt.settled, verdict)
            return
        self.require_held(attempt)
        cause = None if isinstance(attempt.cause, ServerStopping) else attempt.cause
        if cause is None:
            await self._wait_confirmed(attempt, self._end(attempt, ending, verdict), verdict)
            return
        settled = self._end(attempt, build_cause_ending(attempt), get_verdict(cause))
        if isinstance(cause, LeaseExpiredError):
            raise LeaseExpiredError
        await self._wait_confirmed(attempt, settled, None)
        raise copy_cause(cause)

    async def _wait_confirmed(
        self, attempt: Attempt, settled: asyncio.Future[bool | Exception], verdict: Verdict | None
    ) -> None:
        """Wait until Redis has confirmed the outcome of an attempt.

        A leased attempt that was settled before with the same verdict counts as confirmed (idempotent).
        """
        result = await asyncio.shield(settled)
        if isinstance(result, Exception):
            raise result
        if not result:
            if not is_leased(attempt.token):
                raise LeaseExpiredError
            plan = find_verdict(attempt.queue, attempt.id, attempt.token, now=self._parts.clock.redis_now())
            earlier = await self._parts.driver.run(plan)
            if earlier is None or earlier is not verdict:
                raise build_verdict_error(earlier, attempt.queue, attempt.id)

    def put_back(self, attempts: Iterable[Attempt]) -> list[asyncio.Future[bool | Exception]]:
        """Put back the tasks of the attempts that are not settled (requeue).

        Return futures that are done when Redis has confirmed it. A cancelled attempt is settled by the cause
        of its cancellation instead: after a timeout, for example, it counts as failed.
        """
        return [self._end(one, build_cause_ending(one)) for one in attempts if one.phase is Phase.RUNNING]

    def fail(self, attempt: Attempt, error: Exception) -> list[asyncio.Future[bool | Exception]]:
        """Settle an attempt as failed with an error; do nothing if it has been settled.

        A cancelled attempt is settled by the cause of its cancellation instead. Return a list: a future that
        is done when Redis has confirmed the outcome, or nothing if the attempt had been settled.
        """
        if attempt.phase is not Phase.RUNNING:
            return []
        cause = None if isinstance(attempt.cause, ServerStopping) else attempt.cause
        return [
            self._end(
                attempt,
                Failed(error) if cause is None else build_cause_ending(attempt),
            )
        ]

    def require_held(self, attempt: Attempt) -> None:
        """Raise an error unless the attempt still owns its task.

        If its lease is lost, cancel the attempt and report the loss first.
        """
        now = self._parts.clock.monotonic()
        if attempt.phase is Phase.RUNNING:
            if self._parts.roster.get(attempt.queue, attempt.id) is not attempt:
                attempt.lost = True
            if (attempt.lost or not attempt.has_lease(now)) and attempt.cancel(
                LeaseExpiredError(), monotonic=now
            ):
                self._parts.settles.on_lost(attempt)
        if attempt.phase is not Phase.RUNNING:
            if attempt.cause is None:
                verdict = attempt.verdict.value if attempt.verdict else ""
                raise AttemptSettledError(attempt.queue, attempt.id, verdict)
            raise copy_cause(attempt.cause)

    async def wait_cancelled(self, attempt: Attempt) -> None:
        """Wait until an attempt is cancelled or ends."""
        if attempt.phase is Phase.RUNNING and attempt.cause is None:
            alarm = self._alarms.get(attempt)
            if alarm is None:
                alarm = self._alarms[attempt] = self._loop.create_future()
            await asyncio.shield(alarm)

    def _on_canceled(self, attempt: Attempt) -> None:
        if attempt.renewed:
            self._release_waiter(attempt)
        elif isinstance(attempt.cause, LeaseExpiredError):
            # The holder was silent for too long: the task is left to be recovered, as after a crash.
            self._end(attempt, Unfinished(is_lost=True))
        else:
            self._end(attempt, build_cause_ending(attempt), get_verdict(attempt.cause))

    def _end(
        self, attempt: Attempt, ending: Ending, verdict: Verdict | None = None
    ) -> asyncio.Future[bool | Exception]:
        settled = attempt.settled = self._loop.create_future()
        if is_leased(attempt.token):
            attempt.verdict = verdict
        self.held.remove(attempt)
        conclude(self._parts, attempt, received_task(attempt.message), None, ending)
        self._release_waiter(attempt)
        self.on_change()
        return settled

    def _release_waiter(self, attempt: Attempt) -> None:
        alarm = self._alarms.pop(attempt, None)
        if alarm is not None and not alarm.done():
            alarm.set_result(None)

    def _end_wait(self, take: Take) -> None:
        take.end_wait(at_once=self._parts.config.concurrency <= len(self.held))
        take.timer = self._loop.call_later(_LAST_LOOK_SECONDS, lambda: take.end_wait(at_once=True))

    def _enter(self, take: Take) -> None:
        take.number = next(self._numbers)
        known = len(self._takes)
        for queue in (None,) if take.queues is None else take.queues:
            self._takes.setdefault(queue, OrderedDict())[take] = None
        if take.unasked:
            self._unlooked[take] = None
            take.unlooked = self._unlooked
        if len(self._takes) != known:
            self.on_wanted(self._get_wanted_queues())
        self.on_change()

    def _leave(self, take: Take) -> None:
        """Remove a take if it is still registered, in constant time."""
        known = len(self._takes)
        for queue in (None,) if take.queues is None else take.queues:
            takes = self._takes.get(queue)
            if takes is not None and takes.pop(take, take) is None and not takes:
                del self._takes[queue]
        self._unlooked.pop(take, None)
        if len(self._takes) != known:
            self.on_wanted(self._get_wanted_queues())

    def _get_wanted_queues(self) -> Collection[str] | None:
        return None if None in self._takes else frozenset(name for name in self._takes if name is not None)
