"""Routing of one round of calls in a cluster, sans I/O: MOVED, ASK, and resending.

`route` is one round with a cluster: a generator that yields lists of visits, to be made at the same time, and
pauses. Each visit is an exchange with one node; calls without an outcome are then sent to another node.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyasynq._backoff import jittered_pause
from pyasynq._redis.addresses import format_address
from pyasynq._redis.cluster.slot_map import find_slot, guard_key
from pyasynq._redis.cluster.view import VIEW_QUESTIONS, ClusterView
from pyasynq._redis.cluster.visit import NO_ANSWER, UnsettledCall, Visit
from pyasynq._redis.exchange import UNSETTLED, CallResult
from pyasynq._redis.plan import DurableCall, ScriptCall
from pyasynq._redis.session import Pause
from pyasynq.errors import RedisReplyError, RedisUnavailableError, ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.cluster.slot_map import ClusterMap
    from pyasynq._redis.plan import Call, Place, PlainCall
    from pyasynq._redis.session import DriverState

RoutingStep: TypeAlias = "list[Visit] | Pause"
Answers: TypeAlias = "list[list[CallResult | UnsettledCall]]"

_SHORTEST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_SPARED_SHARE: Final = 0.1
"""Share of the timeout, at its end, in which rejected calls are not sent again after a pause.

A caller is better served by the error that the call did not run than by one with an unknown outcome.
"""
_FIRST_LOOK: Final = 1.0
"""Seconds that nodes have to report the slot map; each further query of a round may take twice as long.

