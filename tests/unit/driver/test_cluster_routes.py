from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.cluster.routes import route
from pyasynq._redis.cluster.slot_map import SLOTS, ClusterMap, guard_key, slot_of
from pyasynq._redis.cluster.visit import NO_ANSWER, UnsettledCall, Visit
from pyasynq._redis.plan import CommandCall, DurableCall, Replay, ScriptCall
from pyasynq._redis.session import DriverState
from pyasynq._redis.steps import Pause
from pyasynq.errors import RedisPermissionError, RedisReplyError, RedisUnavailableError, ReplyLostError
from tests.unit.driver.scripted import ONE

if TYPE_CHECKING:
    from pyasynq._redis.plan import Call

A, B, C = ("a", 1), ("b", 2), ("c", 3)
HALF = SLOTS // 2
MAP = [[0, HALF - 1, [b"a", 1, b"id-a"]], [HALF, SLOTS - 1, [b"b", 2, b"id-b"]]]
LOW, HIGH = 5, HALF + 5
"""Slots of A and of B."""
GONE = UnsettledCall(NO_ANSWER, "nothing listens there", False)
LOST = UnsettledCall(NO_ANSWER, "the server closed the connection", True)


def at(place: int | None, word: str = "x", replay: Replay = Replay.SAFE) -> CommandCall:
    """Make a call of a place."""
    return CommandCall((word,), place, replay)


def answer(code: str, text: str = "") -> UnsettledCall:
    """Return what a node that refuses gives back."""
    return UnsettledCall(code, f"{code} {text}", False)


class ScriptedCluster:
    """Answers rounds of visits from a list: for each visit in turn, its outcomes."""

    def __init__(self, *answers: list[Any], known: bool = True) -> None:
        self.answers = list(answers)
        self.nodes = ClusterMap([A, B])
        if known:
            self.nodes.learn(MAP, A)
        self.made: list[list[Visit]] = []
        self.now = 1_000.0
        self.pauses = 0
        self.state = DriverState("a:1,b:2", "test", 5.0, SYSTEM_CLOCK, print, lambda: self.now)

    def route(self, *calls: Call) -> list[Any]:
        """Perform a round; every answer must have been used at the end."""
        outcomes = self.perform(*calls)
        assert [] == self.answers
        return outcomes

    def perform(self, *calls: Call) -> list[Any]:
        steps = route(calls, self.nodes, self.state)
        given: Any = None
        try:
            while True:
                step = steps.send(given)
                if isinstance(step, Pause):
                    self.pauses += 1
                    self.now += step.seconds
                    given = None
                else:
                    self.made.append(step)
                    self.now += 0.01
                    given = self.answers.pop(0) if self.answers else [[GONE] * len(visit) for visit in step]
        except StopIteration as stop:
            return list(stop.value)

    @property
    def visited(self) -> list[list[tuple[Any, ...]]]:
        """Where each round went, and with which words."""
        return [
            [(visit.node, *(_word(call) for call in visit.calls)) for visit in visits] for visits in self.made
        ]


def _word(call: Call) -> Any:
    if isinstance(call, DurableCall):
        return _word(call.call)
    return call.script.name if isinstance(call, ScriptCall) else call.command[0]


def test_calls_go_to_the_nodes_of_their_keys_together() -> None:
    """One visit for each node, the calls in their order, and an outcome for each in its place."""
    cluster = ScriptedCluster([["a1", "a2"], ["b1"]])
    assert ["a1", "b1", "a2"] == cluster.route(at(LOW, "one"), at(HIGH, "two"), at(LOW, "three"))
    assert [[(A, "one", "three"), (B, "two")]] == cluster.visited


def test_the_key_of_a_call_says_where_it_goes() -> None:
    """A script's first one, which all of its others share the slot of."""
    cluster = ScriptedCluster([[1], [2]])
    keys = sorted(["{q0}:key", "{q3}:key", "{q1}:key", "{q2}:key"], key=slot_of)
    low, high = keys[0], keys[-1]
    assert slot_of(low) < HALF <= slot_of(high)
    script = ScriptCall(ONE, (low,), ("0",), Replay.SAFE)
    assert [1, 2] == cluster.route(script, CommandCall(("GET", high), high, Replay.SAFE))
    assert [[(A, "test/one"), (B, "GET")]] == cluster.visited


