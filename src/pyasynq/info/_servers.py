"""Descriptions of servers, their workers, and requests to them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from pyasynq.limits import QueueLimits
    from pyasynq.task_types import ServedTypes


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A task that a server is running, by the server's last heartbeat record (written every 5 s)."""

    task_id: str
    task_type: str
    queue: str
    payload: bytes = field(repr=False)
    """First 4 KB of the task's payload."""
    started: datetime | None
    deadline: datetime | None


class ServerAction(enum.StrEnum):
    """Action that an operator may ask of a server."""

    QUIET = "quiet"
    """Take no more tasks; running tasks continue."""
    STOP = "stop"
    """Shut down: the whole worker, with all its processes if it has several."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """Acknowledgement of a request in the record of a server."""

    action: ServerAction
    number: str
    """Number of the request, unique among the requests to one server."""
    obeyed: bool
    """Whether the server obeys; False for a consumer, whose program decides when to stop."""


class RequestStatus(enum.StrEnum):
    """State of a request to a server."""

    REQUESTED = "requested"
    """Stored in Redis; the server reads the request with its next heartbeat, within 5 seconds."""
    OBEYED = "obeyed"
    """Acknowledged in the record of the server: it takes no more tasks."""
    REFUSED = "refused"
    """Acknowledged by a consumer, which does not obey: its program decides when to stop."""
    ENDED = "ended"
    """The server has closed, or its record has lapsed."""
    NOT_UNDERSTOOD = "not_understood"
    """It is an Asynq server in Go, which reads no requests; nothing was written."""


@dataclass(frozen=True, slots=True)
class ServerRequestResult:
    """Result of a request to a server."""

    server_id: str
    action: ServerAction
    status: RequestStatus
    number: str = field(default="", repr=False, compare=False)
    """Number of the request, unique among the requests to one server; empty if none was written."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A live server, by its last heartbeat record (written every 5 s, valid for 10 s)."""

    id: str
    host: str
    pid: int
    status: str
    """`active`, or `stopped` when it takes no more tasks."""
    concurrency: int
    queues: Mapping[str, int]
    """Priorities of the served queues, by name."""
    strict_priority: bool
    started: datetime | None
    active_workers: tuple[WorkerInfo, ...]
    engine: str = ""
    """`pyasynq`; empty for a server in Go."""
    limits: Mapping[str, QueueLimits] = field(default_factory=dict)
    """Limits that the server declares, by queue; limits stored for a queue override them."""
    types: ServedTypes | None = None
    """Task types that the server has handlers for; None if unknown: a Go server, or one handler for all."""
    answer: ServerAnswer | None = None
    """The last request of an operator that the server has acknowledged."""
    loop_blocked: timedelta | None = None
    """Time for which the event loop was blocked when the record was written; None if it was not."""
    team: str = ""
    """Name of the team that runs the server; empty if it does not say."""
    version: str = ""
    """Version of the application, as `App(version=...)` says; empty if it does not say."""
    engine_version: str = ""
    """Version of pyasynq; empty for a server in Go."""
