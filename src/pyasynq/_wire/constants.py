"""Names of the fields of a task's hash, and the numbers that all peers on one Redis share."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TaskField(StrEnum):
    """Fields of a task's hash. Those that begin with `x:` are ours; peers in Go leave them alone."""

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
    """What the handler wrote as its result, as bytes."""

    ATTEMPT = "x:attempt"
    """Token of the attempt that is running."""
    CRASHES = "x:crashes"
    """How many attempts in a row died with their worker."""
    SCHEDULED_GROUP = "x:group"
    """Group that a scheduled task joins when it is due."""
    UNIQUE_TTL = "x:unique_ttl"
    """Seconds that the uniqueness lock was asked for, and a word if it goes at another time than Asynq's.

    `600`, `600 start` or `600 finish`; gone once the lock was released because an attempt started."""
    TRACEBACK = "x:trace"
    """Traceback of the last failure."""
    ATTEMPTS = "x:attempts"
    """Record of the last attempts."""
    PROGRESS = "x:progress"
    """What the handler last said about its progress."""


LEASE_SECONDS: Final = 30
"""How long a worker owns a task before it must renew."""
LEASE_GRACE_SECONDS: Final = 30
"""How long after its lease expired a task is left alone before it is recovered."""
STATISTICS_SECONDS: Final = 90 * 24 * 3600
"""How long the counters of one day are kept."""
ARCHIVE_DAYS: Final = 90
"""Age at which an archived task may be deleted."""
ARCHIVE_LIMIT: Final = 9_999
"""How many archived tasks a queue keeps. Asynq's constant is 10,000, but its trimming leaves one less."""
AGGREGATION_SET_SECONDS: Final = 120
"""Age at which an aggregation set is taken for abandoned."""
SERVER_RECORD_SECONDS: Final = 10
"""How long a server is believed to run after a heartbeat."""
SCHEDULER_ENTRIES_SECONDS: Final = 20
"""How long a scheduler is believed to run after a heartbeat."""
SCHEDULER_HISTORY_LIMIT: Final = 1_000
"""How many enqueues of one scheduler entry are remembered."""
MAX_COUNT: Final = 2**63 - 1
"""Largest value of a counter; the next count starts again at 1."""

RESULT_DROPPED = "the result was dropped: "
"""How the error of a completed task begins if its handler returned what cannot be stored."""
