"""Durable writes: Redis' WAIT, so that replicas have a write before its caller goes on.

WAIT counts the replicas that have everything *this connection* wrote. So WAIT is sent on the connection that
answered the write, after another write (the marker). The marker is needed because a resent call may write
nothing this time: then WAIT would have nothing to wait for. If the connection breaks in between, it is not
known whether the server that it then leads to has the write. Resending could run the task twice, so the
caller gets an error instead. Under a test kit, whose server has no replicas, WAIT is skipped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from pyasynq._redis import guard
from pyasynq._redis.exchange import exchange
from pyasynq._redis.plan import Call, DurableCall, Plan, Replay
from pyasynq._redis.reply_errors import ReplyError
from pyasynq._redis.session import Open, Send

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pyasynq._redis.exchange import CallResult
    from pyasynq._redis.plan import PlainCall, Reply
    from pyasynq._redis.session import DriverState, Received, RedisSession, SessionStep

_T = TypeVar("_T")

_SHARE: Final = 0.75
"""Share of the timeout that is spent waiting for replicas; the rest is for the network."""
_REPLICAS: Final = re.compile(rb"connected_slaves:(\d+)")


class Confirmation(NamedTuple):
    """Number of replicas that have a write and, if there are too few, the reason."""

    replicas: int
    cause: str


class Confirmed(NamedTuple):
    """The reply to a `DurableCall`: the reply to the write, and the confirmation by replicas."""

    reply: Reply
    confirmation: Confirmation


def durably(plan: Plan[_T], *, marker: str, replicas: int) -> Plan[tuple[_T, Confirmation | None]]:
    """Run a plan whose writes this many replicas are to have; return its result and the last confirmation.

    The confirmation is None if the plan has written nothing. `marker` is a key that is written after each
    write, on the same node.
    """
    confirmation: Confirmation | None = None
    try:
        call = next(plan)
        while True:
            if call.replay is Replay.BY_TOKEN and not isinstance(call, DurableCall):
                call = DurableCall(call, marker, replicas)
            try:
                reply = yield call
            except Exception as error:  # noqa: BLE001 - the plan handles it
                call = plan.throw(error)
                continue
            if isinstance(reply, Confirmed):
                reply, confirmation = reply
            call = plan.send(reply)
    except StopIteration as stop:
        return stop.value, confirmation


def exchange_durably(
    calls: Sequence[Call], session: RedisSession, state: DriverState
) -> Generator[SessionStep, Any, list[CallResult]]:
    """Send calls to one server as `exchange` does; wait for replicas if a call is a `DurableCall`."""
    if DurableCall not in map(type, calls):
        return exchange(cast("Sequence[PlainCall]", calls), session, state)
    plain = [call.call if isinstance(call, DurableCall) else call for call in calls]
    return confirm_writes(calls, exchange(plain, session, state), session, state)


def confirm_writes(
    calls: Sequence[Call],
    steps: Generator[SessionStep, Any, list[Any]],
    session: RedisSession,
    state: DriverState,
    *,
    unsettled: type[Any] = Exception,
) -> Generator[SessionStep, Any, list[Any]]:
    """Perform the steps that send calls, then wait until replicas have the answered writes.

    Exceptions are not answers, nor are outcomes of the class `unsettled`.
    """
    outcomes, has_moved = yield from _track_reopening(steps)
    written = {
        position: call
        for position, call in enumerate(calls)
        if isinstance(call, DurableCall) and not isinstance(outcomes[position], (Exception, unsettled))
    }
    if not written:
        return outcomes
    if guard.is_on():
        confirmation = Confirmation(max(call.replicas for call in written.values()), "")
    elif has_moved and len(calls) > 1:
        # The server of the broken connection may have answered some of the calls.
        confirmation = Confirmation(0, "the connection broke, and may lead to another server now")
    else:
        wanted = max(call.replicas for call in written.values())
        marker = next(iter(written.values())).marker
        confirmation = yield from _wait(wanted, marker, session, state)
    for position in written:
        outcomes[position] = Confirmed(outcomes[position], confirmation)
    return outcomes


def _track_reopening(
    steps: Generator[SessionStep, Any, list[CallResult]],
) -> Generator[SessionStep, Any, tuple[list[CallResult], bool]]:
    """Forward the steps of an exchange; return its outcomes, and whether it reopened a used connection."""
    answer: Any = None
    has_sent = has_moved = False
    try:
        while True:
            step = steps.send(answer)
            has_moved |= has_sent and isinstance(step, Open)
            has_sent |= isinstance(step, Send)
            answer = yield step
    except StopIteration as stop:
        return stop.value, has_moved


def _wait(
    wanted: int, marker: str, session: RedisSession, state: DriverState
) -> Generator[SessionStep, Any, Confirmation]:
    if not session.is_open:
        return Confirmation(0, "the connection broke before they could be asked")
    seconds = state.timeout * _SHARE
    commands = [("SET", marker, 1, "EX", 1), ("WAIT", wanted, max(1, int(seconds * 1_000)))]
    received: Received = yield Send(commands, state.timeout)
    session.last_used = state.monotonic()
    if received.broken is not None:
        session.is_open = False
        return Confirmation(0, f"the connection broke while they were asked ({received.broken})")
    for name, reply in zip(("SET", "WAIT"), received.replies, strict=True):
        if isinstance(reply, ReplyError):
            return Confirmation(0, f"{name} was refused: {reply}")
    found: int = received.replies[1]  # type: ignore[assignment] # errors are handled above
    if found >= wanted:
        return Confirmation(found, "")
    return Confirmation(found, (yield from _cause(seconds, session, state)))


def _cause(seconds: float, session: RedisSession, state: DriverState) -> Generator[SessionStep, Any, str]:
    told: Received = yield Send([("INFO", "replication")], state.timeout)
    if told.broken is not None:
        session.is_open = False
    elif not isinstance(told.replies[0], ReplyError):
        connected = _REPLICAS.search(told.replies[0])
        if connected is not None and int(connected[1]) == 0:
            return "the server has none; give it one (replicaof), or leave durable= out"
        if connected is not None:
            return f"{int(connected[1])} are connected, and no more answered within {seconds:.3g} s"
    return f"no more answered within {seconds:.3g} s"
