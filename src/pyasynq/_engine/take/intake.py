"""Intake: dequeue calls for the demand of a sink, and attempts made from their answers."""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.dequeue import dequeue, find_dequeued
from pyasynq._broker.leases import RAN_ALONE, confirm_begin
from pyasynq._broker.settle import Claim
from pyasynq._broker.stored import check_task_id
from pyasynq._broker.verdicts import LEASED
from pyasynq._engine.engine_parts import token_ending
from pyasynq._engine.lease.unreadable_tasks import UnreadableTasks
from pyasynq._engine.run.attempt import Attempt, Phase
from pyasynq._engine.run.outcome import REQUEUE
from pyasynq._engine.take.poison_guard import PoisonGuard, suspect_threshold
from pyasynq._engine.take.queue_order import StrictOrder, WeightedOrder
from pyasynq._engine.take.sink import ASKS_AT_ONCE
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message
from pyasynq.errors import ReplyLostError
from pyasynq.events import GhostsDropped

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyasynq._broker.dequeue import Dequeued, DequeuedTask
    from pyasynq._engine.engine_parts import Parts
    from pyasynq._engine.take.queue_board import ServedQueue
    from pyasynq._engine.take.sink import Capacity, Sink, Want
    from pyasynq._redis.plan import Plan
    from pyasynq.context import Home


class Ask(NamedTuple):
    """One dequeue call in flight, with the state of the queue when it was sent."""

    queue: ServedQueue
    want: Want
    limit: int
    token: str
    changes: int
    asked_at: float
    plan: Plan[Dequeued]