def test_w25_a_script_names_a_key_more_that_never_exists() -> None:
    """So a node that has only a part of the slot's keys refuses it before it has begun."""
    cluster = ScriptedCluster([[1]])
    cluster.route(ScriptCall(ONE, ("asynq:{q}:pending",), ("0",), Replay.SAFE))
    assert guard_key("asynq:{q}:pending") is not None
    [[visit]] = cluster.made
    [call] = visit.calls
    assert isinstance(call, ScriptCall)
    assert ("asynq:{q}:pending", guard_key("asynq:{q}:pending")) == call.keys


def test_a_map_that_is_not_known_is_learned_first() -> None:
    """From the first node that answers."""
    cluster = ScriptedCluster([[GONE]], [[MAP]], [["reply"]], known=False)
    assert ["reply"] == cluster.route(at(HIGH))
    assert [[(A, "CLUSTER")], [(B, "CLUSTER")], [(B, "x")]] == cluster.visited


def test_who_does_not_answer_when_asked_for_the_map_gets_half_of_the_time() -> None:
    """The rest is for the others."""
    cluster = ScriptedCluster([[MAP]], [["reply"]], known=False)
    cluster.route(at(LOW))
    assert 1_002.5 == cluster.made[0][0].deadline
    assert 1_005.0 == cluster.made[1][0].deadline


def test_a_call_of_no_key_goes_to_any_primary_that_answers() -> None:
    """And to another when the first one does not."""
    cluster = ScriptedCluster([[GONE]], [[MAP]], [["pong"]])
    assert ["pong"] == cluster.route(at(None))
    assert [(A, "x")] == cluster.visited[0]
    assert [(B, "x")] == cluster.visited[2]


def test_moved_is_followed_and_the_map_learned_once() -> None:
    """By who serves the slot now; the other call's reply stands."""
    new_map = [[0, HALF - 1, [b"c", 3, b"id-c"]], MAP[1]]
    cluster = ScriptedCluster(
        [[answer("MOVED", f"{LOW} c:3"), "kept"]], [[new_map]], [["reply"]], [["again"]]
    )
    assert ["reply", "kept"] == cluster.perform(at(LOW, "one"), at(LOW + 1, "two"))
    assert ["again"] == cluster.route(at(LOW + 1, "three"))
    assert [[(A, "one", "two")], [(C, "CLUSTER")], [(C, "one")], [(C, "three")]] == cluster.visited
    assert 0 == cluster.pauses


def test_ask_is_followed_with_leave_and_only_once() -> None:
    """The next call of the slot goes to who serves it."""
    cluster = ScriptedCluster([[answer("ASK", f"{LOW} b:2")]], [["there"]], [["here"]])
    assert ["there"] == cluster.perform(at(LOW))
    assert ["here"] == cluster.route(at(LOW))
    assert [(A, False), (B, True), (A, False)] == [(visit.node, visit.asking) for [visit] in cluster.made]


def test_a_call_that_may_ask_and_one_that_may_not_are_two_visits_of_a_node() -> None:
    """The leave is for single commands."""
    cluster = ScriptedCluster([[answer("ASK", f"{LOW} b:2")], [answer("TRYAGAIN")]], [["asked"], ["own"]])
    assert ["asked", "own"] == cluster.route(at(LOW), at(HIGH))
    assert {(B, True), (B, False)} == {(visit.node, visit.asking) for visit in cluster.made[1]}


def test_nodes_that_send_a_call_to_and_fro_are_given_time() -> None:
    """They have not agreed yet; without rests it would be a storm."""
    to_b: list[Any] = [[answer("MOVED", f"{LOW} b:2")]]
    to_a: list[Any] = [[answer("MOVED", f"{LOW} a:1")]]
    cluster = ScriptedCluster(*[to_b, [[MAP]], to_a] * 4, [["reply"]])
    assert ["reply"] == cluster.route(at(LOW))
    assert 5 == cluster.pauses


