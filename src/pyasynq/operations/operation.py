"""Operations on many tasks: acts and options, progress, and conditions for a start. Pure."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.operating.periods import UNDO_SECONDS
from pyasynq._checks import check_name, check_whole
from pyasynq._human_text import counted
from pyasynq.errors import InvalidOptionError
from pyasynq.task import TaskInfo, TaskState

from .permissions import Permission

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


MAX_IDS: Final = 10_000
"""Largest number of tasks that an operation may name by their ids."""
MAX_FOUND: Final = 200_000
"""Maximum number of tasks that an operation's query may find; their record takes about 12 MB of memory."""
TASKS_IN_PART: Final = 1_000
"""Number of tasks in one field (part) of an operation's record."""
MAX_UNDO_BYTES: Final = 64_000_000
"""Maximum bytes of messages that one operation keeps for undoing."""
MAX_MEMORY_SHARE: Final = 0.7
"""Share of `maxmemory` above which no deletion is kept for undoing."""
REASON_FROM: Final = 100
"""Number of tasks above which an operation needs a reason."""
NUMBER_FROM: Final = 1_000
"""Number of tasks above which the user must type the number to confirm; in production always."""
PRODUCTION: Final = "production"
MAX_REFUSED: Final = 1_000
"""Maximum number of skipped tasks that an operation's record lists with a reason; others are only counted."""


class Act(enum.StrEnum):
    """Action of an operation on each of its tasks."""

    RUN = "run"
    ARCHIVE = "archive"
    DELETE = "delete"
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"
    EDIT = "edit"
    MOVE = "move"
    ENQUEUE_AGAIN = "enqueue_again"
    UNDO = "undo"
    """Restore the tasks that another operation has deleted (undo)."""


PERMISSION_OF_ACT: Final[Mapping[str, Permission]] = {
    Act.RUN: Permission.TASKS_RUN,
    Act.ARCHIVE: Permission.TASKS_ARCHIVE,
    Act.DELETE: Permission.TASKS_DELETE,
    Act.CANCEL: Permission.TASKS_CANCEL,
    Act.RESCHEDULE: Permission.TASKS_RUN,
    Act.EDIT: Permission.TASKS_EDIT,
    Act.MOVE: Permission.TASKS_EDIT,
    Act.ENQUEUE_AGAIN: Permission.TASKS_ENQUEUE,
    Act.UNDO: Permission.TASKS_DELETE,
}
"""The permission that each act needs, besides `operations.run`."""

_WAITING: Final = frozenset(TaskState) - {TaskState.ACTIVE}
_TIMED: Final = frozenset({TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED})
STATES_OF_ACT: Final[Mapping[Act, frozenset[TaskState]]] = {
    Act.RUN: _WAITING - {TaskState.PENDING},
    Act.ARCHIVE: _WAITING - {TaskState.ARCHIVED},
    Act.DELETE: _WAITING,
    Act.CANCEL: frozenset({TaskState.ACTIVE}),
    Act.RESCHEDULE: _TIMED,
    Act.EDIT: _TIMED,
    Act.MOVE: _TIMED | {TaskState.PENDING},
    Act.ENQUEUE_AGAIN: frozenset(TaskState),
}
"""States in which a task can be acted on, by act; tasks in other states are left out and reported."""


class OperationState(enum.StrEnum):
    """State of an operation in its life cycle."""

    READY = "ready"
    """The operation's tasks are being recorded. It stays in this state only if the recording process dies."""
    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    STOPPED = "stopped"
    """Stopped by an operator before its end; changes already made remain."""
    FAILED = "failed"
    """Ended by an error; changes already made remain."""


ENDED: Final = frozenset({OperationState.DONE, OperationState.STOPPED, OperationState.FAILED})


