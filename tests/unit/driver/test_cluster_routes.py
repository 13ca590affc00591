from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.cluster.routes import route
from pyasynq._redis.cluster.slot_map import SLOTS, ClusterMap, find_slot, guard_key
from pyasynq._redis.cluster.view import VIEW_QUESTIONS, ClusterView
from pyasynq._redis.cluster.visit import NO_ANSWER, UnsettledCall, Visit
from pyasynq._redis.plan import CommandCall, DurableCall, Replay, ScriptCall
from pyasynq._redis.session import DriverState, Pause
from pyasynq.errors import RedisPermissionError, RedisReplyError, RedisUnavailableError, ReplyLostError
from tests.unit.driver.scripted import ONE

if TYPE_CHECKING:
    from pyasynq._redis.addresses import Address
    from pyasynq._redis.plan import Call

A, B, C, D, E = ("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5)
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
    """Answers rounds of visits from a list: for each visit in turn, its outcomes.

    Requests for the map are answered from `views`: CLUSTER SLOTS and the epochs of the owners, or an
    `UnsettledCall` or an error. Other nodes are gone.
    """

    def __init__(self, *answers: list[Any], known: bool = True, seeds: tuple[Address, ...] = (A, B)) -> None:
        self.answers = list(answers)
        self.nodes = ClusterMap(seeds)
        self.views: dict[Address, Any] = dict.fromkeys((A, B), MAP)
        self.epochs: dict[Address, dict[str, int]] = {}
        self.now = 1_000.0
        if known:
            self.nodes.learn([ClusterView(A, MAP)], self.now)
        self.made: list[list[Visit]] = []
        self.pauses = 0
        self.slow: set[Address] = set()
        """Nodes that swallow what they are sent."""
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
                    given = self._answer(step)
                    # Half of the time of a visit is for connecting.
                    late = [(self.now + visit.deadline) / 2 for visit in step if visit.node in self.slow]
                    self.now = max([self.now, *late])
        except StopIteration as stop:
            return list(stop.value)

    def _answer(self, visits: list[Visit]) -> list[Any]:
        if visits[0].calls == VIEW_QUESTIONS:
            return [self._view(visit.node) for visit in visits]
        return self.answers.pop(0) if self.answers else [[GONE] * len(visit) for visit in visits]

    def _view(self, node: Address) -> list[Any]:
        lines = [f"id-{name} x flags - 0 0 {epoch} x" for name, epoch in self.epochs.get(node, {}).items()]
        return [self.views.get(node, GONE), "\n".join(lines).encode()]

    @property
    def visited(self) -> list[list[tuple[Any, ...]]]:
        """Where each round went, and with which words."""
        return [
            [(visit.node, *dict.fromkeys(_word(call) for call in visit.calls)) for visit in visits]
            for visits in self.made
        ]


def _word(call: Call) -> Any:
    if isinstance(call, DurableCall):
        return _word(call.call)
    if call in VIEW_QUESTIONS:
        return "?"
    return call.script.name if isinstance(call, ScriptCall) else call.command[0]


def test_calls_go_to_the_nodes_of_their_keys_together() -> None:
    """One visit for each node, the calls in their order, and an outcome for each in its place."""
    cluster = ScriptedCluster([["a1", "a2"], ["b1"]])
    assert ["a1", "b1", "a2"] == cluster.route(at(LOW, "one"), at(HIGH, "two"), at(LOW, "three"))
    assert [[(A, "one", "three"), (B, "two")]] == cluster.visited


def test_the_key_of_a_call_says_where_it_goes() -> None:
    """A script's first one, which all of its others share the slot of."""
    cluster = ScriptedCluster([[1], [2]])
    keys = sorted(["{q0}:key", "{q3}:key", "{q1}:key", "{q2}:key"], key=find_slot)
    low, high = keys[0], keys[-1]
    assert find_slot(low) < HALF <= find_slot(high)
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
    """From those that answer, of some that are asked at the same time."""
    cluster = ScriptedCluster([["reply"]], known=False)
    cluster.views[A] = GONE
    assert ["reply"] == cluster.route(at(HIGH))
    assert [[(A, "?"), (B, "?")], [(B, "x")]] == cluster.visited


def test_a_node_that_does_not_answer_for_the_map_gets_a_part_of_the_time() -> None:
    """The rest is for the others; a node that is slow and not gone gets more the next time."""
    cluster = ScriptedCluster([["reply"]], known=False, seeds=(A, B, C, D, E))
    cluster.views = {E: MAP}
    cluster.slow = {A, B, C}
    cluster.route(at(LOW))
    assert [[A, B, C], [D, E], [A]] == [[visit.node for visit in visits] for visits in cluster.made]
    seconds = [visits[0].deadline - 1_000.0 for visits in cluster.made]
    assert [1.0, pytest.approx(2.5, abs=0.1), 5.0] == seconds


def test_a_call_of_no_key_goes_to_any_primary_that_answers() -> None:
    """If the first primary does not answer, the call goes to another one."""
    cluster = ScriptedCluster([[GONE]], [["pong"]])
    assert ["pong"] == cluster.route(at(None))
    assert [(A, "x")] == cluster.visited[0]
    assert [(B, "x")] == cluster.visited[1]


def test_moved_is_followed_and_the_map_learned_once() -> None:
    """By who serves the slot now; the other call's reply stands."""
    new_map = [[0, HALF - 1, [b"c", 3, b"id-c"]], MAP[1]]
    cluster = ScriptedCluster([[answer("MOVED", f"{LOW} c:3"), "kept"]], [["reply"]], [["again"]])
    cluster.views[C] = new_map
    assert ["reply", "kept"] == cluster.perform(at(LOW, "one"), at(LOW + 1, "two"))
    assert ["again"] == cluster.route(at(LOW + 1, "three"))
    assert [[(A, "one", "two")], [(C, "?"), (B, "?")], [(C, "one")], [(C, "three")]] == cluster.visited
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
    cluster = ScriptedCluster(*[to_b, to_a] * 4, [["reply"]])
    assert ["reply"] == cluster.route(at(LOW))
    assert 5 == cluster.pauses


@pytest.mark.parametrize("code", ["TRYAGAIN", "BUSY", "MISCONF", "NOREPLICAS"])
def test_h20_what_passes_is_waited_out_where_it_is(code: str) -> None:
    """The others of the round are not sent again."""
    cluster = ScriptedCluster([["a"], [answer(code)]], [["b"]])
    assert ["a", "b"] == cluster.route(at(LOW), at(HIGH))
    assert [(B, "x")] == cluster.visited[-1]
    assert 1 == cluster.pauses


@pytest.mark.parametrize("code", ["CLUSTERDOWN", "READONLY", "LOADING", "MASTERDOWN"])
def test_h20_who_serves_a_slot_no_more_is_found_by_a_new_map(code: str) -> None:
    """After a rest, since a replica takes a while to be elected."""
    new_map = [MAP[0], [HALF, SLOTS - 1, [b"c", 3, b"id-c"]]]
    cluster = ScriptedCluster([[answer(code)]], [["reply"]])
    cluster.views = {A: new_map}
    assert ["reply"] == cluster.route(at(HIGH, replay=Replay.NEVER))
    assert [(B, "x")] == cluster.visited[0]
    assert [(C, "x")] == cluster.visited[-1]
    assert 1 == cluster.pauses


def test_a_node_that_is_gone_is_asked_last_and_replaced_by_the_new_map() -> None:
    """At once the first time: it may have been replaced long ago."""
    new_map = [[0, HALF - 1, [b"c", 3, b"id-c"]], MAP[1]]
    cluster = ScriptedCluster([[GONE]], [["reply"]])
    cluster.views = {B: new_map}
    assert ["reply"] == cluster.route(at(LOW, replay=Replay.NEVER))
    assert [[(A, "x")], [(B, "?")], [(C, "x")]] == cluster.visited
    assert 0 == cluster.pauses


def test_a_call_that_may_have_run_keeps_that_to_the_end() -> None:
    """Wherever it is sent next."""
    cluster = ScriptedCluster([[LOST]], [[answer("MOVED", f"{LOW} b:2")]], [["reply"]])
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


def test_a_slot_without_a_node_is_waited_for() -> None:
    """The error names it."""
    cluster = ScriptedCluster(known=False)
    cluster.views = {A: MAP[:1]}
    [outcome] = cluster.perform(at(HIGH))
    assert isinstance(outcome, RedisUnavailableError)
    assert f"no node serves slot {HIGH}" in str(outcome)


def test_a_single_server_is_not_a_cluster_and_the_error_says_so() -> None:
    """At once: it will not become one."""
    refusal = RedisReplyError("command CLUSTER was refused: ERR This instance has cluster support disabled")
    cluster = ScriptedCluster(known=False)
    cluster.views = {A: refusal, B: refusal}
    [outcome] = cluster.route(at(LOW))
    assert "a single server's URL begins with redis://" in str(outcome)
    assert 0 == cluster.pauses


def test_the_missing_right_to_ask_for_the_map_is_named() -> None:
    """At once."""
    refusal = RedisPermissionError("command CLUSTER was refused: NOPERM ...")
    cluster = ScriptedCluster(known=False)
    cluster.views = {A: refusal, B: refusal}
    assert [refusal] == cluster.route(at(LOW))


def test_an_error_of_one_call_touches_no_other() -> None:
    """It is an outcome like any other."""
    refusal = RedisReplyError("WRONGTYPE")
    cluster = ScriptedCluster([["one", refusal]])
    assert ["one", refusal] == cluster.route(at(LOW), at(LOW))


BEFORE = [[0, HALF - 1, [b"a", 1, b"id-a"], [b"d", 4, b"id-d"]], MAP[1]]
AFTER = [[0, HALF - 1, [b"d", 4, b"id-d"]], MAP[1]]
"""The map after D, a replica, has taken the slots of A."""


def cut_off(*, epochs: bool = True, known: bool = True) -> ScriptedCluster:
    """Return a cluster whose primary A has been replaced by D, and has not heard of it."""
    cluster = ScriptedCluster(known=False)
    if known:
        cluster.nodes.learn([ClusterView(A, BEFORE)], cluster.now)
    cluster.views = {A: BEFORE, B: AFTER, D: AFTER}
    if epochs:
        cluster.epochs = {A: {"a": 1, "b": 2}, B: {"b": 2, "d": 7}, D: {"b": 2, "d": 7}}
    return cluster


@pytest.mark.parametrize("epochs", [True, False], ids=["epochs", "no right to see epochs"])
def test_a_primary_that_is_cut_off_does_not_hide_its_fail_over(epochs: bool) -> None:
    """It answers with its old view, and refuses the call; the others know its successor. (D50)"""
    cluster = cut_off(epochs=epochs)
    cluster.answers = [[[answer("CLUSTERDOWN")]], [["reply"]]]
    assert ["reply"] == cluster.route(at(LOW))
    assert [(A, "x")] == cluster.visited[0]
    assert [(D, "x")] == cluster.visited[-1]
    assert 1 == cluster.pauses


def test_the_highest_epoch_is_believed_in_any_order_of_asking() -> None:
    """A new process asks the seeds, and the one that is cut off is the first of them. (D50)"""
    cluster = cut_off(known=False)
    cluster.answers = [[["reply"]]]
    assert ["reply"] == cluster.route(at(LOW))
    assert [[(A, "?"), (B, "?")], [(D, "x")]] == cluster.visited


def test_nodes_whose_view_led_to_an_error_are_asked_last() -> None:
    """A and B are cut off together; C is asked only because their map was wrong. (D50)"""
    cluster = ScriptedCluster(seeds=(A, B, C))
    cluster.nodes.learn([ClusterView(A, BEFORE), ClusterView(B, BEFORE)], cluster.now)
    cluster.views = {A: BEFORE, B: BEFORE, C: AFTER}
    cluster.answers = [[[answer("CLUSTERDOWN")]], [["reply"]]]
    assert ["reply"] == cluster.route(at(LOW))
    assert [[(A, "x")], [(D, "?"), (C, "?")], [(D, "x")]] == cluster.visited


def pods(*numbers: int) -> list[Address]:
    """Return addresses of nodes that come and go."""
    return [(f"10.0.0.{number}", 6379) for number in numbers]


def served_by(nodes: list[Address], *, ids: str = "") -> list[list[object]]:
    """Return the map of a cluster of these nodes."""
    share = SLOTS // len(nodes)
    return [
        [place * share, (place + 1) * share - 1, [host.encode(), port, f"{ids}{place}".encode()]]
        for place, (host, port) in enumerate(nodes)
    ]


@pytest.mark.parametrize("ids", ["", "new-"], ids=["the same nodes", "new nodes"])
@pytest.mark.parametrize("seed_was_silent", [False, True])
def test_a_cluster_under_new_addresses_is_found_by_its_seed(ids: str, seed_was_silent: bool) -> None:
    """Every address of the past swallows what it is sent, and there are many of them. (D62)"""
    seed = ("redis", 6379)
    cluster = ScriptedCluster(seeds=(seed,), known=False)
    for first in range(0, 60, 6):
        nodes = pods(*range(first, first + 6))
        cluster.nodes.learn([ClusterView(seed, served_by(nodes))], cluster.now)
    cluster.slow = {*pods(*range(60)), seed}
    if seed_was_silent:
        [outcome] = cluster.perform(at(LOW))
        assert isinstance(outcome, RedisUnavailableError)
    cluster.slow.discard(seed)
    new = pods(*range(100, 106))
    cluster.views = {seed: served_by(new, ids=ids)}
    cluster.answers = [[["reply"]]] if seed_was_silent else [[[GONE]], [["reply"]]]
    assert ["reply"] == cluster.route(at(LOW))
    assert [(new[0], "x")] == cluster.visited[-1]


def test_silent_nodes_are_remembered_across_calls() -> None:
    """The second call asks other nodes for the map; the first one has found out which are silent. (D62)"""
    cluster = ScriptedCluster(seeds=(A, B, C, D, E), known=False)
    cluster.views = {D: MAP, E: MAP}
    cluster.slow = {A, B, C}
    cluster.answers = [[["one"]]]
    assert ["one"] == cluster.route(at(HIGH))
    cluster.nodes.doubt(cluster.nodes.generation, cluster.now - 31)
    cluster.made = []
    cluster.answers = [[["two"]]]
    assert ["two"] == cluster.route(at(HIGH))
    assert [[(D, "?"), (E, "?")], [(B, "x")]] == cluster.visited
