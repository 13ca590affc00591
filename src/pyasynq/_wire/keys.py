"""The name of every key in Redis; no other module spells one.

The braces around the name of a queue, server or scheduler are part of the key: Redis Cluster puts keys with
the same text in braces into the same slot. Names are used as they are, without escaping.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

from redis.crc import key_slot

if TYPE_CHECKING:
    from datetime import date

ALL_QUEUES = "asynq:queues"
"""Set of the names of all queues. A queue exists if and only if its name is in here."""
SERVERS = "asynq:servers"
"""Sorted set: key of a server's record, scored with the Unix second at which its heartbeat lapses."""
WORKERS = "asynq:workers"
"""Sorted set: key of a server's hash of running tasks, scored as in SERVERS."""
SCHEDULERS = "asynq:schedulers"
"""Sorted set: key of a scheduler's list of entries, scored as in SERVERS."""
CANCEL_CHANNEL = "asynq:cancel"
"""Publish/subscribe channel; a message is the id of the task to cancel."""

_KEPT_QUEUES = 1024


class QueueKeys:
    """The keys of one queue; made by `queue_keys`.

    The names that do not depend on a task are ready-made, since the hot path asks for them all the time.
    """

    __slots__ = (
        "active",
        "aggregation_sets",
        "archived",
        "bucket",
        "cancellations",
        "completed",
        "events",
        "failed",
        "fence",
        "group_prefix",
        "groups",
        "lease",
        "limits",
        "own_unique_prefix",
        "paused",
        "pending",
        "prefix",
        "processed",
        "queue",
        "retry",
        "scheduled",
        "task_prefix",
        "ticks",
        "verdicts",
    )

    def __init__(self, queue: str) -> None:
        prefix = f"asynq:{{{queue}}}:"
        self.prefix = prefix
        self.queue = queue
        self.pending = prefix + "pending"  # list of task ids
        self.active = prefix + "active"  # list of task ids
        self.lease = prefix + "lease"  # sorted set: task id, second at which its lease expires
        self.scheduled = prefix + "scheduled"  # sorted set: task id, second at which it is due
        self.retry = prefix + "retry"  # sorted set: task id, second at which it is due
        self.archived = prefix + "archived"  # sorted set: task id, second at which it was archived
        self.completed = prefix + "completed"  # sorted set: task id, second at which it is to be deleted
        self.paused = prefix + "paused"  # the second since when; there only while the queue is paused
        self.processed = prefix + "processed"  # number of attempts that ended, failed ones included
        self.failed = prefix + "failed"  # number of attempts that failed
        self.groups = prefix + "groups"  # set of group names
        self.aggregation_sets = prefix + "aggregation_sets"  # sorted set: key, second at which it is stale
        self.task_prefix = prefix + "t:"
        self.group_prefix = prefix + "g:"
        # Ours; peers in Go neither read nor write them.
        self.cancellations = prefix + "x:cancel"  # hash: task id, which attempt to cancel and how
        self.events = prefix + "x:events"  # stream: what happened to tasks, as JSON in the field `event`
        self.fence = prefix + "x:fence"  # written behind what replicas are to have, for a second
        self.limits = prefix + "x:limits"  # hash: settings of the queue that win over those of servers
        self.bucket = prefix + "x:bucket"  # hash: when the tokens are complete, and the last turn
        self.own_unique_prefix = prefix + "x:unique:"  # of a string: id of the task that holds this lock
        self.ticks = prefix + "x:ticks"  # hash: scheduler entry id, Unix time of its last tick
        self.verdicts = prefix + "x:verdicts"  # sorted set: `TOKEN VERDICT ID`, second it is forgotten

    @property
    def places(self) -> tuple[str, ...]:
        """The keys of all that says where a task is that waits or is finished."""
        waiting = (self.pending, self.scheduled, self.retry)
        return *waiting, self.archived, self.completed, self.groups, self.aggregation_sets

    def task(self, task_id: str) -> str:
        """Return the key of a task's hash."""
        return self.task_prefix + task_id

    def group(self, name: str) -> str:
        """Return the key of a group: a sorted set of task ids, scored with the second they joined."""
        return self.group_prefix + name

    def aggregation_set(self, group: str, set_id: str) -> str:
        """Return the key of the tasks of a group that are being made into one task."""
        return f"{self.group_prefix}{group}:{set_id}"

    def group_of_aggregation_set(self, key: str) -> str:
        """Return the group of an aggregation set. Raises ValueError when the key is not that of one.

        A group's name may hold colons; the id of a set does not.
        """
        group, _, set_id = key.removeprefix(self.group_prefix).rpartition(":")
        if not (key.startswith(self.group_prefix) and group and set_id):
            message = f"{key!r} is not the key of an aggregation set of queue {self.queue!r}"
            raise ValueError(message)
        return group

    def processed_on(self, day: date) -> str:
        """Return the key of the number of attempts that ended on this day, in UTC."""
        return f"{self.processed}:{_day_text(day)}"

    def failed_on(self, day: date) -> str:
        """Return the key of the number of attempts that failed on this day, in UTC."""
        return f"{self.failed}:{_day_text(day)}"

    def unique(self, task_type: str, payload: bytes | None) -> str:
        """Return the key of the uniqueness lock of all tasks of this type with this payload.

        No payload (None) and an empty one are two locks, as they are for Go clients.
        """
        digest = "" if payload is None else hashlib.md5(payload, usedforsecurity=False).hexdigest()
        return f"{self.prefix}unique:{task_type}:{digest}"

    def own_unique(self, name: str) -> str:
        """Return the key of the uniqueness lock of all tasks that name it.

        Whatever the name, it is none that a client makes of a type and a payload: those begin with `unique:`.
        """
        return f"{self.own_unique_prefix}{name}"


@lru_cache(maxsize=_KEPT_QUEUES)
def queue_keys(queue: str) -> QueueKeys:
    """Return the keys of a queue. The keys of recently used queues are kept; do not change them."""
    return QueueKeys(queue)


def server_key(host: str, pid: int, server_id: str) -> str:
    """Return the key of a server's record, a ServerInfo."""
    return f"{SERVERS}:{{{host}:{pid}:{server_id}}}"


def workers_key(host: str, pid: int, server_id: str) -> str:
    """Return the key of a server's running tasks: a hash of task id and WorkerInfo."""
    return f"{WORKERS}:{{{host}:{pid}:{server_id}}}"


def scheduler_key(scheduler_id: str) -> str:
    """Return the key of a scheduler's list of SchedulerEntry."""
    return f"{SCHEDULERS}:{{{scheduler_id}}}"


def scheduler_history_key(entry_id: str) -> str:
    """Return the key of a sorted set of SchedulerEnqueueEvent, scored with the second of the enqueue."""
    return f"asynq:scheduler_history:{entry_id}"


def semaphore_key(scope: str) -> str:
    """Return the key of a semaphore: a sorted set of task ids, scored with the second their hold lapses."""
    return f"asynq:sema:{scope}"


def hash_slot(key: str) -> int:
    """Return the slot of Redis Cluster, 0 to 16383, that a key belongs to."""
    return key_slot(key.encode())


def _day_text(day: date) -> str:
    # A datetime is a date too; `strftime` takes twenty times as long, in every call that settles.
    return day.isoformat()[:10]