@dataclass(frozen=True, slots=True)
class Targets:
    """Tasks of an operation, given as ids by queue, or as a query."""

    ids: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Ids of tasks, by queue: at most 10,000, or 200,000 found by a query."""
    query: str = ""
    """Query that finds the tasks, in the language of `Operator.search`; it may find at most 200,000 tasks.

    Without `ids`, the query is run when the operation is started. With `ids`, the operation is limited to
    these tasks, which an earlier search by the query has found. A task that no longer matches the query at
    its turn is left out.
    """

    def __len__(self) -> int:
        return sum(map(len, self.ids.values()))

    @property
    def names(self) -> list[str]:
        """List of the ids of all tasks, one queue after another."""
        return [task_id for ids in self.ids.values() for task_id in ids]


class Scope(NamedTuple):
    """Queues and tasks of an operation, and where they come from.

    Attributes:
        queues: queues of its tasks.
        total: number of its tasks.
        query: query that found the tasks; empty if the operation was given their ids.
        undoes: id of the deletion that it undoes; empty if it undoes none.
    """

    queues: tuple[str, ...]
    total: int
    query: str = ""
    undoes: str = ""


@dataclass(frozen=True, slots=True)
class OperationOptions:
    """Options of all acts; each act ignores the options of other acts."""

    process_at: datetime | None = None
    """Reschedule: new due time of the tasks. With `spread`, the due time of the first task.

    The act `run` uses it only with `spread`; None means the present then.
    """
    spread: timedelta = timedelta(0)
    """Reschedule and run: the period over which the due times of the tasks are spread evenly.

    If it is not 0, the act `run` accepts only scheduled, retry and archived tasks.
    """
    queue: str = ""
    """Move: the queue to move the tasks to, which need not exist yet."""
    outcome: str = "retry"
    """Cancel: the fate of the tasks, `retry`, `archive` or `delete`."""
    max_retry: int | None = None
    """Edit: new maximum number of retries."""
    timeout: timedelta | None = None
    """Edit: new timeout of each attempt, rounded up to seconds."""
    deadline: datetime | None = None
    """Edit: new deadline, a time at which a running attempt is cancelled."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Edit: headers to set; other headers stay."""
    rate: float | None = None
    """Rate limit in tasks per second; None means as fast as Redis allows."""
    undo: bool = True
    """Delete: keep the tasks for a day, so that the deletion can be undone."""


@dataclass(frozen=True, slots=True)
class OperationPreview:
    """Preview of an operation (dry run): the tasks that it would act on, and the confirmation it needs."""

    act: Act
    total: int
    """Number of tasks that the operation would act on."""
    counts: Mapping[tuple[str, str, str], int]
    """Number of tasks by queue, type and state."""
    left_out: Mapping[str, int]
    """Number of tasks that the operation would leave out, by state; `missing` for ids without a task."""
    samples: tuple[TaskInfo, ...]
    """Up to ten tasks of the operation, as a sample."""
    bytes: int
    """Bytes of payloads, results and headers of its tasks."""
    is_exact: bool = True
    """False if the preview ended before the query had examined all tasks: counts are then lower bounds."""
    undo: str = ""
    """For a deletion, a sentence: whether and until when it can be undone, and how much memory it frees."""
    can_undo: bool = False
    needs_reason: bool = False
    needs_number: bool = False
    """Whether the user must confirm by typing the number of tasks (`confirm`)."""


@dataclass(frozen=True, slots=True)
class OperationInfo:
    """State of an operation, from its record in Redis."""

    operation: str
    """Id of the operation."""
    act: Act
    state: OperationState
    user: str
    reason: str
    queues: tuple[str, ...]
    created: datetime
    total: int
    """Number of tasks that the operation is to act on."""
    done: int = 0
    skipped: int = 0
    """Number of tasks that were left unchanged."""
    trimmed: int = 0
    """Number of archived tasks that were deleted to make room."""
    undoable: int = 0
    """Number of deleted tasks that can be put back."""
    undo_until: datetime | None = None
    """Time from which the first deleted tasks cannot be restored any more."""
    refused: tuple[tuple[str, str, str], ...] = ()
    """Queue, id and reason of the first 1,000 tasks that were left unchanged."""
    error: str = ""
    query: str = ""
    """Query that selected the tasks; empty if the operation was given their ids."""
    undoes: str = ""
    """Id of the operation that this one undoes; empty if it undoes none."""
    target: str = ""
    """Queue to which a move brings the tasks; empty for other acts."""
    is_orphaned: bool = False
    """Whether the operation is orphaned: unfinished, and run by no process. `run_operation` continues it."""

    @property
    def concerns(self) -> tuple[str, ...]:
        """All queues of the operation: the queues of its tasks, and the target queue of a move."""
        return (*self.queues, self.target) if self.target else self.queues

    @property
    def has_ended(self) -> bool:
        """Whether the operation has ended for good."""
        return self.state in ENDED

    @property
    def counts(self) -> dict[str, int]:
        """Number of processed, skipped and trimmed tasks, for the audit."""
        return {"total": self.total, "done": self.done, "skipped": self.skipped, "trimmed": self.trimmed}


def check_targets(targets: Targets) -> Targets:
    """Return targets with each id once.

    Raises:
        InvalidOptionError: for neither ids nor a query, for too many ids, and for invalid ids.
    """
    if targets.query and not targets.ids:
        return targets
    ids: dict[str, tuple[str, ...]] = {}
    for queue, some in targets.ids.items():
        if isinstance(some, str | bytes):
            raise InvalidOptionError("ids", some, "must be several ids; put a single one into a list")
        ids[check_name("queue", queue)] = tuple(dict.fromkeys(check_name("id", one) for one in some))
    checked = Targets({queue: some for queue, some in ids.items() if some}, targets.query)
    if not len(checked):
        raise InvalidOptionError("targets", len(checked), "must name at least one task")
    most = MAX_FOUND if targets.query else MAX_IDS
    if len(checked) > most:
        raise InvalidOptionError("targets", len(checked), f"must name at most {most:,} tasks")
    return checked


