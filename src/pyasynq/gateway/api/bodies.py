"""Bodies of requests of the task service: structs that msgspec checks."""

# No `from __future__ import annotations`: msgspec reads the types when the program starts.
from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pyasynq.gateway.leases.bodies import Body

_Text = Annotated[str, Meta(min_length=1)]
_Type = Annotated[str, Meta(min_length=1, description="Name of the task type.", examples=["resize"])]
_Seconds = Annotated[float, Meta(ge=0, le=10**9, description="Seconds.")]
_Moment = Annotated[datetime, Meta(tz=True, description="Time in RFC 3339, with a zone.")]
_Number = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_ToldType = Annotated[
    str, Meta(min_length=1, description="Task type of which a task is enqueued when this one has ended.")
]
_Params = Annotated[msgspec.Raw, Meta(description="Any JSON, stored as it is sent.")]


def _make_empty() -> msgspec.Raw:
    """Return an empty JSON object, the default of missing params.

    It is a function because msgspec cannot describe raw JSON as a default in a schema.
    """
    return msgspec.Raw(b"{}")


class TaskOptions(Body):
    """Options of one task, which override those of its type."""

    task_id: _Text | UnsetType = UNSET
    process_in: _Seconds | UnsetType = UNSET
    process_at: _Moment | UnsetType = UNSET
    max_retry: Annotated[int, Meta(ge=0, le=2**31 - 1)] | UnsetType = UNSET
    timeout: _Seconds | UnsetType = UNSET
    deadline: _Moment | UnsetType = UNSET
    retention: _Seconds | UnsetType = UNSET
    unique: Annotated[float, Meta(ge=1, le=10**9, description="Seconds.")] | UnsetType = UNSET
    unique_key: _Text | UnsetType = UNSET
    until: Literal["success", "start", "finish", "expiry"] | UnsetType = UNSET
    on_duplicate: Literal["raise", "ignore", "return_existing", "replace_payload"] | UnsetType = UNSET
    on_conflict: Literal["raise", "replace_finished"] | UnsetType = UNSET
    group: _Text | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    on_finished: _ToldType | UnsetType = UNSET


class NewTask(Body):
    """A task to enqueue. At most one of the four payloads is given."""

    type: _Type
    params: Annotated[msgspec.Raw | UnsetType, Meta(description="Any JSON, stored as it is sent.")] = UNSET
    payload: Annotated[msgspec.Raw | UnsetType, Meta(description="As params.")] = UNSET
    payload_text: str | UnsetType = UNSET
    payload_base64: bytes | UnsetType = UNSET
    options: TaskOptions | UnsetType = UNSET


class TaskForm(msgspec.Struct):
    """Fields of the short forms of a task; a body with one of them is in a short form."""

    task_id: msgspec.Raw | UnsetType = UNSET
    task_name: msgspec.Raw | UnsetType = UNSET
    go_id: msgspec.Raw | UnsetType = msgspec.field(name="TaskID", default=UNSET)
    go_name: msgspec.Raw | UnsetType = msgspec.field(name="TaskName", default=UNSET)
    go_params: msgspec.Raw | UnsetType = msgspec.field(name="Params", default=UNSET)


class NewTaskBatch(Body):
    """Many tasks, each in the long or the short form; each item is checked by itself."""

    tasks: Annotated[
        list[msgspec.Raw],
        Meta(min_length=1, max_length=1_000, description="Each as the body of `POST /tasks`."),
    ]


class ShortTask(Body):
    """A task in the short form: an id (number or text), a name and params."""

    task_id: _Number | _Text
    task_name: _Type
    params: _Params = msgspec.field(default_factory=_make_empty)
    on_finished: _ToldType | UnsetType = UNSET


class GoShortTask(Body):
    """A `ShortTask` with the capitalised field names that Go writes for a struct without JSON tags."""

    task_id: _Number | _Text = msgspec.field(name="TaskID")
    task_name: _Type = msgspec.field(name="TaskName")
    params: _Params = msgspec.field(name="Params", default_factory=_make_empty)
    on_finished: _ToldType | UnsetType = msgspec.field(name="OnFinished", default=UNSET)


class ChangeTask(Body):
    """Request to change a task."""

    reason: Annotated[str, Meta(max_length=500, description="Why, for the audit.")] = ""


class RollBackType(Body):
    """Request to store a former version of a task type again."""

    version: Annotated[int, Meta(ge=1, le=2**53)]
    reason: Annotated[str, Meta(max_length=500, description="Why, for the audit.")] = ""


class CancelTask(Body):
    """Request to cancel a task, with its outcome."""

    outcome: Literal["retry", "archive", "delete"] = "retry"
    reason: Annotated[str, Meta(max_length=500, description="Why, for the audit.")] = ""
