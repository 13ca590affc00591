"""Bodies of requests: structs that msgspec checks, and whose JSON Schemas are in the OpenAPI document."""

# No `from __future__ import annotations`: msgspec reads the types when the program starts.
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

_Reason = Annotated[str, Meta(description="Why, for the audit.", max_length=500)]
_Ids = Annotated[
    list[Annotated[str, Meta(min_length=1)]],
    Meta(description="Ids of tasks.", min_length=1, max_length=10_000),
]
_Moment = Annotated[datetime, Meta(tz=True, description="Time in RFC 3339, with a zone.")]
_Seconds = Annotated[float, Meta(gt=0, le=10**10, description="Seconds.")]
_Whole = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Outcome = Annotated[
    Literal["retry", "archive", "delete"], Meta(description="Fate of the tasks that are cancelled.")
]
_Payload = Annotated[msgspec.Raw | UnsetType, Meta(description="Payload: any JSON, stored as it is sent.")]
_PayloadText = Annotated[str | UnsetType, Meta(description="Payload that is text and not JSON.")]
_PayloadBytes = Annotated[bytes | UnsetType, Meta(description="Payload of any bytes, in Base64.")]
_Headers = Annotated[dict[str, str], Meta(description="Headers of the task.")]


class StrictRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of request bodies; unknown fields are refused."""


class ReasonRequest(StrictRequest, kw_only=True):
    """Base of request bodies with a reason for the audit log."""

    reason: _Reason = ""


class EnqueueRequest(ReasonRequest):
    """A task to enqueue. At most one of the three payloads is given."""

    type: Annotated[str, Meta(min_length=1, description="Type of the task, which names its handler.")]
    payload: _Payload = UNSET
    payload_text: _PayloadText = UNSET
    payload_base64: _PayloadBytes = UNSET
    task_id: str | UnsetType = UNSET
    max_retry: _Whole | UnsetType = UNSET
    timeout: Annotated[float, Meta(ge=0, le=10**9, description="Seconds.")] | UnsetType = UNSET
    deadline: _Moment | UnsetType = UNSET
    process_at: _Moment | UnsetType = UNSET
    process_in: Annotated[float, Meta(ge=0, le=10**9, description="Seconds.")] | UnsetType = UNSET
    retention: Annotated[float, Meta(ge=0, le=10**9, description="Seconds.")] | UnsetType = UNSET
    unique: Annotated[float, Meta(ge=1, le=10**9, description="Seconds.")] | UnsetType = UNSET
    unique_key: str | UnsetType = UNSET
    until: Literal["success", "start", "finish", "expiry"] | UnsetType = UNSET
    on_duplicate: Literal["raise", "ignore", "return_existing", "replace_payload"] | UnsetType = UNSET
    on_conflict: Literal["raise", "replace_finished"] | UnsetType = UNSET
    group: str | UnsetType = UNSET
    headers: _Headers | UnsetType = UNSET


class PayloadRequest(ReasonRequest):
    """New payload of a task; exactly one of the three fields is given."""

    payload: _Payload = UNSET
    payload_text: _PayloadText = UNSET
    payload_base64: _PayloadBytes = UNSET
    relock: Annotated[bool, Meta(description="Also move the lock of a unique task.")] = False


class CopyRequest(ReasonRequest):
    """Request for a copy of a task; without a payload, the copy has the original's."""

    payload: _Payload = UNSET
    payload_text: _PayloadText = UNSET
    payload_base64: _PayloadBytes = UNSET


class RescheduleRequest(ReasonRequest):
    """New due time of a task."""

    process_at: _Moment


class CancelTaskRequest(ReasonRequest):
    """Request to cancel a running task."""

    outcome: _Outcome = "retry"


class TasksRequest(ReasonRequest):
    """Ids of tasks, all of the queue in the path."""

    ids: _Ids


class ArchiveTasksRequest(TasksRequest):
    """Ids of the tasks to archive, all of the queue in the path."""

    trim: Annotated[bool, Meta(description="Let older archived tasks make room.")] = False


class CancelTasksRequest(TasksRequest):
    """Ids of the running tasks to cancel, all of the queue in the path."""

    outcome: _Outcome = "retry"