class Intake:
    """Sends dequeue calls for the sink, and turns answers into attempts. Used by the event loop only."""

    def __init__(self, parts: Parts, sink: Sink, home: Home) -> None:
        config = parts.config
        self._parts = parts
        self._sink = sink
        self._home = home
        self._order = (StrictOrder if config.strict_priority else WeightedOrder)(config.priorities)
        limits = [
            config.crash_limit if route.rules.crash_limit is None else route.rules.crash_limit
            for route in parts.router.routes()
        ]
        self._suspects = PoisonGuard(
            suspect_threshold([config.crash_limit, *limits]),
            parts.settings,
            parts.clock.monotonic(),
            random.uniform(0.0, 1.0),  # noqa: S311 - spreads silences, guards nothing
        )
        self._calls = itertools.count(1)
        self._token_ending = token_ending(parts)
        self.board = parts.board
        self._reserved = 0
        """Number of tasks requested by calls without an answer."""
        self._may_wait = False
        """Whether tasks may be prefetched (taken before they can start); False before the first reply."""
        self._overlap_from: int | None = None
        """Minimum number of free slots for a second call in flight; None if calls are sent one at a time.

        A cached copy of the sink's `Capacity.overlap_from`: `deliver` writes it, and it is read whenever an
        attempt ends.
        """
        self._arrived: list[tuple[Want, Sequence[Attempt]]] = []
        self._answered: list[Want] = []
        """Requests whose calls were answered in this pipeline."""
        self.taken = 0
        """Number of tasks taken since the start, not counting tasks put back unstarted."""
        self._released: set[str] = set()
        """Tokens of the slow calls in flight whose reserved slots other queues may use (`free_room`)."""
        self._late: list[Attempt] = []
        """Attempts to put back: no room was left, their queue was removed, or taking has stopped."""
        self._plenty = False
        """Whether the last answer brought as many tasks as requested, so that the queue may have more."""
        self.pause_reports = 0
        """Number of Redis' reports that a queue was paused or unpaused."""
        self.unclear: list[Ask] = []
        """Calls whose replies were lost: they may have taken tasks that only Redis knows."""
        self.unreadable = UnreadableTasks(parts)

    @property
    def taking(self) -> bool:
        """Whether tasks are taken at all; shutdown and TSTP end it."""
        return self._sink.taking

    @taking.setter
    def taking(self, taking: bool) -> None:
        self._sink.taking = taking

    @property
    def capacity(self) -> Capacity:
        """Number of tasks that can be taken now, besides the tasks that calls in flight may bring."""
        return self._sink.capacity(self._reserved)

    @property
    def _room(self) -> int:
        """Number of further tasks that may be taken, besides the tasks that have just arrived."""
        return max(0, self.capacity.room - sum(len(attempts) for _, attempts in self._arrived))

    def _wants(self) -> Sequence[Want]:
        room = self.capacity.room if self.taking else 0
        return self._sink.wants(room, self._suspects.waiting) if room > 0 else ()

    @property
    def may_overlap(self) -> bool:
        """Whether a call may be sent while another one is in flight, because their order does not matter."""
        return self._overlap_from is not None and self._is_plain

    @property
    def _is_plain(self) -> bool:
        """Whether no queue has limits or an order, no suspect runs alone, and nothing is to be cleared up."""
        return (
            not self.unclear
            and not self.unreadable
            and not self._late
            and not self._suspects.is_silent
            and self.board.all_plain
        )

    @property
    def is_all_empty(self) -> bool:
        """Whether no task waits in any queue, according to the last answers of Redis."""
        return self.board.all_empty and not self.unclear and not self._suspects.waiting

    @property
    def has_room_aside(self) -> bool:
        """Whether enough slots are free for another call, and it may be sent while calls are in flight."""
        if not self.taking or not self._plenty:
            return False
        least = self._overlap_from
        return least is not None and self.capacity.room >= least and self._is_plain

    def next_call(self, now: float) -> float:
        """Return the monotonic time at which the next call to Redis is to be sent.

        It is infinity if no call can be sent before a running attempt ends.
        """
        return min(self._next_ask(now), self._next_return, self._next_clear_up)

    def _next_ask(self, now: float) -> float:
        if not self.taking or self.capacity.room <= 0:
            return math.inf
        guard, wants = self._suspects, self._wants()
        if guard.is_silent:
            is_over = self._is_drained or (guard.alone is not None and guard.alone not in self._sink.held)
            return 0.0 if is_over else now + guard.saved(now)
        if any(want.unasked for want in wants):
            return 0.0
        turn = self._find_suspect_turn(wants) if guard.waiting else None
        if turn is None:
            return self.board.next_look()
        queue, _ = turn
        return min(self.board.next_look(), guard.due(guard.waiting[queue], self._sink.held, now))

    @property
    def _next_return(self) -> float:
        """Monotonic time from which tasks are put back; infinity while calls are in flight."""
        if self._reserved:
            return math.inf
        return 0.0 if self._late else self._sink.give_back_at

    def put_back_unstarted(self) -> None:
        """Put back prefetched tasks that waited too long for a slot, or that will not start any more.

        Does nothing while dequeue calls are in flight: the tasks of these calls were behind the prefetched
        tasks in the queue.
        """
        now = self._parts.clock.monotonic()
        if self._next_return > now:
            return
        given_back = self._sink.give_back() if self._sink.give_back_at <= now else ()
        self.taken -= len(given_back)
        late, self._late = self._late, []
        for attempt in (*given_back, *late):
            self._put_back(attempt)

    def changed(self, key: str) -> bool:
        """Record a reported change of a key; return whether it requires a round."""
        is_to_ask = self.board.changed(key, self._parts.clock.monotonic())
        return self._pause_changed(key) or is_to_ask

    def watch_lost(self, key: str) -> None:
        """Record that changes of a key may have been missed, and that the next one is not reported."""
        self.board.watch_lost(key)
        self._pause_changed(key)

    def _pause_changed(self, key: str) -> bool:
        queue = self.board.find_paused_queue(key)
        if queue is None:
            return False
        self.pause_reports += 1
        self.requeue_waiting(queue)
        return True

    def give_head_start(self, queue: str) -> None:
        """Delay calls to a queue for a while: other servers first take the tasks without a handler here."""
        settings = self._parts.settings
        until = self._parts.clock.monotonic() + settings.unknown_memory
        self.board.give_head_start(queue, settings.unknown_head_start, until=until)

    def reserve_asks(self) -> list[Ask]:
        """Reserve room for the tasks of this round; return its dequeue calls."""
        now = self._parts.clock.monotonic()
        # The tasks of an unclear call need the slots that it was sent for.
        if self.unclear and self._list_ready_unclear(now):
            return []
        wants = self._wants()
        if not wants:
            return []
        asks = self._ask_for_suspect(wants, now) if self._suspects.is_wary else []
        # The call for the suspect uses room of these requests, so no other call is sent in this round.
        if asks or self._suspects.is_silent:
            return asks
        to_ask = [queue.name for queue in self.board.to_ask(now)]
        times: dict[str, int] = defaultdict(int)
        for want in wants:
            queues = [queue for queue in to_ask if want.accepts(queue) and times[queue] < ASKS_AT_ONCE]
            queues += [queue for queue in want.unasked if queue not in queues]
            shares = self._order.split(want.limit, queues) if queues else {}
            for queue in shares:
                times[queue] += 1
            asks += [self._ask(want, self.board.queue(queue), share, now) for queue, share in shares.items()]
        return asks

    def _ask_for_suspect(self, wants: Sequence[Want], now: float) -> list[Ask]:
        """Begin or end the poison guard's silence when it is time; return the call for a suspect, if any."""
        guard = self._suspects
        turn = self._find_suspect_turn(wants)
        crashes = None if turn is None else guard.waiting[turn[0]]
        ending = guard.advance(crashes, self._sink.held, self._reserved, now)
        if turn is None or ending is None:
            return []
        queue, want = turn
        return [self._ask(want, queue, 1, now, suspect_room=True, ending=ending)]

    @property
    def _is_drained(self) -> bool:
        """Whether no task runs or waits here, and no call in flight may bring one."""
        return not self._reserved and self._sink.is_idle

    def _find_suspect_turn(self, wants: Sequence[Want]) -> tuple[ServedQueue, Want] | None:
        """Return the next queue that has a waiting suspect and is in a request, and that request (`Want`)."""
        turns = ((queue, want) for queue in self._suspects.waiting for want in wants)
        return next(((queue, want) for queue, want in turns if want.accepts(queue.name)), None)

    def free_room(self, asks: Iterable[Ask]) -> None:
        """Release the room reserved for slow calls, so that other queues can use it."""
        for ask in asks:
            self._reserved -= ask.limit
            self._released.add(ask.token)

    def _release(self, ask: Ask) -> bool:
        """Release the room of a call that has ended; return whether it was released before."""
        if self._released and ask.token in self._released:
            self._released.discard(ask.token)
            return True
        self._reserved -= ask.limit
        return False

    def leave_alone(self, queue: str, until: float) -> None:
        """Send no dequeue call for a queue until a monotonic time, because a call has failed."""
        known = self.board.known.get(queue)
        if known is not None:
            self.board.failed(known, look_at=until)

    @property
    def _next_clear_up(self) -> float:
        """Monotonic time from which lost replies or unreadable tasks are cleared up; infinity for never."""
        if not self.unclear and not self.unreadable:
            return math.inf
        queues = {call.queue.name for call in self.unclear}.union(self.unreadable.queues)
        return min(map(self.board.ready_at, queues), default=math.inf)

    def _list_ready_unclear(self, now: float) -> list[Ask]:
        return [call for call in self.unclear if self.board.ready_at(call.queue.name) <= now]

    def proofs_to_end(self) -> list[tuple[Attempt, Plan[bool]]]:
        """Return the suspect whose solo run is to end, and the call that records this; else an empty list.

        A solo run (a silence of the poison guard) ends when its time is used up and slots are free. The call
        records this on the task first: a later crash then does not prove that the suspect caused it. If the
        suspect's queue is in a back-off, the silence ends at once without that call.
        """
        alone = self._suspects.alone
        if alone is None or self.capacity.room <= 0:
            return []
        now = self._parts.clock.monotonic()
        if self._suspects.saved(now):
            return []
        if self.board.ready_at(alone.queue) > now:
            self._suspects.end_silence(now)
            return []
        return [(alone, confirm_begin(alone.queue, alone.id, alone.token))]

    def proofs_ended(self, proofs: Collection[tuple[Attempt, Plan[bool]]]) -> None:
        """End the silence once the calls of `proofs_to_end` were answered: other tasks may start again.

        End it also after an error: the node of the suspect's queue may be down, and other queues must not
        wait for it.
        """
        if proofs:
            self._suspects.end_silence(self._parts.clock.monotonic())

    def only(self, queues: Collection[str] | None) -> None:
        """Take tasks from these queues only, from now on; None means all queues."""
        self.board.only(queues)

    def requeue_waiting(self, queue: str) -> None:
        """Put back unstarted tasks of a queue, once the calls in flight are answered."""
        given_back = self._sink.give_back(queue)
        self.taken -= len(given_back)
        self._late += given_back
        self._suspects.forget(queue)

    def serve(self) -> None:
        """Take from the queues that the board serves now, by their priorities."""
        priorities = self.board.priorities
        self._order.weigh(priorities)
        self._sink.serve(priorities)
        self._may_wait = self._is_plain
        self.deliver()

    def _ask(
        self,
        want: Want,
        queue: ServedQueue,
        limit: int,
        now: float,
        *,
        suspect_room: bool | None = None,
        ending: str = "",
    ) -> Ask:
        ending += self._token_ending if want.renewed else LEASED
        token = f"{self._parts.server_id}/{next(self._calls)}{ending}"
        if suspect_room is None and queue in self._suspects.waiting:
            suspect_room = False
        plan = dequeue(
            queue.name,
            limit=limit,
            token=token,
            lease_seconds=want.lease,
            suspect_from=self._suspects.threshold,
            suspect_room=suspect_room,
            terms=queue.terms,
            now=self._parts.clock.redis_now(),
        )
        want.asked(queue.name)
        self.board.asked(queue, now)
        self._reserved += limit
        return Ask(queue, want, limit, token, queue.state.changes, now, plan)

    def answered(self, ask: Ask, answer: Dequeued) -> None:
        """Accept the tasks of a dequeue answer for `deliver`, and record what it says about the queue."""
        parts = self._parts
        was_free = self._release(ask)
        self._plenty = len(answer.tasks) == ask.limit
        parts.redis_time.learn(answer.redis_now)
        now = parts.clock.monotonic()
        attempts = self._make_attempts(answer.tasks, ask, now)
        room = ask.limit
        if not self.taking or not ask.queue.is_served:
            # The answer was overtaken by the removal of its queue, or by a shutdown, which may not wait for
            # handlers any more.
            room = 0
        elif was_free:
            # Other tasks may have started by now alongside a suspect that was to run alone.
            is_alone = self._suspects.is_silent or RAN_ALONE in ask.token
            room = 0 if is_alone else self._room
        self._start(attempts[:room], ask.want)
        if late := attempts[room:]:
            parts.roster.add_all(late)
            self._late += late
        self._answered.append(ask.want)
        if self._suspects.threshold:
            self._suspects.took(attempts, ask.queue, answer.suspect_waiting if ask.queue.is_served else 0)
        if answer.empty or answer.limited_by:
            # Other queues get the slots that this queue could not use; it gets no credit for them.
            self._order.forget(ask.queue.name)
        look_at = now + parts.settings.held_poll
        self.board.answered(ask.queue, answer, changes=ask.changes, now=now, look_at=look_at)
        self._may_wait = self._is_plain
        if answer.ghosts:
            parts.events.emit(GhostsDropped(ask.queue.name, answer.ghosts))

    def failed(self, ask: Ask, error: Exception, until: float) -> None:
        """Leave a queue alone for a while after an error; remember a call that may have taken tasks."""
        self._release(ask)
        if isinstance(error, ReplyLostError):
            self.unclear.append(ask)
            self._may_wait = False
        self.board.failed(ask.queue, look_at=until)
        ask.want.heard(error)

    def finds(self) -> list[tuple[Ask, Plan[list[DequeuedTask]]]]:
        """Return calls that search for the tasks of dequeue calls whose replies were lost."""
        if not self.unclear:
            return []
        calls = self._list_ready_unclear(self._parts.clock.monotonic())
        return [(call, find_dequeued(call.queue.name, token=call.token)) for call in calls]

    def found(self, call: Ask, tasks: Sequence[DequeuedTask]) -> None:
        """Accept the tasks that a dequeue call took before its reply was lost, as far as there is room.

        Tasks without room are put back in front of their queue. All tasks are put back if half of their lease
        has passed, or if nothing may be taken from the queue now.
        """
        self.unclear.remove(call)
        now = self._parts.clock.monotonic()
        attempts = self._make_attempts(tasks, call, now)
        name = call.queue.name
        is_served = name in self.board.settings
        if is_served:
            # The queue may have been removed and added again: then `call.queue` is outdated.
            queue = self.board.queue(name)
            self._suspects.took(attempts, queue, self._suspects.waiting.get(queue, 0))
        is_timely = self.taking and is_served and now - call.asked_at < call.want.lease / 2
        room = self._room if is_timely and not self._suspects.is_silent else 0
        self._start(attempts[:room], call.want)
        self._parts.roster.add_all(attempts[room:])
        for attempt in attempts[room:]:
            self._put_back(attempt)

    def _make_attempts(self, tasks: Iterable[DequeuedTask], call: Ask, now: float) -> list[Attempt]:
        """Make an attempt of each task; record tasks that cannot be decoded."""
        home, queue, token, want = self._home, call.queue.name, call.token, call.want
        tally = self._parts.tally
        cells = None if tally is None else tally.cells(queue)
        # Counted from before the call: the lease in Redis began later.
        lease_until = call.asked_at + want.lease
        attempts = []
        for task_id, data, crashes, lease_score, since in tasks:
            try:
                check_task_id(task_id, data)
                message = decode_task_message(data)
            except UndecodableMessageError as error:
                self.unreadable.add(queue, Claim(task_id, token, lease_score), error.reason)
                continue
            attempt = Attempt(
                home,
                queue,
                message,
                token,
                # The id in the list counts, even if the message has another one.
                task_id=task_id,
                crashes=crashes,
                lease_until=lease_until,
                lease_score=lease_score,
            )
            attempt.renewed = want.renewed
            attempt.size = len(data)
            attempt.pending_since = since
            attempt.cells = cells
            attempt.started = now
            attempts.append(attempt)
        return attempts

    def _start(self, attempts: Sequence[Attempt], want: Want) -> None:
        self.taken += len(attempts)
        self._parts.roster.add_all(attempts)
        self._arrived.append((want, attempts))

    def deliver(self) -> None:
        """Pass the tasks in a pipeline's answers to the sink, and tell each request that it was answered."""
        arrived, self._arrived = self._arrived, []
        answered, self._answered = self._answered, []
        self._sink.accept(arrived, may_wait=self._may_wait)
        self._overlap_from = self.capacity.overlap_from
        for want in answered:
            want.heard(None)

    def _put_back(self, attempt: Attempt) -> None:
        attempt.phase = Phase.SETTLING
        self._parts.settles.put(attempt, REQUEUE)
