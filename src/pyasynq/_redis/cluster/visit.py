"""One exchange with one node of a cluster: calls without an outcome are returned, for another node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq._redis.durability import confirm_writes
from pyasynq._redis.exchange import Round
from pyasynq._redis.plan import DurableCall
from pyasynq._redis.reply_errors import WAITED_OUT, ReplyError, translate
from pyasynq._redis.session import Received, Send

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Sequence

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.exchange import CallResult
    from pyasynq._redis.plan import Argument, Call, PlainCall
    from pyasynq._redis.session import DriverState, RedisSession, SessionStep
    from pyasynq.errors import PyasynqError

_ELSEWHERE: Final = WAITED_OUT | {"MOVED", "ASK"}
NO_ANSWER: Final = ""
_ASKING: Final = ("ASKING",)


class UnsettledCall(NamedTuple):
    """A call without an outcome after a visit: redirected, refused for now, or not answered.

    Attributes:
        code: code of the node's error reply, or `NO_ANSWER`.
        cause: description of the reason, for error messages.
        replayed: whether the call may have run.
    """

    code: str
    cause: str
    replayed: bool


@dataclass(frozen=True, slots=True)
class Visit:
    """One exchange of calls with one node.

    Attributes:
        node: its address.
        calls: the calls, sent in this order.
        replayed: positions of calls that may have run before, in an earlier visit.
        asking: whether to send ASKING before each call, because its slot is still moving to this node.
        deadline: monotonic time at which the visit ends.
    """

    node: Address
    calls: Sequence[Call]
    deadline: float
    replayed: Collection[int] = ()
    asking: bool = False

    def __len__(self) -> int:
        """Return the number of calls."""
        return len(self.calls)


def visit(
    wanted: Visit, session: RedisSession, state: DriverState
) -> Generator[SessionStep, Any, list[CallResult | UnsettledCall]]:
    """Send calls to a node once; return an outcome or an `UnsettledCall` for each."""
    calls = [call.call if isinstance(call, DurableCall) else call for call in wanted.calls]
    steps = _send_once(_NodeRound(wanted, calls, session, state))
    if DurableCall not in map(type, wanted.calls):
        return steps
    return confirm_writes(wanted.calls, steps, session, state, unsettled=UnsettledCall)


def _send_once(one: _NodeRound) -> Generator[SessionStep, Any, list[CallResult | UnsettledCall]]:
    yield from one.run()
    return one.outcomes


class _NodeRound(Round):
    """A round with one cluster node: calls that another node may serve are returned without an outcome."""

    def __init__(
        self, wanted: Visit, calls: Sequence[PlainCall], session: RedisSession, state: DriverState
    ) -> None:
        super().__init__(calls, session, state, state.monotonic())
        self._deadline = wanted.deadline
        self._replayed = set(wanted.replayed)
        self._asking = wanted.asking
        self._left = False

    def _judge(self, position: int, reply: ReplyError) -> CallResult:
        if reply.code in _ELSEWHERE:
            return UnsettledCall(reply.code, str(reply), position in self._replayed)
        return super()._judge(position, reply)

    def _after_break(self, unanswered: list[int], received: Received) -> list[int]:
        again = super()._after_break(unanswered, received)
        if received.sent:
            self._left = True
        return again

    def _pause(self) -> Generator[SessionStep, Any, None]:
        self._left = True
        yield from ()

    def _is_over(self) -> bool:
        return self._left or super()._is_over()

    def _seconds_to_open(self) -> float:
        # Half the time: if connecting fails, the other half must be enough to find and call the new owner.
        return super()._seconds_to_open() / 2

    def _give_up(self, reason: PyasynqError | None = None) -> None:
        if reason is not None:
            super()._give_up(reason)
            return
        for position in self._waiting:
            self.outcomes[position] = UnsettledCall(NO_ANSWER, self._cause, position in self._replayed)
        self._waiting = []

    def _send(self, commands: list[tuple[Argument, ...]]) -> Generator[SessionStep, Any, Received]:
        if not self._asking:
            return (yield from super()._send(commands))
        # ASKING applies only to the command that follows it.
        asked = [one for command in commands for one in (_ASKING, command)]
        received: Received = yield Send(asked, self._seconds_for_a_step())
        for leave in received.replies[::2]:
            if isinstance(leave, ReplyError) and leave.code == "NOPERM":
                self._give_up(translate(leave, "command ASKING"))
                return Received([])
        return received._replace(replies=received.replies[1::2])
