"""What users hand in and get back: tasks, their states, and what is known of them in Redis."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyasynq._checks import new_name_of
from pyasynq._human_text import counted
from pyasynq.errors._configuration import InvalidOptionError
from pyasynq.options import EnqueueOptions, check_option_names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from typing import Unpack

    from pyasynq.errors._base import PyasynqError


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
        type: the task's type, such as `"email:deliver"`; not blank, and of 1,000 bytes at most.
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
        if payload is not None and not isinstance(payload, bytes):
            # What was given may be as secret as a payload, so the error shows its type alone.
            raise InvalidOptionError("payload", payload.__class__, "must be bytes; encode text or JSON first")
        check_option_names(options)
        self.type = new_name_of("type", type)
        self.payload = payload
        self.options = options

    @property
    def headers(self) -> Mapping[str, str]:
        """Text that travels with the task."""
        return self.options.get("headers", {})

    def __repr__(self) -> str:
        size = "None" if self.payload is None else f"<{counted(len(self.payload), 'byte')}>"
        return f"Task({self.type!r}, payload={size}, options={sorted(self.options)})"


def checked_task(type: str, payload: bytes | None, options: EnqueueOptions) -> Task:  # noqa: A002 - as above
    """Return a task of what has been checked, or of what stands in Redis, whoever wrote it."""
    task = Task.__new__(Task)
    task.type = type
    task.payload = payload
    task.options = options
    return task


class EnqueueStatus(enum.StrEnum):
    """What became of one task that was to be enqueued."""

    ENQUEUED = "enqueued"
    REPLACED = "replaced"
    """Another task holds the lock and waits, and has this payload now (`on_duplicate="replace_payload"`)."""
    EXISTING = "existing"
    """Another task holds the lock and stands for this one (`on_duplicate="return_existing"`)."""
    IGNORED = "ignored"
    """Another task holds the lock, and nothing was done (`on_duplicate="ignore"`)."""
    CONFLICT = "conflict"
    """A task with this id exists."""
    DUPLICATE = "duplicate"
    """Another task holds the lock."""
    REFUSED = "refused"
    """Invalid, or Redis said no; nothing was written."""
    UNKNOWN = "unknown"
    """The reply was lost: the task may or may not be in its queue."""


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """An attempt at a task that did not succeed. Times are aware."""

    started_at: datetime | None
    """None for one whose worker crashed: nobody lived to tell."""
    ended_at: datetime
    """For one whose worker crashed, when that was found out."""
    server_id: str
    """Which server ran it; `"unknown"` for a server in Go that crashed."""
    outcome: str
    """`"retried"`, `"snoozed"`, `"archived"` or `"crashed"`."""
    error: str
    """The beginning of its error, 200 bytes at most; empty for none."""


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far a handler said it has come."""

    done: float
    total: float | None
    """Of how much; None when it did not say."""
    note: str
    at: datetime
    """When it said so; the attempt that did may be over."""


@dataclass(frozen=True)
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
    crashes: int = 0
    """How many workers have died with it since it last ended by itself."""
    traceback: str = field(default="", repr=False)
    """Of the last failure; empty for one in Go."""
    attempts: tuple[AttemptInfo, ...] = ()
    """The newest ten that did not succeed, oldest first; empty in lists. Servers in Go write none."""
    progress: TaskProgress | None = None
    """What its handler said last, in this attempt or an earlier one."""
    in_state_since: datetime | None = None
    """Pending, archived or completed since, last failed (retry), joined its group; None for other states."""
    enqueue_status: EnqueueStatus = EnqueueStatus.ENQUEUED
    """What became of the call that returned this.

    Of `EXISTING` and `REPLACED` this is the task that holds the lock; of `IGNORED` it is the task as it was
    given, which is not in Redis.
    """

    @property
    def is_enqueued(self) -> bool:
        """Whether the call that returned this added the task."""
        return self.enqueue_status is EnqueueStatus.ENQUEUED


class TaskEnd(enum.StrEnum):
    """How a task ended, as far as Redis tells."""

    COMPLETED = "completed"
    """It succeeded and is kept until its retention ends."""
    ARCHIVED = "archived"
    """It failed for good, or was archived by hand."""
    DELETED = "deleted"
    """It vanished before it could succeed, or sooner than its retention allows.

    Somebody deleted it, its handler revoked it, a cancellation deleted it, or its group became another task.
    """
    GONE = "gone"
    """It is not in Redis. Without retention that is what success leaves, and also what a deletion leaves."""


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """What is known of a task that has ended."""

    queue: str
    id: str
    end: TaskEnd
    info: TaskInfo | None
    """The task as it is kept: completed with its result, or archived with its error. None for the others."""


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """One task's part of an `enqueue_many`, in the order of the input; true if its payload is to be run."""

    status: EnqueueStatus
    task_id: str | None
    """Of the task; of `EXISTING` and `REPLACED`, of the one that holds the lock."""
    queue: str | None
    error: PyasynqError | None = None
    """Why nothing came of it, or it is not `durable`; None for what `on_duplicate` made of a duplicate."""
    holder: TaskInfo | None = None
    """Of `EXISTING` and `REPLACED`, the task that holds the lock."""

    def __bool__(self) -> bool:
        return self.status in {EnqueueStatus.ENQUEUED, EnqueueStatus.REPLACED}
