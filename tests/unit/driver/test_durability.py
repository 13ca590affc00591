"""Calls and errors of a durable enqueue, without a server."""

from __future__ import annotations

from typing import Any

from pyasynq._redis.durability import Confirmation, Confirmed, durably
from pyasynq._redis.plan import DurableCall, Plan, Replay
from pyasynq._redis.reply_errors import ReplyError
from pyasynq._redis.session import Received
from tests.unit.driver.scripted import GREETING, ScriptedServer, call, command, evalsha

FENCE = [("SET", "{q}:x:fence", 1, "EX", 1), ("WAIT", 2, 3750)]


def durable(replicas: int = 2, arg: str = "x") -> DurableCall:
    """Return a durable call."""
    return DurableCall(call(Replay.BY_TOKEN, arg=arg), "{q}:x:fence", replicas)


def test_replicas_are_asked_once_behind_a_write_on_the_same_connection() -> None:
    """For the most that any call wants; three quarters of the time-out are theirs."""
    server = ScriptedServer([1, 2, b"plain"], [b"OK", 2])
    found = server.exchange(durable(1), durable(2), command("GET", "k"))
    enough = Confirmation(2, "")
    assert [Confirmed(1, enough), Confirmed(2, enough), b"plain"] == found
    assert [[evalsha(), evalsha(), ("GET", "k")], FENCE] == server.asked


def test_a_round_without_durable_calls_asks_for_nothing_more() -> None:
    """One send."""
    server = ScriptedServer([1])
    assert [1] == server.exchange(call())
    assert [[evalsha()]] == server.asked


def test_a_call_that_failed_is_not_waited_for() -> None:
    """Its error is its outcome."""
    server = ScriptedServer([ReplyError("OOM", "full")])
    [error] = server.exchange(durable())
    assert isinstance(error, Exception)


def test_too_few_replicas_are_explained_by_how_many_there_are() -> None:
    """INFO is asked only then."""
    server = ScriptedServer([1], [b"OK", 1], [b"role:master\r\nconnected_slaves:1\r\n"])
    [found] = server.exchange(durable())
    assert Confirmation(1, "1 are connected, and no more answered within 3.75 s") == found.confirmation


def test_where_info_is_refused_the_number_is_left_out() -> None:
    """Managed servers may refuse it."""
    server = ScriptedServer([1], [b"OK", 0], [ReplyError("NOPERM", "no INFO")])
    [found] = server.exchange(durable())
    assert "no more answered within 3.75 s" == found.confirmation.cause


def test_a_demoted_primary_confirms_nothing() -> None:
    """It refuses the write behind the task."""
    server = ScriptedServer(
        [1], [ReplyError("READONLY", "replica"), ReplyError("ERR", "WAIT cannot be used")]
    )
    [found] = server.exchange(durable())
    assert 0 == found.confirmation.replicas
    assert "SET was refused: READONLY" in found.confirmation.cause


def test_a_connection_that_breaks_while_replicas_are_asked_confirms_nothing() -> None:
    """The call is not sent again, and the session is closed."""
    server = ScriptedServer([1], Received([], "reset"))
    [found] = server.exchange(durable())
    assert Confirmation(0, "the connection broke while they were asked (reset)") == found.confirmation
    assert not server.session.is_open


def test_a_lone_call_that_was_sent_again_is_waited_for() -> None:
    """Its answer came over the connection that replicas are asked on."""
    server = ScriptedServer(Received([], "reset"), None, GREETING, [1], [b"OK", 2])
    [found] = server.exchange(durable())
    assert Confirmation(2, "") == found.confirmation
    assert FENCE == server.asked[-1]


def test_calls_of_which_some_were_answered_before_the_break_are_not_confirmed() -> None:
    """The server that is asked need not be the one that answered the first."""
    server = ScriptedServer(Received([1], "reset"), None, GREETING, [2])
    first, second = server.exchange(durable(), durable(arg="y"))
    assert [1, 2] == [first.reply, second.reply]
    assert 0 == first.confirmation.replicas == second.confirmation.replicas


def test_a_plan_sees_plain_replies_and_its_result_comes_with_the_confirmation() -> None:
    """Only what is sent with a token is waited for; errors reach the plan."""

    def plan() -> Plan[list[Any]]:
        seen = [(yield command("SADD", "k"))]
        try:
            yield call(Replay.BY_TOKEN)
        except ValueError as error:
            seen.append(str(error))
        return [*seen, (yield call(Replay.BY_TOKEN))]

    steps = durably(plan(), marker="{q}:x:fence", replicas=2)
    assert command("SADD", "k") == next(steps)
    assert durable() == steps.send(1)
    assert durable() == steps.throw(ValueError("no"))
    known = Confirmation(2, "")
    try:
        steps.send(Confirmed(7, known))
    except StopIteration as stop:
        assert ([1, "no", 7], known) == stop.value  # noqa: PT017 - the end of a generator
    else:
        raise AssertionError


def test_a_durable_call_is_routed_by_the_key_behind_it() -> None:
    """Which is one of its queue, as all keys of a script are."""
    assert "{q}:x:fence" == durable().key
