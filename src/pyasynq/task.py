"""What users hand in and get back: tasks, their states, and what is known of them in Redis."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyasynq.errors import InvalidOptionError
from pyasynq.options import EnqueueOptions, check_option_names, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from typing import Unpack

    from pyasynq.errors import PyasynqError


class TaskState(enum.StrEnum):
    """Where a task is. The value is the word that Redis holds."""

    ACTIVE = "active"
    PENDING = "pending"
    SCHEDULED = "scheduled"
    RETRY = "retry"
    ARCHIVED = "archived"
    COMPLETED = "completed"
    AGGREGATING = "aggregating"


class Task:
    """A piece of work: a type that names its handler, a payload, headers, and options of its own.

    Args:
        type: the task's type, such as `"email:deliver"`; not blank.
        payload: bytes for the handler. None is Go's nil and differs from empty bytes only for uniqueness.
        options: as in `EnqueueOptions`, headers among them; values are checked when the task is enqueued.

    Raises:
        InvalidOptionError: for a blank type, or a payload that is not bytes.
        UnknownOptionError: for a misspelt option.
    """

    __slots__ = ("options", "payload", "type")

    def __init__(
        self,
        type: str,  # noqa: A002 - the field's word
        payload: bytes | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> None:
        if not isinstance(payload, bytes | None):
            # What was given may be as secret as a payload, so the error shows its type alone.
            raise InvalidOptionError("payload", payload.__class__, "must be bytes; encode text or JSON first")
        check_option_names(options)
        self.type = name_of("type", type)
        self.payload = payload
        self.options = options

    @property
    def headers(self) -> Mapping[str, str]:
        """Text that travels with the task."""
        return self.options.get("headers", {})

    def __repr__(self) -> str:
        size = "None" if self.payload is None else f"<{len(self.payload)} bytes>"
        return f"Task({self.type!r}, payload={size}, options={sorted(self.options)})"


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """What Redis knows of a task, at the time it was asked. Times are aware; None is "never" or "not set"."""

    id: str
    queue: str
    type: str
    payload: bytes = field(repr=False)
    state: TaskState
    max_retry: int
    retried: int
    timeout: timedelta | None
    deadline: datetime | None
    next_process_at: datetime | None
    retention: timedelta
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    group: str = ""
    last_error: str = ""
    last_failed_at: datetime | None = None
    completed_at: datetime | None = None
    result: bytes | None = field(default=None, repr=False)
    is_orphaned: bool = False
    """Active, but its lease is over or missing."""
    lease_expires_at: datetime | None = None
    """Until when an active task belongs to its worker; running workers prolong it."""
    server_id: str = ""
    """Which server runs an active task; empty for a server in Go, which does not write it down."""


class EnqueueStatus(enum.StrEnum):
    """What became of one task of `enqueue_many`."""

    ENQUEUED = "enqueued"
    CONFLICT = "conflict"
    """A task with this id exists."""
    DUPLICATE = "duplicate"
    """A unique task of equal type and payload holds the lock."""
    REFUSED = "refused"
    """Invalid, or Redis said no; nothing was written."""
    UNKNOWN = "unknown"
    """The reply was lost: the task may or may not be in its queue."""


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """One task's part of an `enqueue_many`, in the order of the input."""

    status: EnqueueStatus
    task_id: str | None
    queue: str | None
    error: PyasynqError | None = None

    def __bool__(self) -> bool:
        return self.status is EnqueueStatus.ENQUEUED
