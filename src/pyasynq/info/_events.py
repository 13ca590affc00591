"""Events of tasks, and a page of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Published event of a task, such as its start; fields that do not apply to the event are empty."""

    kind: str
    """`enqueued`, `started`, `succeeded`, `retried`, `archived` and so on, or `dropped` and `missed`."""
    queue: str
    at: datetime
    """Time of the event, aware; by the worker's estimate of Redis' clock, or by the client's clock."""
    position: str
    """Position of the event in the queue's stream; a follower can continue after it."""
    task_id: str = ""
    type: str = ""
    server_id: str = ""
    """Server that published it; for a recovered or poison task, the server that crashed."""
    retried: int = 0
    """Number of retries spent before this attempt."""
    max_retry: int = 0
    seconds: float = 0.0
    """Duration of the attempt in seconds."""
    waited: float | None = None
    """Seconds that a task was pending before it started; None if the event does not include it."""
    error: str = ""
    count: int = 1
    """Number of dropped events, of aggregated tasks, or of worker crashes, depending on the event."""


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of kept events of tasks, newest first."""

    events: tuple[TaskEvent, ...]
    cursor: str
    """Argument `cursor` of the next call; empty at the end."""
    looked_at: int
    """Number of examined events, including events that are left out."""
