"""Which node of a cluster serves which slot, as far as it is known."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from redis.crc import key_slot

from pyasynq._redis.cluster.view import read_address, views_of_cluster

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.cluster.view import View
    from pyasynq._redis.url import RedisTarget

SLOTS: Final = 16_384
_REDIRECTION: Final = re.compile(
    r"(?P<code>MOVED|ASK) (?P<slot>\d{1,5}) (?P<host>\S*):(?P<port>\d{1,5})(?: |$)", re.ASCII
)
_LATE_SECONDS: Final = 30.0
"""Time for which a node is asked last. It bounds how often one that swallows all we send costs time."""
_LOOK_SIZE: Final = 3
"""Nodes that are asked at the same time. Three are seldom cut off together; more would cost more."""


class ClusterMap:
    """The slots of one cluster, and the nodes that serve them.

    All drivers of this process that use the cluster share one, from any thread: what it holds is replaced,
    never changed, except single slots.

    Attributes:
        primaries: the nodes that serve slots, in the order of their slots.
        generation: the number of times it has been learned.
        redirections: the number of times a node has said that another one serves a slot.
        doubted: whether it should be learned again, since a node is gone or another serves its slots.
    """

    __slots__ = (
        "__weakref__",
        "_asked_first",
        "_doubted_nodes",
        "_ids",
        "_late",
        "_nodes",
        "_owners",
        "_seeds",
        "_told_by",
        "doubted",
        "generation",
        "primaries",
        "redirections",
    )

    def __init__(self, seeds: Collection[Address]) -> None:
        self._seeds: tuple[Address, ...] = tuple(seeds)
        self._nodes: tuple[Address, ...] = ()
        """All other nodes, those of the last map first."""
        self._ids: frozenset[bytes] = frozenset()
        """Ids of the nodes in the last views that were believed."""
        self._owners: list[Address | None] = [None] * SLOTS
        self._asked_first: Address | None = None
        self._told_by: tuple[Address, ...] = ()
        """The nodes whose views are this map."""
        self._late: dict[Address, float] = {}
        """Nodes that are asked last, and until when on the monotonic scale."""
        self._doubted_nodes: frozenset[Address] | None = None
        """The nodes whose slots others may serve by now; None if any slot may be served by another node."""
        self.primaries: tuple[Address, ...] = ()
        self.generation = self.redirections = 0
        self.doubted = True

    def owner(self, slot: int) -> Address | None:
        """Return the node that serves a slot, or None."""
        return self._owners[slot]

    def slots_of_primaries(self) -> list[int]:
        """Return one slot of each primary, to reach it by."""
        return sorted({owner: slot for slot, owner in enumerate(self._owners) if owner is not None}.values())

    def learn(self, views: Iterable[View], now: float) -> bool:
        """Merge the views of several nodes: the owner with the highest epoch has the slot, as in Redis.

        Between owners of the same epoch, one that is not to be asked last wins, then the view that comes
        first. Slots that no view names have no owner; but views of a single primary say nothing of the rest,
        which stays as it was.

        Returns:
            False if all views are empty, or of nodes of another cluster: an address may be given to another
            node when its own is gone. Such an address is forgotten. If no view is of this cluster, the seeds
            are believed.
        """
        views = [view for view in views if view.claims]
        known = self._ids
        believed = views_of_cluster(known, views)
        if not believed:
            known = frozenset()
            believed = views_of_cluster(known, [view for view in views if view.asked in self._seeds])
        strangers = {view.asked for view in views} - {view.asked for view in believed}
        self._nodes = tuple(node for node in self._nodes if node not in strangers)
        if not believed:
            return False
        is_partial = bool(known) and all(view.has_one_primary for view in believed)
        owners: list[Address | None] = list(self._owners) if is_partial else [None] * SLOTS
        claims = [claim for view in reversed(believed) for claim in view.claims]
        claims.sort(key=lambda claim: (claim.epoch, not self.is_late(claim.owner, now)))
        for claim in claims:
            owners[claim.first : claim.last + 1] = [claim.owner] * (claim.last + 1 - claim.first)
        serving = dict.fromkeys(owner for owner in owners if owner is not None)
        named = dict.fromkeys(node for view in believed for node in view.ids)
        ids = frozenset(node_id for view in believed for node_id in view.ids.values())
        self._owners, self.primaries = owners, tuple(serving)
        self._ids = ids | known if is_partial else ids
        # A node of an earlier map may be the only one left.
        nodes = serving | named | dict.fromkeys(self._nodes)
        self._nodes = tuple(node for node in nodes if node not in self._seeds)[: max(64, 2 * len(serving))]
        self._told_by = tuple(view.asked for view in believed)
        self.generation += 1
        self._asked_first, self.doubted, self._doubted_nodes = None, False, frozenset()
        return True

    def is_doubtful(self, slots: Iterable[int | None]) -> bool:
        """Return whether the map is to be learned again for the sake of some slots; None stands for any node.

        What concerns no node that failed does not wait for the nodes that are asked for the map.
        """
        if not self.doubted or self._doubted_nodes is None:
            return self.doubted
        return any(slot is not None and self._owners[slot] in self._doubted_nodes for slot in slots)

    def redirected(self, reply: str, node: Address, now: float) -> tuple[Address, bool] | None:
        """Take the word of a node that another one serves a slot.

        Returns:
            the other node, and whether it has to be asked for leave, since the slot is still on its way; None
            if the reply does not say such a thing.
        """
        found = _REDIRECTION.match(reply)
        if found is None or int(found["slot"]) >= SLOTS:
            return None
        slot, other = int(found["slot"]), read_address((found["host"].encode(), found["port"]), node)
        if found["code"] == "ASK":
            return other, True
        if self._owners[slot] != other:
            self.ask_last([teller for teller in self._told_by if teller != other], now)
            self._owners[slot] = self._asked_first = other
            self.doubted, self._doubted_nodes = True, None
            self.redirections += 1
        return other, False

    def doubt(self, generation: int, now: float, node: Address | None = None) -> None:
        """Have it learned again, unless that has been done since that generation.

        The nodes whose views it was are asked last: they may be cut off from those who know better.

        Args:
            generation: of the map that is wrong.
            now: monotonic time.
            node: the one whose slots others may serve by now; None if it may be any.
        """
        if generation == self.generation:
            self.doubted = True
            if node is None or self._doubted_nodes is None:
                self._doubted_nodes = None
            else:
                self._doubted_nodes |= {node}
            self.ask_last(self._told_by, now)

    def ask_last(self, nodes: Iterable[Address], now: float) -> None:
        """Put nodes last for a while: they did not answer, or are cut off from the others."""
        late = {node: until for node, until in self._late.items() if until > now}
        self._late = late | dict.fromkeys(nodes, now + _LATE_SECONDS)

    def is_late(self, node: Address, now: float) -> bool:
        """Return whether a node is among those to be asked last."""
        return self._late.get(node, now) > now

    def any_primary(self) -> Address | None:
        """Return a primary, if possible one that is not to be asked last; None if none is known."""
        return min(self.primaries, key=lambda node: self._late.get(node, 0.0), default=None)

    def looks(self, now: float) -> list[list[Address]]:
        """Return which nodes to ask for the map: some at the same time, then the next ones.

        The first look is at nodes that should answer. Each one has a seed, as long as there are any left: the
        name of a seed may lead to the cluster when all of its nodes have new addresses.
        """
        first = (self._asked_first,) if self._asked_first is not None else ()
        nodes = [node for node in dict.fromkeys((*first, *self._nodes)) if node not in self._seeds]
        seeds = sorted(self._seeds, key=lambda seed: seed not in first)
        prompt = _mix(
            [node for node in nodes if not self.is_late(node, now)],
            [seed for seed in seeds if not self.is_late(seed, now)],
        )[:_LOOK_SIZE]
        rest = _mix(
            sorted((node for node in nodes if node not in prompt), key=lambda node: self.is_late(node, now)),
            sorted((seed for seed in seeds if seed not in prompt), key=lambda seed: self.is_late(seed, now)),
        )
        looks = [rest[start : start + _LOOK_SIZE] for start in range(0, len(rest), _LOOK_SIZE)]
        return [prompt, *looks] if prompt else looks


def _mix(nodes: list[Address], seeds: list[Address]) -> list[Address]:
    """Put a seed behind each two nodes."""
    groups = zip_longest(nodes[::2], nodes[1::2], seeds)
    return [node for group in groups for node in group if node is not None]


def slot_of(key: str) -> int:
    """Return the slot of a key."""
    return key_slot(key.encode("utf-8", "surrogateescape"))


def guard_key(key: str) -> str | None:
    """Return the name of a key in the same slot that never exists; None if there can be none.

    While a slot moves, its keys are on two nodes, and a script that meets a missing one among those that it
    finds out by itself ends halfway. With a missing key among its declared ones it is refused before it runs.
    """
    begin = key.find("{")
    end = key.find("}", begin + 1)
    if 0 <= begin < end - 1:
        return f"asynq:{key[begin : end + 1]}:x:never"
    # The whole key is its tag; a script of such a key, outside of all queues, has no others.
    return None if "}" in key else f"asynq:{{{key}}}:x:never"


_maps: WeakValueDictionary[RedisTarget, ClusterMap] = WeakValueDictionary()


def map_of(target: RedisTarget) -> ClusterMap:
    """Return the map that all share who speak to this cluster as this user."""
    return _maps.setdefault(target, ClusterMap(target.seeds))
