from __future__ import annotations

from typing import Any

import pytest

from pyasynq._redis.cluster.visit import UnsettledCall, Visit, visit
from pyasynq._redis.plan import Call, Replay
from pyasynq._redis.reply_errors import ReplyError
from pyasynq._redis.session import Open, Received
from pyasynq.errors import RedisAuthenticationError, RedisPermissionError, RedisReplyError, ReplyLostError
from tests.unit.driver.scripted import GREETING, ScriptedServer, call, command, evalsha

NODE = ("a", 1)


class ScriptedNode(ScriptedServer):
    """A node, and one visit of it."""

    def visit(self, *calls: Call, replayed: tuple[int, ...] = (), asking: bool = False) -> list[Any]:
        """Make the visit; every answer must have been used at the end."""
        wanted = Visit(NODE, calls, self.now + 5.0, replayed, asking)
        steps = visit(wanted, self.session, self.state)
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                self.opened = step.seconds if isinstance(step, Open) else 0.0
                answer = self._answer(step)
        except StopIteration as stop:
            assert [] == self.answers
            return list(stop.value)


def test_what_a_node_answers_is_the_outcome() -> None:
    """One send, one reply each."""
    node = ScriptedNode([1, b"two"])
    assert [1, b"two"] == node.visit(call(), command("GET", "k"))
    assert [[evalsha(), ("GET", "k")]] == node.asked


def test_a_missing_script_is_loaded_on_that_node() -> None:
    """The calls are then sent to that node again."""
    node = ScriptedNode([ReplyError("NOSCRIPT", "")], [b"sha"], [7])
    assert [7] == node.visit(call())


@pytest.mark.parametrize(
    "code",
    ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "LOADING", "MASTERDOWN", "BUSY", "MISCONF"],
)
def test_what_another_node_may_settle_is_given_back_at_once(code: str) -> None:
    """Without a rest: what the other calls have got need not wait for it here."""
    node = ScriptedNode([1, ReplyError(code, "why")])
    assert [1, UnsettledCall(code, f"{code} why", False)] == node.visit(call(), call())
    assert 0 == node.pauses


def test_an_error_belongs_to_its_own_call() -> None:
    """Such as a wrong type."""
    node = ScriptedNode([1, ReplyError("WRONGTYPE", "")])
    first, second = node.visit(call(), call())
    assert 1 == first
    assert isinstance(second, RedisReplyError)


def test_after_a_break_each_call_is_treated_by_its_replay() -> None:
    """A call that may be repeated goes to the node that then serves its slot."""
    node = ScriptedNode(Received([1], "broken pipe"))
    first, never, token = node.visit(call(), call(Replay.NEVER), call(Replay.BY_TOKEN))
    assert 1 == first
    assert isinstance(never, ReplyLostError)
    assert UnsettledCall("", "broken pipe", True) == token


def test_a_connection_that_was_closed_while_idle_is_made_again() -> None:
    """The node need not be gone for that."""
    node = ScriptedNode(Received([], "closed", sent=False), None, GREETING, [7])
    assert [7] == node.visit(call(Replay.NEVER))


def test_a_node_that_cannot_be_reached_gives_all_back() -> None:
    """After one try, which may take half of the time: somebody else has to be asked in the rest."""
    node = ScriptedNode("nothing listens there", is_open=False)
    assert [UnsettledCall("", "nothing listens there", False)] * 2 == node.visit(call(), call(Replay.NEVER))
    assert ["close", "open", "close"] == node.asked
    assert 0 == node.pauses


def test_connecting_takes_half_of_the_time_at_most() -> None:
    """The other half is left for a second try."""
    seconds = []

    class Timed(ScriptedNode):
        def _answer(self, step: Any) -> Any:
            if isinstance(step, Open):
                seconds.append(step.seconds)
            return super()._answer(step)

    Timed(None, GREETING, [1], is_open=False).visit(call())
    assert [2.5] == seconds


def test_what_time_does_not_mend_is_final() -> None:
    """A wrong password is wrong on all nodes; but what may have run may have run."""
    node = ScriptedNode(ReplyError("WRONGPASS", "no"), is_open=False)
    first, second = node.visit(call(), call(), replayed=(1,))
    assert isinstance(first, RedisAuthenticationError)
    assert isinstance(second, ReplyLostError)


def test_a_call_that_may_have_run_is_sent_with_its_flag() -> None:
    """The outcome of the call is still marked as a replay."""
    node = ScriptedNode([ReplyError("MOVED", "1 b:2")])
    [outcome] = node.visit(call(Replay.BY_TOKEN), replayed=(0,))
    assert [[evalsha(replayed=True)]] == node.asked
    assert outcome.replayed


def test_leave_is_asked_before_each_call() -> None:
    """It holds for the one command that follows it."""
    node = ScriptedNode([b"OK", 1, b"OK", ReplyError("TRYAGAIN", "")])
    assert [1, UnsettledCall("TRYAGAIN", "TRYAGAIN ", False)] == node.visit(
        call(arg="a"), call(arg="b"), asking=True
    )
    assert [[("ASKING",), evalsha(arg="a"), ("ASKING",), evalsha(arg="b")]] == node.asked


def test_leave_and_call_may_be_parted_by_a_break() -> None:
    """The call may have run."""
    node = ScriptedNode(Received([b"OK", 1, b"OK"], "broken pipe"))
    assert [1, UnsettledCall("", "broken pipe", True)] == node.visit(call(), call(), asking=True)


def test_a_missing_right_to_send_asking_is_named() -> None:
    """Otherwise the call would be sent to and fro."""
    node = ScriptedNode([ReplyError("NOPERM", "asking"), ReplyError("MOVED", "1 b:2")])
    [outcome] = node.visit(call(), asking=True)
    assert isinstance(outcome, RedisPermissionError)
    assert "ASKING" in str(outcome)
