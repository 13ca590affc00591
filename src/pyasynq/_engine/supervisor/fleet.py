"""Fleet: decides what a supervisor does next with its children. No process, no clock, no waiting."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._exit_codes import EXIT_CLEAN, EXIT_GAVE_UP, EXIT_OVERDUE, EXIT_UNFINISHED, EXIT_USAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FIRST_RESTART_PAUSE: Final = 1.0
"""Seconds between the first death of a child and its next start.

Each further death doubles them (exponential back-off).
"""
LONGEST_RESTART_PAUSE: Final = 60.0
LONG_LIFE: Final = 60.0
"""Seconds of life after which a child counts as started successfully."""
DEATHS_WINDOW: Final = 60.0
MOST_DEATHS: Final = 5
"""Number of deaths in `DEATHS_WINDOW` seconds at which the supervisor gives up, if each child has died."""

PATIENCE: Final = 9.0
"""Seconds from TERM to KILL, without the margin, of a child that has not reported its timeouts."""
KILL_MARGIN: Final = 1.5
"""Seconds that a child may take beyond its timeouts; the child's own exit guard ends it a little earlier."""


class MemberPhase(enum.StrEnum):
    """State of a child, as its supervisor knows it."""

    STARTING = "starting"
    READY = "ready"
    LEAVING = "leaving"
    """The child was told to end or has announced its end; running tasks may finish."""


@dataclass(eq=False, slots=True)
class Member:
    """One child process. `worker` is its position in the fleet, from 1; `number` is never reused.

    Attributes:
        patience: seconds that it may take to end after TERM.
        beat_at: time of its last sign of life; None before the first.
        kill_at: time at which it is killed, after it was told to end.
        is_killed: whether it was killed.
    """

    worker: int
    number: int
    started_at: float
    phase: MemberPhase = MemberPhase.STARTING
    patience: float = PATIENCE + KILL_MARGIN
    beat_at: float | None = None
    kill_at: float = float("inf")
    is_killed: bool = False


class Start(NamedTuple):
    """Instruction to start this child."""

    member: Member


class Terminate(NamedTuple):
    """Instruction to send this child SIGTERM."""

    member: Member