The nodes of a query are waited for together, so one that silently drops packets delays the query.
"""
_FREE_REDIRECTS: Final = 3
"""Number of redirections in a round that are followed at once; then pauses let the nodes agree."""


def route(
    calls: Sequence[Call], nodes: ClusterMap, state: DriverState
) -> Generator[RoutingStep, Any, list[CallResult]]:
    """Send each call to the node that serves its key, until the timeout; return an outcome for each."""
    one = _Routing(calls, nodes, state)
    yield from one.run()
    return one.outcomes


class _Routing:
    """The calls of one round without an outcome yet, and the nodes they have been redirected to."""

    def __init__(self, calls: Sequence[Call], nodes: ClusterMap, state: DriverState) -> None:
        self.outcomes: list[CallResult] = [UNSETTLED] * len(calls)
        self._nodes = nodes
        self._state = state
        self._deadline = state.monotonic() + state.timeout
        self._slots = [_find_slot(call) for call in calls]
        self._calls = [_add_guard_key(call) for call in calls]
        self._waiting = list(range(len(calls)))
        self._replayed: set[int] = set()
        self._sent_to: dict[int, tuple[Address, bool]] = {}
        """Redirections by position of the call: the node, and whether the call needs ASKING there."""
        self._look_seconds = _FIRST_LOOK
        self._redirects = 0
        self._must_pause = False
        self._pauses = 0
        self._cause = "the time-out passed"

    def run(self) -> Generator[RoutingStep, Any, None]:
        """Visit nodes until every call has an outcome or the deadline has passed."""
        while self._waiting:
            spared = 0.0
            if self._must_pause:
                yield from self._pause()
                spared = _SPARED_SHARE * self._state.timeout
            if self._is_over(spared):
                self._give_up()
                return
            # A list: the end of a generator would swallow an exception that a signal handler raises there.
            if self._nodes.is_doubtful([self._slots[position] for position in self._waiting]):
                yield from self._learn()
            groups = self._groups()
            if not groups:
                continue
            generation = self._nodes.generation
            answers: Answers = yield [
                self._visit(node, asking, some) for (node, asking), some in groups.items()
            ]
            for ((node, _), some), outcomes in zip(groups.items(), answers, strict=True):
                self._settle(node, generation, some, outcomes)
            self._waiting.sort()

    def _groups(self) -> dict[tuple[Address, bool], list[int]]:
        """Take the waiting calls; return their positions, grouped by node and by whether they need ASKING.

        Calls whose slot has no known node keep waiting.
        """
        groups: defaultdict[tuple[Address, bool], list[int]] = defaultdict(list)
        waiting, self._waiting = self._waiting, []
        for position in waiting:
            slot = self._slots[position]
            if position in self._sent_to:
                node, asking = self._sent_to.pop(position)
            else:
                owner = self._nodes.any_primary() if slot is None else self._nodes.owner(slot)
                if owner is None:
                    if self._nodes.generation:
                        node_kind = "replica" if self._nodes.reads_replicas else "node"
                        self._cause = f"no {node_kind} serves slot {slot}"
                    self._must_pause = True
                    self._nodes.doubt(self._nodes.generation, self._state.monotonic())
                    self._waiting.append(position)
                    continue
                node, asking = owner, False
            groups[node, asking].append(position)
        return dict(groups)

    def _visit(self, node: Address, asking: bool, some: list[int]) -> Visit:  # noqa: FBT001 - a group's key
        replayed = [place for place, position in enumerate(some) if position in self._replayed]
        return Visit(node, [self._calls[position] for position in some], self._deadline, replayed, asking)

    def _settle(
        self, node: Address, generation: int, some: list[int], outcomes: list[CallResult | UnsettledCall]
    ) -> None:
        redirected = False
        now = self._state.monotonic()
        was_late = self._nodes.is_late(node, now)
        for position, outcome in zip(some, outcomes, strict=True):
            if not isinstance(outcome, UnsettledCall):
                self.outcomes[position] = outcome
                continue
            self._waiting.append(position)
            self._cause = f"{format_address(node)}: {outcome.cause}"
            if outcome.replayed:
                self._replayed.add(position)
            if redirection := self._nodes.note_redirection(outcome.cause, node, now):
                redirected = True
                self._sent_to[position] = redirection
            elif outcome.code == NO_ANSWER:
                # Another node may serve the slots of the silent node by now, or this node was just restarted.
                self._must_pause |= was_late
                self._nodes.ask_last((node,), now)
                self._nodes.doubt(generation, now, node)
            else:
                self._must_pause = True
                if outcome.code != "TRYAGAIN":
                    self._nodes.doubt(generation, now, node)
                if outcome.code == "CLUSTERDOWN":
                    self._nodes.ask_last((node,), now)
        self._redirects += redirected
        self._must_pause |= redirected and self._redirects > _FREE_REDIRECTS

    def _learn(self) -> Generator[RoutingStep, Any, None]:
        """Learn the slot map from several nodes at the same time.

        If none of them knows the map, ask the next nodes.
        """
        refusal: Exception | None = None
        for nodes in self._nodes.query_groups(self._state.monotonic()):
            if self._is_over():
                return
            end = self._compute_query_deadline()
            answers: Answers = yield [Visit(node, VIEW_QUESTIONS, end) for node in nodes]
            views: list[ClusterView] = []
            for node, (slots, epochs) in zip(nodes, answers, strict=True):
                if isinstance(slots, UnsettledCall):
                    self._nodes.ask_last((node,), self._state.monotonic())
                    self._cause = f"{format_address(node)}: {slots.cause}"
                elif isinstance(slots, Exception):
                    refusal, self._cause = slots, str(slots)
                else:
                    views.append(ClusterView(node, slots, epochs if isinstance(epochs, bytes) else b""))
            if self._nodes.learn(views, self._state.monotonic()):
                return
            for view in views:
                self._cause = f"{format_address(view.asked)}: this node knows no slots of this cluster"
        self._must_pause = True
        if refusal is not None and not self._nodes.primaries:
            self._give_up(_explain(refusal, self._state.address))

    def _compute_query_deadline(self) -> float:
        """Return the deadline of a query for the slot map; double the time of the next query (back-off).

        Silent nodes must not use up the time for the other nodes.
        """
        now = self._state.monotonic()
        seconds, self._look_seconds = self._look_seconds, 2 * self._look_seconds
        return now + min(seconds, (self._deadline - now) / 2)

    def _pause(self) -> Generator[RoutingStep, Any, None]:
        self._must_pause = False
        seconds = jittered_pause(self._pauses, shortest=_SHORTEST_PAUSE, longest=_LONGEST_PAUSE)
        self._pauses += 1
        yield Pause(max(0.0, min(seconds, self._deadline - self._state.monotonic())))

    def _is_over(self, spared: float = 0.0) -> bool:
        return self._state.monotonic() >= self._deadline - spared

    def _give_up(self, reason: Exception | None = None) -> None:
        address = self._state.address
        for position in self._waiting:
            if position in self._replayed:
                self.outcomes[position] = ReplyLostError(address, self._cause)
            else:
                self.outcomes[position] = reason or RedisUnavailableError(address, self._cause)
        self._waiting = []


def _find_slot(call: Call) -> Place:
    if isinstance(call, DurableCall):
        return _find_slot(call.call)
    key = call.keys[0] if isinstance(call, ScriptCall) else call.key
    return find_slot(key) if isinstance(key, str) else key


def _add_guard_key(call: Call) -> Call:
    if isinstance(call, DurableCall):
        return call._replace(call=_guard_script(call.call))
    return _guard_script(call)


def _guard_script(call: PlainCall) -> PlainCall:
    if not isinstance(call, ScriptCall) or (guard := guard_key(call.keys[0])) is None:
        return call
    return call._replace(keys=(*call.keys, guard))


def _explain(refusal: Exception, address: str) -> Exception:
    if isinstance(refusal, RedisReplyError) and "cluster support disabled" in str(refusal):
        return RedisReplyError(
            f"Redis at {address} is not a cluster ({refusal}): a single server's URL begins with redis://"
        )
    return refusal
