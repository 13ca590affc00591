"""INFO of Redis, and the hash slot and nodes of a queue in a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._redis.addresses import format_address
from pyasynq._redis.cluster.slot_map import find_slot
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import RedisReplyError
from pyasynq.info import ClusterNode, QueueLocation, RedisTexts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pyasynq._redis.plan import Argument


def redis_info(*, of_cluster: bool) -> Plan[dict[str, str]]:
    """Return the fields of INFO, or of CLUSTER INFO."""
    text = yield from _read_text(("CLUSTER", "INFO") if of_cluster else ("INFO",))
    lines = (line.split(":") for line in text.split("\r\n"))
    return dict(parts for parts in lines if len(parts) == 2)


def redis_texts(*, of_cluster: bool) -> Plan[RedisTexts]:
    """Return the reply to INFO, or for a cluster, the replies to CLUSTER INFO and CLUSTER NODES."""
    if not of_cluster:
        return RedisTexts((yield from _read_text(("INFO",))))
    info = yield from _read_text(("CLUSTER", "INFO"))
    nodes = yield from _read_text(("CLUSTER", "NODES"))
    return RedisTexts(info, nodes, is_cluster=True)


def _read_text(command: tuple[Argument, ...]) -> Plan[str]:
    reply: bytes = yield CommandCall(command, None, Replay.SAFE)
    return reply.decode(errors="replace")


def queue_locations(queues: Sequence[str]) -> Plan[list[QueueLocation]]:
    """Return hash slot and nodes of some queues, from one reply to CLUSTER SLOTS."""
    ranges = yield CommandCall(("CLUSTER", "SLOTS"), None, Replay.SAFE)
    found = []
    for queue in queues:
        slot = find_slot(queue_keys(queue).pending)
        holders: list[Any] = next((nodes for first, last, *nodes in ranges if first <= slot <= last), [])
        found.append(QueueLocation(queue, slot, _decode_nodes(holders)))
    return found


def cluster_keyslot(queue: str) -> Plan[int]:
    """Return the hash slot of all keys of a queue."""
    return int((yield CommandCall(("CLUSTER", "KEYSLOT", queue_keys(queue).pending), None, Replay.SAFE)))


def cluster_nodes(queue: str) -> Plan[list[ClusterNode]]:
    """Return the nodes that have a queue, the primary first."""
    slot = yield from cluster_keyslot(queue)
    for first, last, *nodes in (yield CommandCall(("CLUSTER", "SLOTS"), None, Replay.SAFE)):
        if first <= slot <= last:
            return list(_decode_nodes(nodes))
    raise RedisReplyError(f"nodes not found: no node of the cluster serves slot {slot}")


def _decode_nodes(nodes: Sequence[Any]) -> tuple[ClusterNode, ...]:
    return tuple(
        ClusterNode(node_id.decode(), format_address(((host or b"").decode(), port)))
        for host, port, node_id, *_ in nodes
    )
