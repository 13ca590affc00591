"""Which node of a cluster serves which slot, as far as it is known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from redis.crc import key_slot

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.plan import Reply
    from pyasynq._redis.url import RedisTarget

SLOTS: Final = 16_384
_REDIRECTION: Final = re.compile(
    r"(?P<code>MOVED|ASK) (?P<slot>\d{1,5}) (?P<host>\S*):(?P<port>\d{1,5})(?: |$)", re.ASCII
)


class ClusterMap:
    """The slots of one cluster, and the nodes that serve them.

    All that speak to a cluster from this process share one, from any thread: what it holds is replaced, never
    changed, but for single slots.

    Attributes:
        primaries: the nodes that serve slots, in the order of their slots.
        generation: how often it has been learned.
        redirections: how often a node has said that another one serves a slot.
        doubted: whether it should be learned anew, since a node is gone or another serves its slots.
    """

    __slots__ = (
        "__weakref__",
        "_asked_first",
        "_ids",
        "_nodes",
        "_owners",
        "_seeds",
        "doubted",
        "generation",
        "primaries",
        "redirections",
    )

    def __init__(self, seeds: Collection[Address]) -> None:
        self._seeds = frozenset(seeds)
        self._nodes: tuple[Address, ...] = tuple(seeds)
        self._ids: frozenset[bytes] = frozenset()
        """Ids of the nodes in the last answer that was believed."""
        self._owners: list[Address | None] = [None] * SLOTS
        self._asked_first: Address | None = None
        self.primaries: tuple[Address, ...] = ()
        self.generation = self.redirections = 0
        self.doubted = True

    def owner(self, slot: int) -> Address | None:
        """Return the node that serves a slot, or None."""
        return self._owners[slot]

    def slots_of_primaries(self) -> list[int]:
        """Return one slot of each primary, to reach it by."""
        return sorted({owner: slot for slot, owner in enumerate(self._owners) if owner is not None}.values())

    def learn(self, ranges: Reply, asked: Address) -> bool:
        """Take the answer of a node to CLUSTER SLOTS.

        Returns False if it says nothing, or if the node belongs to another cluster: an address may be given
        to another node when its own is gone. Such an address is forgotten; the seeds are always believed.
        """
        owners: list[Address | None] = [None] * SLOTS
        nodes: dict[Address, None] = {}
        replicas: dict[Address, None] = {}
        ids: dict[Address, bytes] = {}
        for first, last, *serving in ranges:
            if not serving:
                continue
            ids |= {_address(node, asked): node[2] for node in serving if len(node) > 2}
            primary = _address(serving[0], asked)
            nodes[primary] = None
            replicas.update(dict.fromkeys(_address(replica, asked) for replica in serving[1:]))
            owners[first : last + 1] = [primary] * (last + 1 - first)
        if not nodes:
            return False
        if asked not in self._seeds and self._is_foreign(ids, asked):
            self._nodes = tuple(node for node in self._nodes if node != asked)
            return False
        self._owners, self.primaries = owners, tuple(nodes)
        self._ids = frozenset(ids.values())
        # Whom we once knew may be who is left.
        self._nodes = tuple(nodes | replicas | dict.fromkeys(self._nodes))[: max(64, 2 * len(nodes))]
        self.generation += 1
        self._asked_first, self.doubted = None, False
        return True

    def _is_foreign(self, ids: Mapping[Address, bytes], asked: Address) -> bool:
        """Return whether an answer names none of the nodes that are known, besides the asked one.

        The asked one may have been a node of this cluster before it joined another.
        """
        others = {node_id for address, node_id in ids.items() if address != asked} or set(ids.values())
        return bool(self._ids and others) and self._ids.isdisjoint(others)

    def redirected(self, reply: str, node: Address) -> tuple[Address, bool] | None:
        """Take the word of a node that another one serves a slot.

        Returns:
            the other node, and whether it has to be asked for leave, since the slot is still on its way; None
            if the reply does not say such a thing.
        """
        found = _REDIRECTION.match(reply)
        if found is None or int(found["slot"]) >= SLOTS:
            return None
        slot, other = int(found["slot"]), _address((found["host"].encode(), found["port"]), node)
        if found["code"] == "ASK":
            return other, True
        if self._owners[slot] != other:
            self._owners[slot] = self._asked_first = other
            self.doubted = True
            self.redirections += 1
        return other, False

    def doubt(self, generation: int) -> None:
        """Have it learned anew, unless that has been done since that generation."""
        if generation == self.generation:
            self.doubted = True

    def whom_to_ask(self, silent: Collection[Address] = ()) -> list[Address]:
        """Return all nodes that are known, those last that did not answer."""
        first = [] if self._asked_first is None else [self._asked_first]
        known = list(dict.fromkeys([*first, *self._nodes]))
        return sorted(known, key=lambda node: node in silent)


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


def _address(node: Reply, asked: Address) -> Address:
    host, port = node[0], node[1]
    if not host or host == b"?":  # a node that does not know its own name stands where it was asked
        return asked[0], int(port)
    return host.decode().lower(), int(port)