def check_options(act: Act, options: OperationOptions) -> None:
    """Raise `InvalidOptionError` for options that contradict the act."""
    if act is Act.MOVE:
        check_name("queue", options.queue)
    if options.spread < timedelta(0):
        raise InvalidOptionError("spread", options.spread, "must not be negative")
    if act is Act.RESCHEDULE and options.process_at is None:
        raise InvalidOptionError("process_at", None, "say when the tasks are due")
    if act is Act.CANCEL and options.outcome not in {"retry", "archive", "delete"}:
        raise InvalidOptionError("outcome", options.outcome, "must be retry, archive or delete")
    if options.max_retry is not None:
        check_whole("max_retry", options.max_retry, 0)
    if options.rate is not None and not options.rate > 0:
        raise InvalidOptionError("rate", options.rate, "must be more than 0 tasks a second")
    if options.headers:
        from .redaction import check_headers_not_redacted  # noqa: PLC0415 - it takes long to load

        check_headers_not_redacted(options.headers)
    edits = (options.max_retry, options.timeout, options.deadline, options.headers or None)
    if act is Act.EDIT and all(value is None for value in edits):
        raise InvalidOptionError("options", None, "say what to edit: max_retry, timeout, deadline or headers")


def states_of(act: Act, options: OperationOptions) -> frozenset[TaskState]:
    """Return the states in which a task can be acted on with these options."""
    return _TIMED if act is Act.RUN and options.spread else STATES_OF_ACT[act]


def check_confirmation(act: Act, total: int, environment: str, *, reason: str, confirm: int | None) -> None:
    """Check that the start of an operation has a reason and a typed number of tasks, if they are required.

    Raises:
        InvalidOptionError: a reason or the number of tasks is missing, or the number is wrong.
    """
    if needs_reason(act, total) and not reason.strip():
        raise InvalidOptionError("reason", reason, f"say why, for {act.value} of {counted(total, 'task')}")
    if needs_number(total, environment) and confirm != total:
        raise InvalidOptionError("confirm", confirm, f"must be the number of tasks, {total}")


def needs_reason(act: Act, total: int) -> bool:
    """Return whether an operation needs a reason."""
    return act is Act.DELETE or total > REASON_FROM


def needs_number(total: int, environment: str) -> bool:
    """Return whether the number of tasks must be typed to start an operation."""
    return total > NUMBER_FROM or environment == PRODUCTION


def preview_of(
    act: Act,
    tasks: Iterable[TaskInfo],
    missing: int,
    environment: str,
    *,
    memory: tuple[int, int],
    now: datetime,
    options: OperationOptions,
    is_exact: bool = True,
) -> OperationPreview:
    """Return the preview of an operation (dry run) on these tasks.

    `missing` is the number of ids without a task, `memory` the bytes that Redis uses and its `maxmemory`.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    left_out = Counter({"missing": missing} if missing else {})
    samples: list[TaskInfo] = []
    size = 0
    for task in tasks:
        if task.state not in states_of(act, options) or (act is Act.MOVE and task.queue == options.queue):
            left_out[task.state.value] += 1
            continue
        counts[task.queue, task.type, task.state.value] += 1
        size += len(task.payload) + len(task.result or b"") + sum(map(len, task.headers.values()))
        if len(samples) < 10:
            samples.append(task)
    total = counts.total()
    can_undo = act is Act.DELETE and options.undo and is_undo_possible(size, memory)
    return OperationPreview(
        act=act,
        total=total,
        counts=dict(counts.most_common()),
        left_out=dict(left_out),
        samples=tuple(samples),
        bytes=size,
        undo=describe_undo(size, now, can_undo=can_undo) if act is Act.DELETE else "",
        can_undo=can_undo,
        is_exact=is_exact,
        needs_reason=needs_reason(act, total),
        needs_number=needs_number(total, environment),
    )


def is_undo_possible(size: int, memory: tuple[int, int]) -> bool:
    """Return whether deleted tasks of this many bytes can be kept for undo, given Redis' memory."""
    used, maximum = memory
    return size <= MAX_UNDO_BYTES and (not maximum or used <= MAX_MEMORY_SHARE * maximum)


def describe_undo(size: int, now: datetime, *, can_undo: bool) -> str:
    """Return a sentence that says whether a deletion can be undone, and how much memory it frees and when."""
    frees = f"{size / 1_000_000:,.1f} MB" if size >= 100_000 else f"{size / 1_000:,.1f} KB"
    if not can_undo:
        return f"cannot be undone, frees {frees} at once"
    until = now + timedelta(seconds=UNDO_SECONDS)
    return f"can be undone until {until:%Y-%m-%d %H:%M} UTC, frees {frees} then"