@pytest.mark.parametrize("code", ["TRYAGAIN", "BUSY", "MISCONF", "NOREPLICAS"])
def test_h20_what_passes_is_waited_out_where_it_is(code: str) -> None:
    """The others of the round are not sent again."""
    answers: list[list[Any]] = [[["a"], [answer(code)]]]
    answers += [[[MAP]]] if code != "TRYAGAIN" else []
    cluster = ScriptedCluster(*answers, [["b"]])
    assert ["a", "b"] == cluster.route(at(LOW), at(HIGH))
    assert [(B, "x")] == cluster.visited[-1]
    assert 1 == cluster.pauses


@pytest.mark.parametrize("code", ["CLUSTERDOWN", "READONLY", "LOADING", "MASTERDOWN"])
def test_h20_who_serves_a_slot_no_more_is_found_by_a_new_map(code: str) -> None:
    """After a rest, since a replica takes a while to be elected."""
    new_map = [MAP[0], [HALF, SLOTS - 1, [b"c", 3, b"id-c"]]]
    cluster = ScriptedCluster([[answer(code)]], [[new_map]], [["reply"]])
    assert ["reply"] == cluster.route(at(HIGH, replay=Replay.NEVER))
    assert [[(B, "x")], [(A, "CLUSTER")], [(C, "x")]] == cluster.visited
    assert 1 == cluster.pauses


def test_a_node_that_is_gone_is_asked_last_and_replaced_by_the_new_map() -> None:
    """At once the first time: it may have been replaced long ago."""
    new_map = [[0, HALF - 1, [b"c", 3, b"id-c"]], MAP[1]]
    cluster = ScriptedCluster([[GONE]], [[new_map]], [["reply"]])
    assert ["reply"] == cluster.route(at(LOW, replay=Replay.NEVER))
    assert [[(A, "x")], [(B, "CLUSTER")], [(C, "x")]] == cluster.visited
    assert 0 == cluster.pauses


def test_a_call_that_may_have_run_keeps_that_to_the_end() -> None:
    """Wherever it is sent next."""
    cluster = ScriptedCluster([[LOST]], [[MAP]], [[answer("MOVED", f"{LOW} b:2")]], [[MAP]], [["reply"]])
    assert ["reply"] == cluster.route(at(LOW, replay=Replay.BY_TOKEN))
    assert [[], [0], [0]] == [
        list(visit.replayed) for [visit] in cluster.made if visit.calls[0] == at(LOW, replay=Replay.BY_TOKEN)
    ]


def test_what_has_no_outcome_in_time_was_not_done_or_may_have_been() -> None:
    """The error says why, and which of the two; the others of the round have their replies."""
    cluster = ScriptedCluster([[GONE, LOST], ["b"]])
    first, second, third = cluster.perform(at(LOW), at(LOW), at(HIGH))
    assert "b" == third
    assert type(first) is RedisUnavailableError
    assert "a:1: nothing listens there" in str(first)
    assert type(second) is ReplyLostError
    assert cluster.now >= 1_004.5


def test_a_slot_that_nobody_serves_is_waited_for() -> None:
    """The error names it."""
    cluster = ScriptedCluster(*[[[MAP[:1]]]] * 50, known=False)
    [outcome] = cluster.perform(at(HIGH))
    assert isinstance(outcome, RedisUnavailableError)
    assert f"no node serves slot {HIGH}" in str(outcome)


def test_a_single_server_is_no_cluster_and_the_error_says_so() -> None:
    """At once: it will not become one."""
    refusal = RedisReplyError("command CLUSTER was refused: ERR This instance has cluster support disabled")
    cluster = ScriptedCluster([[refusal]], [[refusal]], known=False)
    [outcome] = cluster.route(at(LOW))
    assert "a single server's URL begins with redis://" in str(outcome)
    assert 0 == cluster.pauses


def test_who_may_not_ask_for_the_map_is_told_which_right_is_missing() -> None:
    """At once."""
    refusal = RedisPermissionError("command CLUSTER was refused: NOPERM ...")
    cluster = ScriptedCluster([[refusal]], [[refusal]], known=False)
    assert [refusal] == cluster.route(at(LOW))


def test_an_error_of_one_call_touches_no_other() -> None:
    """It is an outcome like any other."""
    refusal = RedisReplyError("WRONGTYPE")
    cluster = ScriptedCluster([["one", refusal]])
    assert ["one", refusal] == cluster.route(at(LOW), at(LOW))
