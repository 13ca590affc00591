"""Taking tasks: what to ask which queue for, and what to do with the answers."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.dequeue import dequeue, find_dequeued
from pyasynq._broker.leases import quarantine
from pyasynq._broker.settle import Claim
from pyasynq._server.attempt import Attempt, Phase
from pyasynq._server.board import QueueBoard
from pyasynq._server.outcome import Requeue
from pyasynq._server.queues import StrictOrder, WeightedOrder
from pyasynq._server.suspects import SuspectWatch, suspect_threshold
from pyasynq._wire.messages import UndecodableMessageError, decode_task_message
from pyasynq.errors import ReplyLostError
from pyasynq.events import GhostsDropped, MessageQuarantined
from pyasynq.options import seconds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.dequeue import Dequeued, DequeuedTask
    from pyasynq._broker.plan import Plan
    from pyasynq._server.board import QueueView
    from pyasynq._server.parts import Parts
    from pyasynq._server.runner import Runner
    from pyasynq.context import Home


class Ask(NamedTuple):
    """One dequeue call, and what was known when it was sent."""

    view: QueueView
    token: str
    changes: int
    asked_at: float
    plan: Plan[Dequeued]


class Unclear(NamedTuple):
    """A dequeue call whose reply was lost: it may have taken tasks that only Redis knows of."""

    queue: str
    token: str
    asked_at: float


class Unreadable(NamedTuple):
    """A task that was taken and cannot be decoded."""

    queue: str
    claim: Claim
    reason: str


class Intake:
    """The processor's hands: asks, and turns answers into running attempts."""

    def __init__(self, parts: Parts, runner: Runner, home: Home) -> None:
        config = parts.config
        self._parts = parts
        self._runner = runner
        self._home = home
        self._order = (StrictOrder if config.strict_priority else WeightedOrder)(config.queues)
        limits = [
            config.crash_limit if route.crash_limit is None else route.crash_limit
            for route in parts.router.routes()
        ]
        self._suspects = SuspectWatch(
            suspect_threshold([config.crash_limit, *limits]),
            parts.settings.suspect_age,
        )
        self._archive_max_age = int(seconds_of("archive_max_age", config.archive_max_age))
        self._calls = itertools.count(1)
        self.board = QueueBoard(config.queues)
        self.taking = True
        """Whether tasks are taken at all; shutdown and TSTP end it."""
        self.taken = 0
        """How many tasks have been taken since the start."""
        self.unclear: list[Unclear] = []
        self.unreadable: list[Unreadable] = []

    @property
    def room(self) -> int:
        """How many tasks may be taken now."""
        free = self._parts.config.concurrency - len(self._runner.running)
        if self._parts.config.max_tasks is not None:
            free = min(free, self._parts.config.max_tasks - self.taken)
        return max(0, free)

    def next_ask(self, now: float) -> float:
        """Return the monotonic time from which there is something to ask; infinity until an attempt ends."""
        if not self.taking or not self.room:
            return math.inf
        if self._suspects.blocked(self._runner.running, now):
            return now + self._parts.settings.suspect_rest
        return self.board.next_look() if self._suspects.waiting is None else 0.0

    def asks(self) -> list[Ask]:
        """Return the dequeue calls of this round."""
        room = self.room
        # What an unclear call has taken needs the slots that it was asked for.
        if not self.taking or not room or self.unclear:
            return []
        now = self._parts.clock.monotonic()
        if self._suspects.blocked(self._runner.running, now):
            return []
        if self._suspects.waiting is not None:
            return [self._ask(self._suspects.waiting, room, now, suspect_room=True)]
        views = {view.name: view for view in self.board.worth_asking(now)}
        if not views:
            return []
        shares = self._order.split(room, list(views))
        return [self._ask(views[queue], share, now) for queue, share in shares.items()]

    def _ask(self, view: QueueView, limit: int, now: float, *, suspect_room: bool = False) -> Ask:
        token = f"{self._parts.server_id}/{next(self._calls)}"
        plan = dequeue(
            view.name,
            limit=limit,
            token=token,
            lease_seconds=self._parts.settings.lease,
            suspect_from=self._suspects.threshold,
            suspect_room=suspect_room,
            now=self._parts.clock.redis_now(),
        )
        return Ask(view, token, view.changes, now, plan)

    def answered(self, ask: Ask, answer: Dequeued) -> None:
        """Start what a dequeue brought, and note what it says of the queue."""
        parts = self._parts
        parts.redis_time.learn(answer.redis_now)
        for task in answer.tasks:
            attempt = self._attempt(ask.view.name, task, ask.token, ask.asked_at)
            if attempt is not None:
                self._start(attempt)
        if answer.suspect_waiting:
            self._suspects.waiting = ask.view
        elif self._suspects.waiting is ask.view:
            self._suspects.waiting = None
        if answer.empty:
            self._order.forget(ask.view.name)
        look_at = parts.clock.monotonic() + parts.settings.safety_poll
        self.board.answered(ask.view, empty=answer.empty, changes=ask.changes, look_at=look_at)
        if answer.ghosts:
            parts.events.emit(GhostsDropped(ask.view.name, answer.ghosts))

    def failed(self, ask: Ask, error: Exception, until: float) -> None:
        """Leave a queue alone for a while after an error; remember a call that may have taken tasks."""
        if isinstance(error, ReplyLostError):
            self.unclear.append(Unclear(ask.view.name, ask.token, ask.asked_at))
        self.board.failed(ask.view, look_at=until)

    def finds(self) -> list[tuple[Unclear, Plan[list[DequeuedTask]]]]:
        """Return the calls that clear up what lost replies have taken."""
        return [(call, find_dequeued(call.queue, token=call.token)) for call in self.unclear]

    def found(self, call: Unclear, tasks: Sequence[DequeuedTask]) -> None:
        """Run the tasks of a lost reply, or put them back in front when their leases have aged."""
        self.unclear.remove(call)
        age = self._parts.clock.monotonic() - call.asked_at
        for task in tasks:
            attempt = self._attempt(call.queue, task, call.token, call.asked_at)
            if attempt is None:
                continue
            if self.taking and age < self._parts.settings.lease / 2:
                self._start(attempt)
            else:
                self._parts.roster.add(attempt)
                attempt.phase = Phase.SETTLING
                self._parts.settles.put(attempt, Requeue())

    def quarantines(self) -> list[tuple[Unreadable, Plan[object]]]:
        """Return the calls that archive what cannot be decoded."""
        now = self._parts.redis_time.now()
        return [
            (
                task,
                quarantine(
                    task.queue,
                    task.claim,
                    reason=task.reason,
                    max_size=self._parts.config.archive_max_size,
                    cutoff=now.seconds - self._archive_max_age,
                    now=now,
                ),
            )
            for task in self.unreadable
        ]

    def quarantined(self, task: Unreadable) -> None:
        """Note that Redis has archived a task that cannot be decoded."""
        self.unreadable.remove(task)
        self._parts.events.emit(MessageQuarantined(task.queue, task.claim.id, task.reason))

    def _attempt(self, queue: str, task: DequeuedTask, token: str, asked_at: float) -> Attempt | None:
        try:
            message = decode_task_message(task.message)
        except UndecodableMessageError as error:
            self.unreadable.append(Unreadable(queue, Claim(task.id, token, task.lease_score), error.reason))
            return None
        attempt = Attempt(
            self._home,
            queue,
            message,
            token,
            crashes=task.crashes,
            # Counted from before the call: the lease in Redis began later.
            lease_until=asked_at + self._parts.settings.lease,
            lease_score=task.lease_score,
        )
        attempt.id = task.id
        attempt.started = self._parts.clock.monotonic()
        return attempt

    def _start(self, attempt: Attempt) -> None:
        self.taken += 1
        self._parts.roster.add(attempt)
        self._suspects.took(attempt)
        self._runner.start(attempt)
