"""Slot map of a cluster: which node serves which hash slot, as far as known."""

from __future__ import annotations

import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from redis.crc import key_slot

from pyasynq._redis.cluster.view import read_address, select_views

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.cluster.view import ClusterView
    from pyasynq._redis.url import RedisTarget

SLOTS: Final = 16_384
_REDIRECTION: Final = re.compile(
    r"(?P<code>MOVED|ASK) (?P<slot>\d{1,5}) (?P<host>\S*):(?P<port>\d{1,5})(?: |$)", re.ASCII
)
_LATE_SECONDS: Final = 30.0
"""Seconds for which a silent node is asked last, so that it seldom costs time."""
_GROUP_SIZE: Final = 3
"""Number of nodes asked for the slot map at once. Three are seldom cut off together; more take longer."""


class ClusterMap:
    """Slot map of one cluster: which node serves which hash slot.

    All drivers of this process that use the cluster share one map, from any thread: its values are replaced,
    never changed in place, except single slots.

    Attributes:
        primaries: the nodes that own slots, in the order of their slots.
        reads_replicas: whether replicas serve the slots of their primaries.
        generation: number of times the map has been learned.
        redirections: number of MOVED replies that have changed the owner of a slot in the map.
        doubted: whether to learn the map again, because a node is gone or its slots have moved.
    """

    __slots__ = (
        "__weakref__",
        "_asked_first",
        "_doubted_nodes",
        "_ids",
        "_late",
        "_nodes",
        "_owners",
        "_replicas",
        "_seeds",
        "_told_by",
        "doubted",
        "generation",
        "primaries",
        "reads_replicas",
        "redirections",
    )

    def __init__(self, seeds: Collection[Address], *, reads_replicas: bool = False) -> None:
        self.reads_replicas = reads_replicas
        self._replicas: dict[Address, tuple[Address, ...]] = {}
        """The replicas of each primary."""
        self._seeds: tuple[Address, ...] = tuple(seeds)
        self._nodes: tuple[Address, ...] = ()
        """All nodes except the seeds; nodes of the last map come first."""
        self._ids: frozenset[bytes] = frozenset()
        """Ids of the nodes in the accepted views of the last map."""
        self._owners: list[Address | None] = [None] * SLOTS
        self._asked_first: Address | None = None
        self._told_by: tuple[Address, ...] = ()
        """The nodes whose views make up this map."""
        self._late: dict[Address, float] = {}
        """Nodes to ask last, with the monotonic time until which this applies."""
        self._doubted_nodes: frozenset[Address] | None = None
        """The nodes whose slots may have moved to other nodes; None if any slot may have moved."""
        self.primaries: tuple[Address, ...] = ()
        self.generation = self.redirections = 0
        self.doubted = True

    def owner(self, slot: int) -> Address | None:
        """Return the node that serves a slot; None if no node (or no replica, for reads) is known."""
        owner = self._owners[slot]
        return self._choose_replica(owner) if self.reads_replicas and owner is not None else owner

    def _choose_replica(self, primary: Address) -> Address | None:
        """Return a replica of a primary, preferably not one marked as slow; None without a replica."""
        replicas = self._replicas.get(primary, ())
        return min(replicas, key=lambda node: self._late.get(node, 0.0), default=None)

    @property
    def serving(self) -> set[Address]:
        """The nodes that calls may be sent to."""
        if not self.reads_replicas:
            return set(self.primaries)
        return {replica for replicas in self._replicas.values() for replica in replicas}

    def get_primary_slots(self) -> list[int]:
        """Return one slot of each primary; a call for that slot reaches the primary."""
        return sorted({owner: slot for slot, owner in enumerate(self._owners) if owner is not None}.values())

    def learn(self, views: Iterable[ClusterView], now: float) -> bool:
        """Merge the views of several nodes: the owner with the highest epoch has the slot, as in Redis.

        If two owners have the same epoch, one that is not marked as slow wins; then the owner in the earlier
        view wins. Slots that no view names have no owner. Views of a single primary say nothing about the
        other slots, whose owners stay as they were.

        Returns:
            False if no view was accepted. Empty views are ignored. So are views of another cluster, and the
                nodes that sent them are forgotten: such a node may have the address of a removed one. If no
                view is of this cluster, the views of the seeds are accepted.
        """
        views = [view for view in views if view.claims]
        known = self._ids
        believed = select_views(known, views)
        if not believed:
            known = frozenset()
            believed = select_views(known, [view for view in views if view.asked in self._seeds])
        strangers = {view.asked for view in views} - {view.asked for view in believed}
        self._nodes = tuple(node for node in self._nodes if node not in strangers)
        if not believed:
            return False
        is_partial = bool(known) and all(view.has_one_primary for view in believed)
        owners: list[Address | None] = list(self._owners) if is_partial else [None] * SLOTS
        replicas = dict(self._replicas) if is_partial else {}
        claims = [claim for view in reversed(believed) for claim in view.claims]
        claims.sort(key=lambda claim: (claim.epoch, not self.is_late(claim.owner, now)))
        for claim in claims:
            owners[claim.first : claim.last + 1] = [claim.owner] * (claim.last + 1 - claim.first)
            replicas[claim.owner] = claim.replicas
        serving = dict.fromkeys(owner for owner in owners if owner is not None)
        named = dict.fromkeys(node for view in believed for node in view.ids)
        ids = frozenset(node_id for view in believed for node_id in view.ids.values())
        self._owners, self.primaries = owners, tuple(serving)
        self._replicas = {primary: replicas.get(primary, ()) for primary in serving}
        self._ids = ids | known if is_partial else ids
        # Nodes of earlier maps are kept, because one of these may be the only node left.
        nodes = serving | named | dict.fromkeys(self._nodes)
        self._nodes = tuple(node for node in nodes if node not in self._seeds)[: max(64, 2 * len(serving))]
        self._told_by = tuple(view.asked for view in believed)
        self.generation += 1
        self._asked_first, self.doubted, self._doubted_nodes = None, False, frozenset()
        return True

    def is_doubtful(self, slots: Iterable[int | None]) -> bool:
        """Return whether to learn the map again before calls to these slots. A slot None means any node.

        Calls to nodes that have not failed do not wait for the map.
        """
        if not self.doubted or self._doubted_nodes is None:
            return self.doubted
        return any(slot is not None and self.owner(slot) in self._doubted_nodes for slot in slots)

    def note_redirection(self, reply: str, node: Address, now: float) -> tuple[Address, bool] | None:
        """Record a redirection (MOVED or ASK) that a node has answered.

        Returns:
            The other node, and whether it needs ASKING because the slot is still moving; None if the reply is
            not a redirection.
        """
        found = _REDIRECTION.match(reply)
        if found is None or int(found["slot"]) >= SLOTS:
            return None
        slot, other = int(found["slot"]), read_address((found["host"].encode(), found["port"]), node)
        if found["code"] == "ASK":
            return other, True
        if self.reads_replicas:
            # The redirection names a primary, so it is not followed: the map has the replica that serves the
            # slot.
            return None
        if self._owners[slot] != other:
            self.ask_last([teller for teller in self._told_by if teller != other], now)
            self._owners[slot] = self._asked_first = other
            self.doubted, self._doubted_nodes = True, None
            self.redirections += 1
        return other, False

    def doubt(self, generation: int, now: float, node: Address | None = None) -> None:
        """Mark the map as doubtful, unless it has been learned again since that generation.

        The nodes that the map was learned from are asked last: they may be cut off
        from the rest of the cluster.

        Args:
            generation: number of the map that turned out to be wrong.
            now: monotonic time.
            node: the node whose slots may have moved; None if any slot may have moved.
        """
        if generation == self.generation:
            self.doubted = True
            if node is None or self._doubted_nodes is None:
                self._doubted_nodes = None
            else:
                self._doubted_nodes |= {node}
            self.ask_last(self._told_by, now)

    def ask_last(self, nodes: Iterable[Address], now: float) -> None:
        """Mark nodes as slow for a while, so that they are asked last: they are silent or cut off."""
        late = {node: until for node, until in self._late.items() if until > now}
        self._late = late | dict.fromkeys(nodes, now + _LATE_SECONDS)

    def is_late(self, node: Address, now: float) -> bool:
        """Return whether a node is marked as slow, so that it is asked last; see `ask_last`."""
        return self._late.get(node, now) > now

    def any_primary(self) -> Address | None:
        """Return a primary, or any node if replicas are read; a slow one only if all are slow."""
        nodes = sorted(self.serving) if self.reads_replicas else self.primaries
        return min(nodes, key=lambda node: self._late.get(node, 0.0), default=None)

    def query_groups(self, now: float) -> list[list[Address]]:
        """Return groups of nodes to ask for the slot map; the nodes of a group are asked at the same time.

        The first group has nodes that should answer. Each group has a seed (an address of the URL), if any
        is left: its host name may lead to the cluster when all nodes have new addresses.
        """
        first = (self._asked_first,) if self._asked_first is not None else ()
        nodes = [node for node in dict.fromkeys((*first, *self._nodes)) if node not in self._seeds]
        seeds = sorted(self._seeds, key=lambda seed: seed not in first)
        prompt = _mix(
            [node for node in nodes if not self.is_late(node, now)],
            [seed for seed in seeds if not self.is_late(seed, now)],
        )[:_GROUP_SIZE]
        rest = _mix(
            sorted((node for node in nodes if node not in prompt), key=lambda node: self.is_late(node, now)),
            sorted((seed for seed in seeds if seed not in prompt), key=lambda seed: self.is_late(seed, now)),
        )
        query_groups = [rest[start : start + _GROUP_SIZE] for start in range(0, len(rest), _GROUP_SIZE)]
        return [prompt, *query_groups] if prompt else query_groups


