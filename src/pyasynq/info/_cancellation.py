"""Results of requests to cancel tasks."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyasynq.task import TaskState


class CancelStatus(enum.StrEnum):
    """State of a request to cancel, as far as it is known."""

    REQUESTED = "requested"
    """Stored for the worker, which obeys at once, or at its next heartbeat if it missed the message."""
    SENT = "sent"
    """Sent to the Go worker that runs the task, which never acknowledges, and always retries the task."""
    ENDED = "ended"
    """The attempt has ended; `state` says where the task is now."""
    NOT_ACTIVE = "not_active"
    """The task is not running, so no request was made."""


@dataclass(frozen=True, slots=True)
class CancelResult:
    """The answer to a request to cancel, for one queue."""

    queue: str
    task_id: str
    status: CancelStatus
    state: TaskState | None
    """The task's state; None when it is gone."""
    attempt: str = field(default="", repr=False, compare=False)
    """Token of the attempt to cancel; empty for an attempt of a worker in Go."""
