"""Tasks, their states, and their description in Redis, as users see them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyasynq._checks import check_new_name
from pyasynq._human_text import counted
from pyasynq.errors._configuration import InvalidOptionError
from pyasynq.options import EnqueueOptions, check_option_names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from typing import Self, Unpack

    from pyasynq.errors._base import PyasynqError


class TaskState(enum.StrEnum):
    """The state of a task. The value is the word in Redis."""

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
        type: the task's type, such as `"email:deliver"`; not blank, at most 1,000 bytes.
        payload: bytes for the handler. None is Go's nil, which differs from empty bytes only in the
            lock of a unique task.
        options: as in `EnqueueOptions`, including headers; values are checked when the task is enqueued.

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
            # The given value may be as secret as a payload, so the error shows only its type.
            raise InvalidOptionError("payload", payload.__class__, "must be bytes; encode text or JSON first")
        check_option_names(options)
        self.type = check_new_name("type", type)
        self.payload = payload
        self.options = options

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the task: text by name, such as a trace id or a tenant."""
        return self.options.get("headers", {})

    def with_options(self, **options: Unpack[EnqueueOptions]) -> Self:
        """Return a copy with these options added or replaced; `headers` replaces all headers.

        Raises:
            UnknownOptionError: for a misspelt option.
        """
        check_option_names(options)
        return self._copy({**self.options, **options})

    def _copy(self, options: EnqueueOptions) -> Self:
        task = type(self).__new__(type(self))
        task.type = self.type
        task.payload = self.payload
        task.options = options
        return task

    def with_headers(self, headers: Mapping[str, str] | None = None, /, **more: str) -> Self:
        """Return a copy with these headers added or replaced.

        `task.with_headers(tenant="acme")`, or a mapping for names that are not identifiers.
        """
        return self.with_options(headers={**self.headers, **(headers or {}), **more})

    def __repr__(self) -> str:
        size = "None" if self.payload is None else f"<{counted(len(self.payload), 'byte')}>"
        return f"Task({self.type!r}, payload={size}, options={sorted(self.options)})"


def make_unchecked_task(type: str, payload: bytes | None, options: EnqueueOptions) -> Task:  # noqa: A002 - as above
    """Make a task without checks, from checked values or from stored values of any origin."""
    task = Task.__new__(Task)
    task.type = type
    task.payload = payload
    task.options = options
    return task


class EnqueueStatus(enum.StrEnum):
    """The outcome of enqueueing one task."""

    ENQUEUED = "enqueued"
    REPLACED = "replaced"
    """Another task holds the lock and waits; it now has this payload (`on_duplicate="replace_payload"`)."""
    EXISTING = "existing"
    """Another task is returned: it holds the lock (`on_duplicate="return_existing"`), or has the id of a task
    that is to be enqueued once (`once_for`)."""
    IGNORED = "ignored"
    """Nothing was done: another task holds the lock (`on_duplicate="ignore"`), or the task was enqueued
    within its `once_for` and is gone."""
    CONFLICT = "conflict"
    """A task with this id exists."""
    DUPLICATE = "duplicate"
    """Another task holds the lock."""
    REFUSED = "refused"
    """Invalid, or refused by Redis; nothing was written."""
    UNKNOWN = "unknown"
    """The reply was lost: the task may or may not be in its queue."""


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """An unsuccessful attempt at a task. Times are aware datetimes."""

    started_at: datetime | None
    """Start of the attempt; None if the worker crashed."""
    ended_at: datetime
    """End of the attempt; if the worker crashed, the time when that was discovered."""
    server_id: str
    """The server that ran the attempt; `"unknown"` for a Go server that crashed."""
    outcome: str
    """Outcome of the attempt: `"retried"`, `"snoozed"`, `"archived"` or `"crashed"`."""
    error: str
    """The beginning of the attempt's error, at most 200 bytes; empty if there is none."""


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """Progress as a handler reported it."""

    done: float
    total: float | None
    """The total amount to do, in the unit of `done`; None if not reported."""
    note: str
    at: datetime
    """Time of the report; the attempt that reported may have ended."""


@dataclass(frozen=True)
class TaskInfo:
    """A task in Redis, as the query found it. Times are aware; None is "never" or "not set"."""

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
    """Whether the task is active without a valid lease."""
    lease_expires_at: datetime | None = None
    """End of the lease of an active task; its worker keeps renewing the lease."""
    server_id: str = ""
    """The server that runs an active task; empty for a Go server, which does not store it."""
    crashes: int = 0
    """Number of worker crashes while this task ran, since the last attempt that ended without a crash."""
    traceback: str = field(default="", repr=False)
    """Traceback of the last failure; empty if it happened in a Go server."""
    attempts: tuple[AttemptInfo, ...] = ()
    """The newest ten unsuccessful attempts, oldest first; empty in lists. Go servers record none."""
    progress: TaskProgress | None = None
    """The handler's last report, in this attempt or an earlier one."""
    in_state_since: datetime | None = None
    """Time since which the task is pending, archived, completed, in retry, or in its group.

    None in other states.
    """
    expires_at: datetime | None = None
    """Time at which a completed task will be deleted."""
    unique_key: str = field(default="", repr=False)
    """The key of the uniqueness lock that the task was enqueued with; another task may hold it by now."""
    enqueue_status: EnqueueStatus = EnqueueStatus.ENQUEUED
    """Outcome of the call that returned this.

    For `EXISTING` and `REPLACED` this description is of the task that holds the lock, or has the id
    (`once_for`). For `IGNORED` it is of the given task, which is not in Redis: `state` and
    `next_process_at` are those that it would have.
    """

    @property
    def is_enqueued(self) -> bool:
        """Whether the enqueue call that returned this description added the task as a new one."""
        return self.enqueue_status is EnqueueStatus.ENQUEUED


class TaskEnd(enum.StrEnum):
    """How a task ended, as far as Redis shows."""

    COMPLETED = "completed"
    """The task succeeded and is kept until its retention ends."""
    ARCHIVED = "archived"
    """The task failed for good, or was archived by hand."""
    DELETED = "deleted"
    """The task disappeared before it could succeed, or sooner than its retention allows.

    It was deleted by hand, its handler revoked it, a cancellation deleted it, or its group was aggregated.
    """
    GONE = "gone"
    """The task is not in Redis. Without retention, success and deletion look the same."""


@dataclass(frozen=True, slots=True)
class FinishedTask:
    """A task that has ended."""

    queue: str
    id: str
    end: TaskEnd
    info: TaskInfo | None
    """The kept task: completed with its result, or archived with its error. None for other ends."""


@dataclass(frozen=True, slots=True)
class EnqueueResult:
    """Result of one task of an `enqueue_many`; truthy if the task's payload will run."""

    status: EnqueueStatus
    task_id: str | None
    """Id of the task; for `EXISTING` and `REPLACED`, of the task that holds the lock."""
    queue: str | None
    error: PyasynqError | None = None
    """Why the task was not enqueued, or is not `durable`; None for the outcomes of `on_duplicate`."""
    holder: TaskInfo | None = None
    """For `EXISTING` and `REPLACED`, the task that holds the lock, or has the id (`once_for`); else None."""

    def __bool__(self) -> bool:
        return self.status in {EnqueueStatus.ENQUEUED, EnqueueStatus.REPLACED}
