"""Structs that describe the answers of the task service in its OpenAPI document."""

# No `from __future__ import annotations`: msgspec reads the types when the program starts.
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType


class AcceptedTask(msgspec.Struct):
    """Answer to a request to enqueue: the new task, or the existing one."""

    id: str
    queue: str
    type: str
    state: str
    process_at: Annotated[datetime, Meta(tz=True)] | None
    existing: Annotated[bool, Meta(description="Whether it was there already.")]


class EndedTask(msgspec.Struct):
    """Result or error of a task that has ended, or `ended: false` for a task that has not."""

    queue: str
    id: str
    ended: bool
    state: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    result: Annotated[Any, Meta(description="Any JSON.")] = UNSET
    result_text: str | UnsetType = UNSET
    result_base64: bytes | UnsetType = UNSET


class NewTaskResult(msgspec.Struct):
    """Result of one task of a batch, with the status that a separate request would have had."""

    status: int
    task: AcceptedTask | UnsetType = UNSET
    problem: dict[str, Any] | UnsetType = UNSET


class NewTaskResults(msgspec.Struct):
    """Results of a batch, in the order of its tasks."""

    results: list[NewTaskResult]


class RetryRuleFields(msgspec.Struct, forbid_unknown_fields=True):
    """Exponential back-off. Durations are seconds, or text such as `10m`."""

    first: float | str | UnsetType = UNSET
    factor: Annotated[float, Meta(ge=1, le=100)] | UnsetType = UNSET
    most: float | str | UnsetType = UNSET
    jitter: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET


class TaskTypeFields(msgspec.Struct, forbid_unknown_fields=True):
    """Fields of a task type; null unsets one. Durations are seconds, or text such as `10m`."""

    name: Annotated[str, Meta(description="Only the name in the path.")] | UnsetType = UNSET
    kind: str | UnsetType | None = UNSET
    max_run: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType | None = UNSET
    max_pending: Annotated[int, Meta(ge=1, le=1_000_000_000)] | UnsetType | None = UNSET
    rate: Annotated[str, Meta(description="As 50/s or 100/m+10.")] | UnsetType | None = UNSET
    ordered: bool | UnsetType | None = UNSET
    timeout: float | str | UnsetType | None = UNSET
    max_retry: Annotated[int, Meta(ge=0)] | UnsetType | None = UNSET
    retry: RetryRuleFields | list[float | str] | UnsetType | None = UNSET
    retention: float | str | UnsetType | None = UNSET
    schema: Annotated[dict[str, Any], Meta(description="JSON Schema of params.")] | UnsetType | None = UNSET
    managed: str | UnsetType | None = UNSET
    url: Annotated[str, Meta(description="Target of the kind http.")] | UnsetType | None = UNSET
    method: str | UnsetType | None = UNSET
    headers: dict[str, str] | UnsetType | None = UNSET
    retry_on: list[int] | UnsetType | None = UNSET
    archive_on: list[int] | UnsetType | None = UNSET
    max_age: float | str | UnsetType | None = UNSET
    callback: bool | UnsetType | None = UNSET
    shards: Annotated[int, Meta(ge=1, le=64, description="Lists of the kind list.")] | UnsetType | None = (
        UNSET
    )


class StoredTaskType(msgspec.Struct):
    """A task type as it is stored; fields that are not set are left out."""

    name: str
    version: int
    kind: str | UnsetType = UNSET
    max_run: int | UnsetType = UNSET
    max_pending: int | UnsetType = UNSET
    rate: str | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    timeout: float | UnsetType = UNSET
    max_retry: int | UnsetType = UNSET
    retry: RetryRuleFields | list[float] | UnsetType = UNSET
    retention: float | UnsetType = UNSET
    schema: dict[str, Any] | UnsetType = UNSET
    managed: str | UnsetType = UNSET
    url: str | UnsetType = UNSET
    method: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    retry_on: list[int] | UnsetType = UNSET
    archive_on: list[int] | UnsetType = UNSET
    max_age: float | UnsetType = UNSET
    callback: bool | UnsetType = UNSET
    shards: int | UnsetType = UNSET
    listening: Annotated[int, Meta(description="Workers of the kind list now.")] | UnsetType = UNSET


class StoredTaskTypes(msgspec.Struct):
    """Task types by name."""

    items: list[StoredTaskType]


class FormerTaskType(msgspec.Struct):
    """One version of a task type: its author, its time and its content."""

    version: int
    at: Annotated[datetime, Meta(tz=True, description="Null if it is not known.")] | None
    by: Annotated[str, Meta(description="Name of the user; empty if it is not known.")]
    reason: str
    content: Annotated[dict[str, Any], Meta(description="Null for a deletion.")] | None


class FormerTaskTypes(msgspec.Struct):
    """Versions of a task type, the newest first."""

    items: list[FormerTaskType]


class TypeRehearsal(msgspec.Struct):
    """Result of a dry run: the task type that the change would store."""

    dry_run: bool
    before: dict[str, Any] | None
    after: dict[str, Any]
