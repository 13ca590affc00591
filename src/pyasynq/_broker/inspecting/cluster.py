"""What Redis tells of itself, and where in a cluster a queue lives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._redis.addresses import format_address
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import RedisReplyError
from pyasynq.info import ClusterNode

if TYPE_CHECKING:
    from pyasynq._redis.plan import Argument


def redis_info(*, of_cluster: bool) -> Plan[dict[str, str]]:
    """Return the fields of INFO, or of CLUSTER INFO."""
    command: tuple[Argument, ...] = ("CLUSTER", "INFO") if of_cluster else ("INFO",)
    reply = yield CommandCall(command, None, Replay.SAFE)
    lines = (line.split(":") for line in reply.decode(errors="replace").split("\r\n"))
    return dict(parts for parts in lines if len(parts) == 2)


def cluster_keyslot(queue: str) -> Plan[int]:
    """Return the slot of all keys of a queue."""
    return int((yield CommandCall(("CLUSTER", "KEYSLOT", queue_keys(queue).pending), None, Replay.SAFE)))


def cluster_nodes(queue: str) -> Plan[list[ClusterNode]]:
    """Return the nodes that have a queue, the primary first."""
    slot = yield from cluster_keyslot(queue)
    for first, last, *nodes in (yield CommandCall(("CLUSTER", "SLOTS"), None, Replay.SAFE)):
        if first <= slot <= last:
            return [
                ClusterNode(node_id.decode(), format_address(((host or b"").decode(), port)))
                for host, port, node_id, *_ in nodes
            ]
    raise RedisReplyError(f"nodes not found: no node of the cluster serves slot {slot}")
