"""Descriptions of Redis servers: replicas, nodes of a cluster, and their replies to INFO and SLOWLOG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """State of a replica that an inspector reads from."""

    primary: str
    """Host and port of its primary, as the replica reports them."""
    is_connected: bool
    """Whether the replication link to its primary is up."""
    behind: timedelta | None
    """Replication lag: time since it last heard of its primary, up to 10 s in quiet times; None for never."""
    as_of: datetime | None
    """Time up to which the replica has received its primary's writes."""


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of a cluster."""

    id: str
    """Id of the node in the cluster, 40 characters."""
    address: str
    """Host and port, as the cluster reports them."""


@dataclass(frozen=True, slots=True)
class QueueLocation:
    """Hash slot and nodes of a queue in a cluster."""

    queue: str
    slot: int
    """Hash slot of all its keys, 0 to 16,383."""
    nodes: tuple[ClusterNode, ...]
    """Nodes that serve the hash slot: its primary, then the replicas; empty if none does."""


@dataclass(frozen=True, slots=True)
class RedisTexts:
    """Raw replies of Redis about itself, such as INFO."""

    info: str
    """Reply to INFO; of a cluster, to CLUSTER INFO. Lines end with a carriage return and a newline."""
    cluster_nodes: str = ""
    """Reply to CLUSTER NODES; empty if Redis is not a cluster."""
    is_cluster: bool = False


@dataclass(frozen=True, slots=True)
class SlowCall:
    """Entry of Redis' slow log (SLOWLOG): one run of a script of pyasynq or of Asynq."""

    script: str
    at: datetime
    took: timedelta


@dataclass(frozen=True, slots=True)
class RedisNode:
    """Facts about one Redis server, as far as the user may ask for them."""

    address: str
    info: Mapping[str, str]
    """Fields of INFO; empty without the right to it."""
    clients: Mapping[str, int] | None
    """Connections by their client names; None if unknown, or if there are more than 2,000."""
    slow_calls: tuple[SlowCall, ...] | None
    """Scripts of the last day that took more than 10 ms, the newest first; None if unknown."""


@dataclass(frozen=True, slots=True)
class RedisReport:
    """Facts about the Redis servers: the only one, or each primary of a cluster."""

    nodes: tuple[RedisNode, ...]
    missing_rights: tuple[str, ...] = ()
    """Rights that the user lacks to see everything, as ACL rules name them: `+info`, `+slowlog|get`."""
