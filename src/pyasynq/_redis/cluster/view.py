"""One node's view of its cluster. Nodes may disagree, if some are cut off from the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._redis.plan import CommandCall, Replay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.plan import Reply

VIEW_QUESTIONS: Final = (
    CommandCall(("CLUSTER", "SLOTS"), None, Replay.SAFE),
    CommandCall(("CLUSTER", "NODES"), None, Replay.SAFE),
)
"""Commands whose replies make a `ClusterView`.

CLUSTER SLOTS has the addresses for clients. CLUSTER NODES has the configuration epochs, which decide between
nodes that disagree.
"""


class SlotRange(NamedTuple):
    """A range of hash slots, its owner, the owner's configuration epoch (0 if unknown), and its replicas."""

    epoch: int
    first: int
    last: int
    owner: Address
    replicas: tuple[Address, ...] = ()


class ClusterView:
    """Slot ranges and node ids of a cluster, as one node reports them.

    Attributes:
        asked: address of the node that was asked.
        claims: the ranges of slots and their owners.
        ids: ids of the primaries and replicas, by address.
    """

    __slots__ = ("asked", "claims", "ids")

    def __init__(self, asked: Address, ranges: Reply, nodes: bytes = b"") -> None:
        """Parse the replies to the commands `VIEW_QUESTIONS`; the second is empty if it was refused."""
        self.asked = asked
        self.claims: list[SlotRange] = []
        self.ids: dict[Address, bytes] = {}
        epochs = _read_epochs(nodes)
        for first, last, *serving in ranges:
            if not serving:
                continue
            self.ids |= {read_address(node, asked): _read_id(node) for node in serving}
            owner, *replicas = [read_address(node, asked) for node in serving]
            epoch = epochs.get(_read_id(serving[0]), 0)
            self.claims.append(SlotRange(epoch, first, last, owner, tuple(replicas)))

    @property
    def has_one_primary(self) -> bool:
        """Whether the view names only one primary."""
        return len({claim.owner for claim in self.claims}) == 1

    @property
    def others(self) -> set[bytes]:
        """Ids of the nodes in the view except the asked node; if it names no others, its own id.

        The asked node may have left this cluster for another one.
        """
        ids = {node_id for address, node_id in self.ids.items() if address != self.asked}
        return (ids or set(self.ids.values())) - {b""}


def select_views(known: frozenset[bytes], views: Sequence[ClusterView]) -> list[ClusterView]:
    """Return the views of the same cluster: those that name a node with a known id, and those without ids.

    If no id is known, the ids of the first view count as known.
    """
    ids = known or (frozenset(views[0].ids.values()) if views else known)
    return [view for view in views if not (ids and view.others) or not ids.isdisjoint(view.others)]


def read_address(node: Reply, asked: Address) -> Address:
    """Return the address of a node in a reply; without a host it has the host of the asked node."""
    host, port = node[0], node[1]
    if not host or host == b"?":  # the node does not know its own name
        return asked[0], int(port)
    return host.decode().lower(), int(port)


def _read_id(node: Reply) -> bytes:
    return bytes(node[2]) if len(node) > 2 else b""


def _read_epochs(nodes: bytes) -> dict[bytes, int]:
    """Return the configuration epoch of each node by node id, from the reply to CLUSTER NODES."""
    # A line is: id, address, flags, primary, ping sent, pong received, epoch, ...
    lines = [line.split() for line in nodes.splitlines()]
    return {fields[0]: int(fields[6]) for fields in lines if len(fields) > 6 and fields[6].isdigit()}
