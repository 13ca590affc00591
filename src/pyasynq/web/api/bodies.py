"""Bodies of requests: structs that msgspec checks, and whose JSON Schemas are in the OpenAPI document."""

# No `from __future__ import annotations`: msgspec reads the types when the program starts.
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

Reason = Annotated[str, Meta(description="Why, for the audit.", max_length=500)]
Ids = Annotated[
    list[Annotated[str, Meta(min_length=1)]],
    Meta(description="Ids of tasks.", min_length=1, max_length=10_000),
]
Moment = Annotated[datetime, Meta(tz=True, description="Time in RFC 3339, with a zone.")]
Seconds = Annotated[float, Meta(gt=0, le=10**10, description="Seconds.")]
Whole = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Outcome = Annotated[
    Literal["retry", "archive", "delete"], Meta(description="Fate of the tasks that are cancelled.")
]
Payload = Annotated[msgspec.Raw | UnsetType, Meta(description="Payload: any JSON, stored as it is sent.")]
PayloadText = Annotated[str | UnsetType, Meta(description="Payload that is text and not JSON.")]
PayloadBytes = Annotated[bytes | UnsetType, Meta(description="Payload of any bytes, in Base64.")]
Headers = Annotated[dict[str, str], Meta(description="Headers of the task.")]


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A body with a reason."""

    reason: Reason = ""


class Enqueue(Body):
    """A task to enqueue. At most one of the three payloads is given."""

    type: Annotated[str, Meta(min_length=1, description="Type of the task, which names its handler.")]
    payload: Payload = UNSET
    payload_text: PayloadText = UNSET
    payload_base64: PayloadBytes = UNSET
    task_id: str | UnsetType = UNSET
    max_retry: Whole | UnsetType = UNSET
    timeout: Annotated[float, Meta(ge=0, le=10**9, description="Seconds.")] | UnsetType = UNSET
    deadline: Moment | UnsetType = UNSET
    process_at: Moment | UnsetType = UNSET
    process_in: Annotated[float, Meta(ge=0, le=10**9, description="Seconds.")] | UnsetType = UNSET
    retention: Annotated[float, Meta(ge=0, le=10**9, description="Seconds.")] | UnsetType = UNSET
    unique: Annotated[float, Meta(ge=1, le=10**9, description="Seconds.")] | UnsetType = UNSET
    unique_key: str | UnsetType = UNSET
    until: Literal["success", "start", "finish", "expiry"] | UnsetType = UNSET
    on_duplicate: Literal["raise", "ignore", "return_existing", "replace_payload"] | UnsetType = UNSET
    on_conflict: Literal["raise", "replace_finished"] | UnsetType = UNSET
    group: str | UnsetType = UNSET
    headers: Headers | UnsetType = UNSET


class NewPayload(Body):
    """A payload in place of another; exactly one of the three is given."""

    payload: Payload = UNSET
    payload_text: PayloadText = UNSET
    payload_base64: PayloadBytes = UNSET
    relock: Annotated[bool, Meta(description="Also move the lock of a unique task.")] = False


class CopiedPayload(Body):
    """The payload of a copy; without one it is that of the original."""

    payload: Payload = UNSET
    payload_text: PayloadText = UNSET
    payload_base64: PayloadBytes = UNSET


class Reschedule(Body):
    """When a task is due."""

    process_at: Moment


class Cancel(Body):
    """How a running task is cancelled."""

    outcome: Outcome = "retry"


class SomeTasks(Body):
    """Ids of tasks of the queue."""

    ids: Ids


class SomeTasksToArchive(SomeTasks):
    """Ids of tasks of the queue to archive."""

    trim: Annotated[bool, Meta(description="Let older archived tasks make room.")] = False


class SomeTasksToCancel(SomeTasks):
    """Ids of running tasks of the queue."""

    outcome: Outcome = "retry"


class Pause(Body):
    """How long a queue is paused; null until it is resumed."""

    duration: Seconds | None = None


class Limits(Body):
    """Limits of a queue to change; null takes a limit away, a field that is missing stays."""

    max_run: Annotated[int, Meta(ge=1, le=10**6)] | UnsetType | None = UNSET
    rate: Annotated[float, Meta(gt=0, le=10**6)] | UnsetType | None = UNSET
    period: Annotated[float, Meta(gt=0, le=10**9)] | UnsetType = UNSET
    burst: Annotated[int, Meta(ge=1, le=10**6)] | UnsetType = UNSET
    ordered: bool | UnsetType | None = UNSET


class WaitObjective(Body):
    """How long a task of the queue may be pending; null takes the objective away."""

    seconds: Seconds | None


class ActOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Options of an operation; an act ignores those of others."""

    process_at: Moment | None = None
    spread: Annotated[float, Meta(ge=0, le=10**9, description="Seconds over which tasks become due.")] = 0.0
    queue: Annotated[str, Meta(description="Move: the queue to move to.")] = ""
    outcome: Outcome = "retry"
    max_retry: Whole | None = None
    timeout: Annotated[float, Meta(ge=0, le=10**9, description="Seconds.")] | None = None
    deadline: Moment | None = None
    headers: Headers = {}
    rate: Annotated[float, Meta(gt=0, le=10**6, description="Tasks a second at most.")] | None = None
    undo: Annotated[bool, Meta(description="Delete: keep the tasks for a day.")] = True


class Operation(Body):
    """What to do with many tasks: with those of some ids, or with those that a query finds."""

    act: Literal["run", "archive", "delete", "cancel", "reschedule", "edit", "move", "enqueue_again"]
    query: Annotated[str, Meta(description="Query that finds the tasks.")] = ""
    ids: Annotated[dict[str, Ids], Meta(description="Ids of tasks, by queue; 10,000 at most.")] = {}
    options: ActOptions = ActOptions()
    confirm: Annotated[
        int | None, Meta(description="Number of the tasks; needed above 1,000, and in production.")
    ] = None


class Snooze(Body):
    """A finding to set apart; the reason is needed."""

    detector: str
    duration: Seconds
    queue: str = ""
    subject: str = ""


class Unsnooze(Body):
    """A finding that is snoozed."""

    detector: str
    queue: str = ""
    subject: str = ""


class Repair(Body):
    """Damage to repair, of some queues or, with null, of all; the doctor looks again before."""

    queues: Annotated[list[str], Meta(max_length=100)] | None = None
    kinds: Annotated[list[str], Meta(description="Kinds of findings; empty is all.", max_length=100)] = []


class NewMark(Body):
    """A line in each chart."""

    text: Annotated[str, Meta(min_length=1, max_length=200)]
    at: Moment | None = None


class NewView(Body):
    """A search under a name."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    query: str = ""
    page: Annotated[str, Meta(max_length=100)] = "search"
    columns: Annotated[list[str], Meta(max_length=50)] = []
    queue: str = ""
    shared: Annotated[bool, Meta(description="Whether others see it.")] = False