class PauseRequest(ReasonRequest):
    """Request to pause a queue, for a duration, or with null until it is resumed."""

    duration: _Seconds | None = None


class LimitsRequest(ReasonRequest):
    """Changes of a queue's limits; null removes a limit, and a missing field changes nothing."""

    max_run: Annotated[int, Meta(ge=1, le=10**6)] | UnsetType | None = UNSET
    rate: Annotated[float, Meta(gt=0, le=10**6)] | UnsetType | None = UNSET
    period: Annotated[float, Meta(gt=0, le=10**9)] | UnsetType = UNSET
    burst: Annotated[int, Meta(ge=1, le=10**6)] | UnsetType = UNSET
    ordered: bool | UnsetType | None = UNSET


class WaitObjectiveRequest(ReasonRequest):
    """Wait objective of a queue: the longest time that a task should be pending; null removes it."""

    seconds: _Seconds | None


class ActOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Options of a bulk operation; each kind of operation (`act`) ignores the options of the others."""

    process_at: _Moment | None = None
    spread: Annotated[float, Meta(ge=0, le=10**9, description="Seconds over which tasks become due.")] = 0.0
    queue: Annotated[str, Meta(description="Move: the queue to move to.")] = ""
    outcome: _Outcome = "retry"
    max_retry: _Whole | None = None
    timeout: Annotated[float, Meta(ge=0, le=10**9, description="Seconds.")] | None = None
    deadline: _Moment | None = None
    headers: _Headers = {}
    rate: Annotated[float, Meta(gt=0, le=10**6, description="Tasks a second at most.")] | None = None
    undo: Annotated[bool, Meta(description="Delete: keep the tasks for a day.")] = True


class ServersRequest(ReasonRequest):
    """Servers to quiet or stop, chosen by their ids, or by the version of the application or of pyasynq."""

    version: Annotated[str, Meta(description="Version of the application.", max_length=100)] = ""
    engine_version: Annotated[str, Meta(description="Version of pyasynq.", max_length=100)] = ""
    ids: Annotated[list[str], Meta(description="Ids of servers.", max_length=1_000)] = []
    confirm: Annotated[
        int | None, Meta(description="Number of the servers; needed above 10, and in production.")
    ] = None


class OperationRequest(ReasonRequest):
    """Request for a bulk operation on tasks, which are given by ids or by a query."""

    act: Literal["run", "archive", "delete", "cancel", "reschedule", "edit", "move", "enqueue_again"]
    query: Annotated[str, Meta(description="Query that finds the tasks.")] = ""
    ids: Annotated[dict[str, _Ids], Meta(description="Ids of tasks, by queue; 10,000 at most.")] = {}
    options: ActOptions = ActOptions()
    confirm: Annotated[
        int | None, Meta(description="Number of the tasks; needed above 1,000, and in production.")
    ] = None


class SnoozeRequest(ReasonRequest):
    """Request to snooze a finding; the reason is required."""

    detector: str
    duration: Annotated[float, Meta(gt=0, le=30 * 86_400, description="Seconds.")]
    queue: str = ""
    subject: str = ""


class UnsnoozeRequest(StrictRequest):
    """Request to end the snooze of a finding."""

    detector: str
    queue: str = ""
    subject: str = ""


class RepairRequest(ReasonRequest):
    """Request to repair damage in some queues or, with null, in all; the doctor first examines them again."""

    queues: Annotated[list[str], Meta(max_length=100)] | None = None
    kinds: Annotated[list[str], Meta(description="Kinds of findings; empty is all.", max_length=100)] = []


class MarkRequest(StrictRequest):
    """Request to mark a time in all charts (annotation)."""

    text: Annotated[str, Meta(min_length=1, max_length=200)]
    at: _Moment | None = None


class ViewRequest(StrictRequest):
    """Request to save a search or a task list under a name (saved view)."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    query: str = ""
    page: Annotated[str, Meta(max_length=100)] = "search"
    columns: Annotated[list[str], Meta(max_length=50)] = []
    queue: str = ""
    shared: Annotated[bool, Meta(description="Whether others see it.")] = False