def _mix(nodes: list[Address], seeds: list[Address]) -> list[Address]:
    """Merge two lists: one seed follows after every two nodes."""
    groups = zip_longest(nodes[::2], nodes[1::2], seeds)
    return [node for group in groups for node in group if node is not None]


def find_slot(key: str) -> int:
    """Return the hash slot of a key."""
    return key_slot(key.encode("utf-8", "surrogateescape"))


def guard_key(key: str) -> str | None:
    """Return the name of a key in the same slot that never exists; None if no such name is possible.

    The guard key is added to the declared keys of a script. While a slot moves, its keys are on two nodes. A
    node then refuses a script with a missing declared key before it runs (ASK or TRYAGAIN). Without a guard
    key, a script would end halfway at a missing key whose name it computed itself.
    """
    begin = key.find("{")
    end = key.find("}", begin + 1)
    if 0 <= begin < end - 1:
        return f"asynq:{key[begin : end + 1]}:x:never"
    # A key without a tag is hashed whole. A script of such a key, outside all queues, uses no other keys.
    return None if "}" in key else f"asynq:{{{key}}}:x:never"


_maps: WeakValueDictionary[RedisTarget, ClusterMap] = WeakValueDictionary()


def get_cluster_map(target: RedisTarget) -> ClusterMap:
    """Return the slot map of a target (a cluster and a login), which all its users in this process share."""
    return _maps.setdefault(target, ClusterMap(target.seeds, reads_replicas=target.reads_replica))
