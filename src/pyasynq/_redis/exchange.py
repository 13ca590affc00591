"""One round with one Redis server, sans I/O: commands, meaning of replies, and resending.

`advance` turns plans into rounds of calls. `exchange` is one round with one server: a generator of
steps (`Open`, `Send`, `Pause`, `Close`) that a driver performs on a connection and answers. So the
asyncio driver, the blocking driver and tests without Redis share every decision.

A driver promises: a call whose reply says that it did not run (a missing script, a server that is
loading or read-only) is resent until the timeout. A call whose reply was lost is resent as its `Replay`
allows. Every other error belongs to its own plan alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from pyasynq._backoff import jittered_pause
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._redis.reply_errors import (
    WAITED_OUT,
    ReplyError,
    cannot_read_flags,
    denied_commands,
    translate,
)
from pyasynq._redis.session import Close, Open, Pause, Send, greet
from pyasynq.errors import PyasynqError, RedisUnavailableError, ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pyasynq._redis.plan import Argument, Call, PlainCall, Reply
    from pyasynq._redis.session import DriverState, OpenAnswer, Received, RedisSession, SessionStep

_T = TypeVar("_T")
CallResult: TypeAlias = "Reply | Exception"

_IDLE_CHECK: Final = 15.0
_SHORTEST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_SHORTEST_STEP: Final = 0.001


class Unsettled:
    """Type of the marker `UNSETTLED`: the outcome of a call is not known yet."""


UNSETTLED: Final = Unsettled()


def advance(plans: Sequence[Plan[_T]]) -> Generator[list[Call], list[CallResult], list[_T | Exception]]:
    """Advance many plans in lockstep: yield the calls of each round, and take one outcome for each call.

    Returns:
        what each plan returned, or the exception it ended with.
    """
    results: list[_T | Exception | None] = [None] * len(plans)
    running = list(enumerate(plans))
    outcomes: list[CallResult] = [None] * len(plans)
    while running:
        calls: list[Call] = []
        waiting: list[tuple[int, Plan[_T]]] = []
        for (position, plan), outcome in zip(running, outcomes, strict=True):
            try:
                call = plan.throw(outcome) if isinstance(outcome, Exception) else plan.send(outcome)
            except StopIteration as stop:
                results[position] = stop.value
            except Exception as error:  # noqa: BLE001 - whatever ends a plan is that plan's result
                results[position] = error
            else:
                calls.append(call)
                waiting.append((position, plan))
        running = waiting
        if calls:
            outcomes = yield calls
    return cast("list[_T | Exception]", results)


def exchange(
    calls: Sequence[PlainCall], session: RedisSession, state: DriverState
) -> Generator[SessionStep, Any, list[CallResult]]:
    """Send calls to one server, at most until the timeout; return an outcome for each."""
    started = state.monotonic()
    if not session.is_open or started - session.last_used >= _IDLE_CHECK:
        unsettled = Round(calls, session, state, started)
    else:
        # Fast path, taken by nearly every round: the session is open, and no call is refused or lost.
        received: Received = yield Send([build_command(call, session) for call in calls], state.timeout)
        if received.broken is None and not any(isinstance(reply, ReplyError) for reply in received.replies):
            session.last_used = started
            return received.replies
        unsettled = Round(calls, session, state, started)
        unsettled.settle(received)
    yield from unsettled.run()
    return unsettled.outcomes


def build_command(
    call: PlainCall, session: RedisSession, *, replayed: bool = False, by_text: bool = False
) -> tuple[Argument, ...]:
    """Return the Redis command of a call, in the script form that the session's server understands.

    Args:
        call: the call.
        session: the connection, and what its server supports.
        replayed: whether the call may have run before; its script then gets the flag `replay`.
        by_text: whether to send the text of a script (EVAL), not its SHA-1 (EVALSHA).
    """
    if isinstance(call, CommandCall):
        return call.command
    form = call.script.form(session.script_flags)
    args = ("1", *call.args[1:]) if replayed and call.replay is Replay.BY_TOKEN else call.args
    if by_text:
        return ("EVAL", form.text, str(len(call.keys)), *call.keys, *args)
    return ("EVALSHA", form.sha, str(len(call.keys)), *call.keys, *args)


class Round:
    """Calls of one round that have no outcome yet, with their history: resends, missing scripts, breaks."""

    def __init__(
        self, calls: Sequence[PlainCall], session: RedisSession, state: DriverState, started: float
    ) -> None:
        self.outcomes: list[CallResult] = [UNSETTLED] * len(calls)
        self._calls = calls
        self._session = session
        self._state = state
        self._deadline = started + state.timeout
        self._waiting = list(range(len(calls)))
        self._replayed: set[int] = set()
        self._scripts_missing: dict[int, int] = {}
        self._scripts_to_load: set[bytes] = set()
        self._must_pause = False
        self._pauses = 0
        self._breaks = 0
        self._tried = False
        self._cause = "the time-out passed"

    def run(self) -> Generator[SessionStep, Any, None]:
        """Send the calls until each has an outcome or the deadline has passed."""
        while self._waiting:
            if self._must_pause:
                yield from self._pause()
            if self._is_over():
                self._give_up()
                return
            if not (yield from self._make_ready()):
                continue
            yield from self._load_missing_scripts()
            if not self._session.is_open or self._is_over():
                continue
            commands = [self._command(position) for position in self._waiting]
            self.settle((yield from self._send(commands)))

    def _send(self, commands: list[tuple[Argument, ...]]) -> Generator[SessionStep, Any, Received]:
        received: Received = yield Send(commands, self._seconds_for_a_step())
        return received

    def settle(self, received: Received) -> None:
        """Record the replies to the waiting calls as outcomes, in order; calls to resend keep waiting."""
        still_waiting = []
        for position, reply in zip(self._waiting, received.replies, strict=False):
            outcome = self._judge(position, reply) if isinstance(reply, ReplyError) else reply
            if outcome is UNSETTLED:
                still_waiting.append(position)
            else:
                self.outcomes[position] = outcome
        if received.broken is not None:
            still_waiting += self._after_break(self._waiting[len(received.replies) :], received)
        self._waiting = still_waiting
        self._session.last_used = self._state.monotonic()

    def _judge(self, position: int, reply: ReplyError) -> CallResult:
        """Return the outcome for an error reply; `UNSETTLED` if the call is to be resent."""
        if self._will_take_it_later(position, reply):
            return UNSETTLED
        return translate(reply, self._subject(position, reply), self._state.address)

    def _will_take_it_later(self, position: int, reply: ReplyError) -> bool:
        call = self._calls[position]
        if reply.code == "NOSCRIPT" and isinstance(call, ScriptCall):
            times = self._scripts_missing[position] = self._scripts_missing.get(position, 0) + 1
            if times == 1:
                self._scripts_to_load.add(call.script.form(self._session.script_flags).text)
            return times <= 2  # SCRIPT LOAD the first time, EVAL the second
        if self._session.script_flags and cannot_read_flags(reply):
            self._session.script_flags = False
            return True
        if reply.code not in WAITED_OUT:
            return False
        self._cause = str(reply)
        self._must_pause = True
        if reply.code == "READONLY":
            # The server is a demoted primary: a new connection may reach the new primary by the host name.
            self._session.is_open = False
        return True

    def _after_break(self, unanswered: list[int], received: Received) -> list[int]:
        """Record a broken connection; return the calls without a reply that may be resent.

        The other calls without a reply end in `ReplyLostError`.
        """
        self._note_break(received)
        if not received.sent:
            return unanswered
        self._state.note_disconnect()
        again = []
        for position in unanswered:
            if self._calls[position].replay is Replay.NEVER:
                self.outcomes[position] = ReplyLostError(self._state.address, self._cause)
            else:
                self._replayed.add(position)
                again.append(position)
        return again

    def _note_break(self, received: Received) -> None:
        self._cause = received.broken or ""
        self._session.is_open = False
        # After the first break the server may just have restarted; from the second on, pause before retrying.
        self._must_pause |= self._breaks > 0
        self._breaks += 1

    def _make_ready(self) -> Generator[SessionStep, Any, bool]:
        """Check a long idle connection by PING, and open one that is closed; return whether it is open."""
        session = self._session
        if session.is_open and self._state.monotonic() - session.last_used >= _IDLE_CHECK:
            # Half of the time: if the connection is dead, the other half must be enough for a new one.
            pinged: Received = yield Send([("PING",)], self._seconds_for_a_step() / 2)
            session.last_used = self._state.monotonic()
            session.is_open = pinged.broken is None
        if session.is_open:
            return True
        yield Close()
        opened: OpenAnswer = yield Open(self._seconds_to_open())
        if opened is None:
            opened = yield from greet(session, self._state, self._seconds_for_a_step())
        if opened is None:
            session.is_open = True
            return True
        yield Close()
        if not (self._is_over() and self._tried):
            # The error of an attempt that the deadline cut short is less useful than the error before it.
            self._cause = str(opened)
        self._tried = self._must_pause = True
        if isinstance(opened, ReplyError) and opened.code not in WAITED_OUT:
            self._give_up(translate(opened, "the connection", self._state.address))
        elif isinstance(opened, PyasynqError):
            self._give_up(opened)
        return False

    def _load_missing_scripts(self) -> Generator[SessionStep, Any, None]:
        texts, self._scripts_to_load = sorted(self._scripts_to_load), set()
        if not texts or self._session.scripts_refused:
            return
        commands = [("SCRIPT", "LOAD", text) for text in texts]
        received: Received = yield Send(commands, self._seconds_for_a_step())
        errors = [reply for reply in received.replies if isinstance(reply, ReplyError)]
        if received.broken is not None:
            self._note_break(received)
        elif any(cannot_read_flags(error) for error in errors):
            self._session.script_flags = False
        elif any(error.code not in WAITED_OUT for error in errors):
            self._session.scripts_refused = True

    def _command(self, position: int) -> tuple[Argument, ...]:
        times = self._scripts_missing.get(position, 0)
        return build_command(
            self._calls[position],
            self._session,
            replayed=position in self._replayed,
            by_text=times > 1 or (times == 1 and self._session.scripts_refused),
        )

    def _subject(self, position: int, reply: ReplyError) -> str:
        call = self._calls[position]
        if isinstance(call, CommandCall):
            return f"command {call.command[0]!s}"
        commands = denied_commands(reply, call.script.form(self._session.script_flags).text)
        inside = f"{' or '.join(map(repr, commands))} in " if commands else ""
        return f"{inside}script {call.script.name}"

    def _pause(self) -> Generator[SessionStep, Any, None]:
        self._must_pause = False
        seconds = jittered_pause(self._pauses, shortest=_SHORTEST_PAUSE, longest=_LONGEST_PAUSE)
        self._pauses += 1
        yield Pause(min(seconds, self._seconds_for_a_step()))

    def _is_over(self) -> bool:
        # No step is shorter than this. A timer may fire slightly early, so a step that the deadline cut short
        # may end just before it.
        return self._state.monotonic() > self._deadline - _SHORTEST_STEP

    def _seconds_for_a_step(self) -> float:
        # A socket takes zero as "do not block" and refuses negative timeouts.
        return max(self._deadline - self._state.monotonic(), _SHORTEST_STEP)

    def _seconds_to_open(self) -> float:
        return self._seconds_for_a_step()

    def _give_up(self, reason: PyasynqError | None = None) -> None:
        """End the waiting calls with the reason for the failure, or `ReplyLostError` if they may have run."""
        address = self._state.address
        for position in self._waiting:
            if position in self._replayed:
                self.outcomes[position] = ReplyLostError(address, self._cause)
            else:
                self.outcomes[position] = reason or RedisUnavailableError(address, self._cause)
        self._waiting = []
