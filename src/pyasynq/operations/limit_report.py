"""Limits of queues: stored limits, limits declared by servers, and running tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq.info import ServerInfo
    from pyasynq.limits import QueueLimits


@dataclass(frozen=True, slots=True)
class LimitReport:
    """Limits of a queue, and its current load. Stored limits override limits that servers declare."""

    queue: str
    stored: QueueLimits
    """Limits that `set_queue_limits` has stored."""
    asked: Mapping[str, QueueLimits]
    """Limits that live servers of the queue declare, by server id; servers that declare none are left out."""
    active: int
    """Number of tasks of the queue that run now."""
    pending: int
    ignored_by: tuple[str, ...]
    """Ids of live servers in Go that serve the queue: these ignore limits."""


def find_declared_max_run(servers: Sequence[ServerInfo]) -> dict[str, int]:
    """Return how many tasks of a queue its servers let run at once, by queue: the largest declared `max_run`.

    A queue is left out if one of its servers declares no such limit, because that server is not limited.
    """
    declared: dict[str, list[int]] = {}
    for server in servers:
        for queue, limits in server.limits.items():
            if limits.max_run is not None:
                declared.setdefault(queue, []).append(limits.max_run)
    return {
        queue: max(numbers)
        for queue, numbers in declared.items()
        if len(numbers) == sum(queue in server.queues for server in servers)
    }
