"""Fields of a task's hash, and constants that all peers on one Redis share."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TaskField(StrEnum):
    """Fields of a task's hash. Names that begin with `x:` are pyasynq's; Go peers ignore them."""

    MESSAGE = "msg"
    """The TaskMessage, as protobuf."""
    STATE = "state"
    """Name of the state, in lower case."""
    PENDING_SINCE = "pending_since"
    """Unix time in nanoseconds, as decimal text."""
    UNIQUE_KEY = "unique_key"
    """Key of the uniqueness lock; absent or empty when there is none."""
    GROUP = "group"
    """Name of the group; absent or empty when there is none."""
    RESULT = "result"
    """The handler's result, as bytes."""

    ATTEMPT = "x:attempt"
    """Token of the running attempt, against which a settle is checked (fencing token)."""
    CRASHES = "x:crashes"
    """Number of consecutive attempts that died with their worker."""
    BEGUN = "x:begun"
    """Token of the attempt whose handler start is recorded, or which no longer runs alone in its process."""
    EXTENDED = "x:extended"
    """Token of the attempt whose lease a remote worker has extended, which shows that the worker is alive."""
    LAPSES = "x:lapses"
    """Number of consecutive leases of remote workers that ended without a sign of life."""
    SCHEDULED_GROUP = "x:group"
    """Group that a scheduled task joins when it is due."""
    UNIQUE_TTL = "x:unique_ttl"
    """Requested seconds of the uniqueness lock, and a word if it is not released as Asynq does.

    `600`, `600 start` or `600 finish`; deleted once the lock was released because an attempt started.
    """
    TRACEBACK = "x:trace"
    """Traceback of the last failure."""
    ATTEMPTS = "x:attempts"
    """History of the task's last attempts, as JSON."""
    PROGRESS = "x:progress"
    """Progress last reported by the handler, as JSON."""


LEASE_SECONDS: Final = 30
"""Seconds for which a worker owns a task before it must renew its lease."""
LEASE_GRACE_SECONDS: Final = 30
"""Seconds after its lease expired during which a task is not recovered yet."""
STATISTICS_SECONDS: Final = 90 * 24 * 3600
"""Seconds for which the counters of one day are kept."""
ARCHIVE_DAYS: Final = 90
"""Age in days at which an archived task may be deleted."""
ARCHIVE_LIMIT: Final = 9_999
"""Number of archived tasks that a queue keeps.

Asynq's constant is 10,000, but its trimming keeps one less.
"""
AGGREGATION_SET_SECONDS: Final = 120
"""Age in seconds at which an aggregation set counts as stale (abandoned by its server)."""
SERVER_RECORD_SECONDS: Final = 10
"""Seconds for which a server counts as running after a heartbeat."""
SCHEDULER_ENTRIES_SECONDS: Final = 20
"""Seconds for which a scheduler counts as running after a heartbeat."""
SCHEDULER_HISTORY_LIMIT: Final = 1_000
"""Number of enqueues remembered for each scheduler entry."""
MAX_COUNT: Final = 2**63 - 1
"""Largest value of a counter; the next count starts again at 1."""

RESULT_DROPPED = "the result was dropped: "
"""Beginning of a completed task's error if its handler returned a value that cannot be stored."""
