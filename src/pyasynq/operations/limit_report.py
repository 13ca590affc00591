"""Report on a queue's limits: stored limits, limits declared by servers, and running tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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