class Kill(NamedTuple):
    """Instruction to kill this child, for this reason."""

    member: Member
    reason: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of children, in seconds.

    Attributes:
        silence: maximum time between two signs of life; a child that exceeds it is killed.
        start: time from the start of a reload's new child until it takes tasks.
        end: time from TERM to the end, for a child that has not reported its own timeouts; a margin is added.
    """

    silence: float = float("inf")
    start: float = float("inf")
    end: float = PATIENCE


NO_LIMITS: Final = Limits()


class Fate(enum.Enum):
    """Consequence of the end of a child."""

    EXPECTED = "expected"
    FINISHED = "finished"
    """The child has done all its work (burst mode)."""
    RESTARTED = "restarted"
    """The child died; a replacement starts after a pause."""
    RELOAD_FAILED = "reload failed"
    """The new child of a reload died before it was ready: the reload is cancelled."""
    HOPELESS = "hopeless"
    """The child died, and the supervisor gives up."""


class Stage(enum.Enum):
    """State of the whole fleet."""

    RUNNING = "running"
    STOPPED = "stopped"
    """Children take no more tasks, and none is started."""
    CLOSING = "closing"


@dataclass(eq=False, slots=True)
class _Place:
    worker: int
    current: Member | None = None
    successor: Member | None = None
    leaving: list[Member] = field(default_factory=list)
    failures: int = 0
    start_at: float = 0.0
    done: bool = False

    @property
    def members(self) -> Iterator[Member]:
        yield from (one for one in (self.current, self.successor) if one is not None)
        yield from self.leaving


class Fleet:
    """A fixed number of positions, each with a child that is restarted, replaced, recycled or ended.

    Times are monotonic seconds that the caller passes in. Events are reported to `ready`, `leaving` and
    `died`, commands to `reload`, `stop` and `close`; then `actions` returns what to do.

    Attributes:
        stage: state of the fleet.
        exit_code: exit code of the supervisor so far: the reason for giving up, else the highest exit code of
            the children. A child that a signal ended after its start was complete counts as 3.
    """

    def __init__(self, processes: int, *, burst: bool = False, limits: Limits = NO_LIMITS) -> None:
        self.stage = Stage.RUNNING
        self.exit_code = EXIT_CLEAN
        self._places = [_Place(worker + 1) for worker in range(processes)]
        self._burst = burst
        self._limits = limits
        self._numbers = 0
        self._reload_up_to = 0
        self._deaths: deque[tuple[float, int]] = deque()
        self._to_terminate: list[Member] = []

    @property
    def members(self) -> list[Member]:
        """All children that have not ended."""
        return [member for place in self._places for member in place.members]

    @property
    def is_over(self) -> bool:
        """Whether all children have ended and none will be started."""
        if self.members:
            return False
        return self.stage is not Stage.RUNNING or all(place.done for place in self._places)

    def start_at(self, worker: int) -> float:
        """Return the monotonic time from which a new child may be started at this position."""
        return self._places[worker - 1].start_at

    def actions(self, now: float) -> list[Start | Terminate | Kill]:
        """Return the actions due now; each is returned once."""
        self._give_up_slow_successors(now)
        todo: list[Start | Terminate | Kill] = [Terminate(member) for member in self._to_terminate]
        for member in self._to_terminate:
            member.kill_at = now + member.patience
        self._to_terminate = []
        todo += self._decide_kills(now)
        if self.stage is not Stage.RUNNING:
            return todo
        for place in self._places:
            # While a child still finishes its tasks, only one successor may be started in its place.
            vacant = place.current is None and not place.done and len(place.leaving) < 2
            if vacant and now >= place.start_at:
                place.current = self._make_member(place, now)
                todo.append(Start(place.current))
        place_to_reload = self._find_next_to_reload()
        if place_to_reload is not None:
            place_to_reload.successor = self._make_member(place_to_reload, now)
            todo.append(Start(place_to_reload.successor))
        return todo

    def _give_up_slow_successors(self, now: float) -> None:
        for place in self._places:
            member = place.successor
            late = member is not None and now >= member.started_at + self._limits.start
            if late and member is not None and member.phase is MemberPhase.STARTING:
                member.phase = MemberPhase.LEAVING
                self._to_terminate.append(member)

    def _decide_kills(self, now: float) -> list[Kill]:
        kills = []
        for member in self.members:
            if member.is_killed:
                continue
            if now >= member.kill_at:
                kills.append(Kill(member, f"did not end within {member.patience:g} s of TERM"))
            elif now >= self._silent_at(member):
                kills.append(Kill(member, f"gave no sign of life for {self._limits.silence:g} s"))
        for kill in kills:
            kill.member.is_killed = True
        return kills

    def _silent_at(self, member: Member) -> float:
        return float("inf") if member.beat_at is None else member.beat_at + self._limits.silence

    def wake_at(self) -> float:
        """Return the time of the next start or deadline of a child; infinity if there is none.

        A child has deadlines for its next sign of life, its end after SIGTERM, and, in a reload, its
        readiness.
        """
        times = [
            time
            for member in self.members
            if not member.is_killed
            for time in (member.kill_at, self._silent_at(member))
        ]
        if self.stage is Stage.RUNNING:
            for place in self._places:
                if place.current is None and not place.done and len(place.leaving) < 2:
                    times.append(place.start_at)
                if place.successor is not None and place.successor.phase is MemberPhase.STARTING:
                    times.append(place.successor.started_at + self._limits.start)
        return min(times, default=float("inf"))

    def heard(self, now: float, members: Iterable[Member]) -> None:
        """Record a sign of life of children."""
        for member in members:
            member.beat_at = now

    def resumed(self, now: float) -> None:
        """Restart the time limits for signs of life, after this process was stopped for a while."""
        self.heard(now, [member for member in self.members if member.beat_at is not None])

    def ready(self, member: Member) -> None:
        """Record that a child takes tasks; the child that it replaces is told to end."""
        if member.phase is not MemberPhase.STARTING:
            return
        member.phase = MemberPhase.READY
        place = self._places[member.worker - 1]
        if place.successor is member:
            old, place.current, place.successor = place.current, member, None
            if old is not None:
                self._leave(place, old)
                self._to_terminate.append(old)

    def leaving(self, member: Member, now: float) -> None:
        """Record that a child takes no more tasks and will end; it is replaced."""
        place = self._places[member.worker - 1]
        if place.successor is member:
            # The successor leaves without having reported that it is ready.
            self.ready(member)
        if place.current is member:
            place.current, place.start_at = None, now
            self._leave(place, member)

    @staticmethod
    def _leave(place: _Place, member: Member) -> None:
        member.phase = MemberPhase.LEAVING
        place.leaving.append(member)

    def died(self, member: Member, code: int, now: float) -> Fate:
        """Record the end of a child, and return the consequence; a negative code is a signal's number."""
        place = self._places[member.worker - 1]
        was_successor = place.successor is member
        self._remove(place, member)
        if self.stage is not Stage.RUNNING:
            self._remember(member, code)
            return Fate.EXPECTED
        if was_successor:
            self._reload_up_to = 0
            return Fate.RELOAD_FAILED
        if member.phase is MemberPhase.LEAVING:
            return Fate.EXPECTED
        if self._burst and code in (EXIT_CLEAN, EXIT_UNFINISHED):
            place.done = True
            self._remember(member, code)
            return Fate.FINISHED
        return self._process_crash(place, member, code, now)

    def _process_crash(self, place: _Place, member: Member, code: int, now: float) -> Fate:
        if now - member.started_at >= LONG_LIFE:
            place.failures = 0
        place.failures += 1
        place.start_at = now + min(
            LONGEST_RESTART_PAUSE, FIRST_RESTART_PAUSE * 2.0 ** min(place.failures - 1, 10)
        )
        self._deaths.append((now, place.worker))
        while self._deaths[0][0] <= now - DEATHS_WINDOW:
            self._deaths.popleft()
        if code == EXIT_USAGE and member.phase is MemberPhase.STARTING:
            self.close()
            self.exit_code = EXIT_USAGE
            return Fate.HOPELESS
        died = {worker for _, worker in self._deaths}
        if len(self._deaths) >= MOST_DEATHS and all(one.done or one.worker in died for one in self._places):
            self.close()
            self.exit_code = EXIT_GAVE_UP
            return Fate.HOPELESS
        return Fate.RESTARTED

    def reload(self, now: float) -> None:
        """Replace all current children, one after the other (rolling restart); fill empty positions now."""
        self._reload_up_to = self._numbers
        for place in self._places:
            place.start_at, place.failures = min(place.start_at, now), 0

    def stop(self) -> list[Member]:
        """Start no more children, and return the children that must be told to take no more tasks.

        Children that are still starting are ended instead.
        """
        if self.stage is not Stage.RUNNING:
            return []
        self.stage = Stage.STOPPED
        # A child that is still starting cannot process the command.
        self._to_terminate += [member for member in self.members if member.phase is MemberPhase.STARTING]
        return [member for member in self.members if member.phase is MemberPhase.READY]

    def close(self) -> None:
        """Start no more children, and end all of them."""
        if self.stage is not Stage.CLOSING:
            self.stage = Stage.CLOSING
            self._to_terminate = self.members

    def _make_member(self, place: _Place, now: float) -> Member:
        self._numbers += 1
        return Member(place.worker, self._numbers, now, patience=self._limits.end + KILL_MARGIN)

    def _find_next_to_reload(self) -> _Place | None:
        """Return the position whose child is replaced next; None while any child is being replaced."""
        if any(place.successor is not None for place in self._places):
            return None
        old = [one for one in self.members if one.number <= self._reload_up_to]
        if any(member.phase is MemberPhase.LEAVING for member in old):
            return None
        ready = (member for member in old if member.phase is MemberPhase.READY)
        first = next(ready, None)
        return None if first is None else self._places[first.worker - 1]

    def _remove(self, place: _Place, member: Member) -> None:
        if member in self._to_terminate:
            self._to_terminate.remove(member)
        if place.current is member:
            place.current = None
        elif place.successor is member:
            place.successor = None
        else:
            place.leaving.remove(member)

    def _remember(self, member: Member, code: int) -> None:
        if self.exit_code in (EXIT_USAGE, EXIT_GAVE_UP):
            return  # the first reason to give up is kept
        # If a signal ended the child, it had no tasks yet, or the supervisor recovers its tasks.
        if code < 0:
            code = EXIT_CLEAN if member.phase is MemberPhase.STARTING else EXIT_UNFINISHED
        elif code not in (EXIT_CLEAN, EXIT_UNFINISHED, EXIT_OVERDUE):
            code = EXIT_UNFINISHED
        self.exit_code = max(self.exit_code, code)
