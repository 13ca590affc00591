"""Bodies of requests and answers about leases: structs that msgspec checks and encodes."""

# No `from __future__ import annotations`: msgspec reads the types when the program starts.
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

LONGEST_WAIT: int = 55
"""Maximum seconds of a long poll: less than the timeout of common proxies, which is 60 seconds."""
_LONGEST_LEASE: int = 43_200
_LONGEST_DELAY: int = 36_500 * 86_400

_Name = Annotated[str, Meta(min_length=1, max_length=1_000)]
_Amount = Annotated[float, Meta(ge=0, le=1e15)]
_Delay = Annotated[float, Meta(ge=0, le=_LONGEST_DELAY, description="Seconds.")]
_Lease = Annotated[float, Meta(ge=1, le=_LONGEST_LEASE, description="Seconds from now.")]
_Moment = Annotated[datetime, Meta(tz=True)]
_Token = Annotated[str, Meta(min_length=1, max_length=100_000)]


class Body(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of request bodies; unknown fields are refused."""


class WorkerDescription(Body):
    """Description of a worker, for lists of workers and the log."""

    name: Annotated[str, Meta(max_length=200)] = ""
    language: Annotated[str, Meta(max_length=200, description="Such as php 8.3.")] = ""
    host: Annotated[str, Meta(max_length=200, description="The address that asks unless given.")] = ""
    pid: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    version: Annotated[str, Meta(max_length=200)] = ""


class LeaseRequest(Body):
    """A worker's request to lease tasks."""

    queues: Annotated[list[_Name], Meta(min_length=1, max_length=100)]
    limit: Annotated[int, Meta(ge=1, le=100, description="Largest number of tasks.")] = 1
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT, description="Seconds to wait for the first.")] = 20.0
    lease: _Lease = 60.0
    max_bytes: Annotated[
        int, Meta(ge=1, le=64_000_000, description="Payloads together; the first task always comes.")
    ] = 4_000_000
    worker: WorkerDescription = msgspec.field(default_factory=WorkerDescription)


class ProgressBody(Body):
    """Progress of a task."""

    done: _Amount
    total: _Amount | None = None
    note: Annotated[str, Meta(max_length=200)] = ""


class ExtendAttempt(Body):
    """Request to extend a lease: it then ends this many seconds from now."""

    lease: _Lease = 60.0
    progress: ProgressBody | None = None


class CompleteAttempt(Body):
    """Settle: the task is done. At most one of the three results is given."""

    result: Annotated[msgspec.Raw | UnsetType, Meta(description="Any JSON, stored as it is sent.")] = UNSET
    result_text: str | UnsetType = UNSET
    result_base64: bytes | UnsetType = UNSET


class FailAttempt(Body):
    """Settle: the task failed."""

    error: Annotated[str, Meta(min_length=1, max_length=20_000)]
    retry: Annotated[bool, Meta(description="False archives the task.")] = True
    delay: _Delay | None = None
    spend: Annotated[bool, Meta(description="Whether a retry is spent.")] = True


class CancelAttempt(Body):
    """Settle: the task is not wanted any more, and is deleted. The reason is logged."""

    reason: Annotated[str, Meta(max_length=500)] = ""


class SnoozeAttempt(Body):
    """Settle: run the task again later. No retry is counted."""

    delay: _Delay


class ReleaseAttempt(Body):
    """Settle: put the task back to the front of its queue, as if it had not been leased."""


AttemptAct = ExtendAttempt | CompleteAttempt | FailAttempt | CancelAttempt | SnoozeAttempt | ReleaseAttempt
"""A worker's act on an attempt."""


class ExtendItem(ExtendAttempt, kw_only=True, tag_field="act", tag="extend"):
    """An `ExtendAttempt` of a batch."""

    token: _Token


class CompleteItem(CompleteAttempt, kw_only=True, tag_field="act", tag="complete"):
    """A `CompleteAttempt` of a batch."""

    token: _Token


class FailItem(FailAttempt, kw_only=True, tag_field="act", tag="fail"):
    """A `FailAttempt` of a batch."""

    token: _Token


class CancelItem(CancelAttempt, kw_only=True, tag_field="act", tag="cancel"):
    """A `CancelAttempt` of a batch."""

    token: _Token


class SnoozeItem(SnoozeAttempt, kw_only=True, tag_field="act", tag="snooze"):
    """A `SnoozeAttempt` of a batch."""

    token: _Token


class ReleaseItem(ReleaseAttempt, kw_only=True, tag_field="act", tag="release"):
    """A `ReleaseAttempt` of a batch."""

    token: _Token


BatchItem = ExtendItem | CompleteItem | FailItem | CancelItem | SnoozeItem | ReleaseItem


class AttemptBatch(Body):
    """Acts on many attempts; each item is checked by itself."""

    attempts: Annotated[
        list[msgspec.Raw],
        Meta(
            min_length=1, max_length=1_000, description="Acts with `act`, `token` and the fields of the act."
        ),
    ]


class LeasedTask(msgspec.Struct, kw_only=True):
    """A task in the answer to a `LeaseRequest`. It has one of the three payloads, or none if it is empty."""

    token: str
    id: str
    type: str
    queue: str
    payload: msgspec.Raw | UnsetType = UNSET
    payload_text: str | UnsetType = UNSET
    payload_base64: bytes | UnsetType = UNSET
    headers: dict[str, str]
    attempt: int
    max_retry: int
    crashes: int
    deadline: _Moment
    lease_until: _Moment


class LeaseAnswer(msgspec.Struct):
    """Leased tasks, in the order to work on them."""

    tasks: list[LeasedTask]


class Extended(msgspec.Struct):
    """A renewed lease; the token replaces the earlier one."""

    token: str
    lease_until: _Moment
    deadline: _Moment


class ItemResult(msgspec.Struct, omit_defaults=True):
    """Result of one item of a batch, with the status that a separate request would have had."""

    status: int
    extended: Extended | None = None
    problem: dict[str, Any] | None = None


class BatchAnswer(msgspec.Struct):
    """Results of a batch, in the order of its items."""

    results: list[ItemResult]
