"""Names of all keys in Redis; no other module contains the name of a key.

The braces around the name of a queue, server or scheduler are part of the key (a hash tag): Redis Cluster
puts keys with the same text in braces into the same slot. Names are used as they are, without escaping.
"""

from __future__ import annotations

import hashlib
from datetime import date
from functools import lru_cache
from typing import NamedTuple

from redis.crc import key_slot

ALL_QUEUES = "asynq:queues"
"""Set of the names of all queues. A queue exists if and only if its name is in this set."""
SERVERS_KEY = "asynq:servers"
"""Sorted set: key of a server's record, scored with the Unix second at which its heartbeat lapses."""
WORKERS_KEY = "asynq:workers"
"""Sorted set: key of a server's hash of running tasks, scored as in `SERVERS_KEY`."""
SCHEDULERS_KEY = "asynq:schedulers"
"""Sorted set: key of a scheduler's list of entries, scored as in `SERVERS_KEY`."""
AUDIT_KEY = "asynq:x:audit"
"""Stream: audit of operators' calls, as JSON in the field `entry`."""
REFUSED_KEY = "asynq:x:refused"
"""Stream: calls that operators were refused, as JSON in the field `entry`."""
OPERATIONS_KEY = "asynq:x:ops"
"""Sorted set: ids of operations on many tasks, scored with the second of their creation."""
VIEWS_KEY = "asynq:x:views"
"""Hash: id of a saved view, JSON."""
SNOOZED_KEY = "asynq:x:snoozed"
"""Sorted set: snoozes of attention findings as JSON, scored with the Unix second at which they end."""
SIGNED_OUT_KEY = "asynq:x:signedout"
"""Sorted set: digests of ended sessions of dashboards, scored with the second when their cookies lapse."""
CANCEL_CHANNEL = "asynq:cancel"
"""Publish/subscribe channel; a message is the id of the task to cancel."""

MARKS_KEY = "asynq:x:marks"
"""Sorted set: marks in charts as JSON, scored with the Unix second that they are for."""
TASK_TYPES_KEY = "asynq:x:types"
"""Hash, by task type: Unix second of its last announcement, a space, and its description."""
CONFIGURATIONS_KEY = "asynq:x:conf"
"""Hash, by task type: the version of its configuration, a space, and JSON."""
API_KEYS_KEY = "asynq:x:apikeys"
"""Hash, by id: the record of an API key as JSON, with digests of its secrets."""
HOST_GATE_PREFIX = "asynq:x:gate:"
"""Prefix of the keys of `host_gate_key`."""
LEASE_WORKERS_KEY = "asynq:x:leaseworkers"
"""Hash, by worker and instance of the task service: Unix second of the report, a space, JSON."""
COMMANDS_KEY = "asynq:x:commands"
"""Hash, by slot and instance of the task service: second of a command's report, a space, JSON."""
DOORS_KEY = "asynq:x:doors"
"""Hash, by protocol and instance of the task service: Unix second of the report, a space, JSON."""
DELIVERIES_KEY = "asynq:x:deliveries"
"""Hash, by host, queue and instance of the task service: second of the report, a space, JSON."""

LIST_PREFIX = "asynq:x:list:"
"""Prefix of the keys of `shard_keys`."""

_KEPT_QUEUES = 1024


class QueueKeys:
    """The keys of one queue; made by `queue_keys`.

    Names that do not depend on a task are built once: the hot path uses them constantly.
    """

    __slots__ = (
        "active",
        "aggregation_sets",
        "archived",
        "bucket",
        "callbacks",
        "cancellations",
        "completed",
        "events",
        "failed",
        "fence",
        "gone_prefix",
        "group_prefix",
        "groups",
        "lease",
        "limits",
        "objectives",
        "once_prefix",
        "outbox",
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
        self.completed = prefix + "completed"  # sorted set: task id, second at which it expires
        self.paused = prefix + "paused"  # string: Unix second of the pause; exists while paused
        self.processed = prefix + "processed"  # number of attempts that ended, failed ones included
        self.failed = prefix + "failed"  # number of attempts that failed
        self.groups = prefix + "groups"  # set of group names
        self.aggregation_sets = prefix + "aggregation_sets"  # sorted set: key, second at which it is stale
        self.task_prefix = prefix + "t:"
        self.group_prefix = prefix + "g:"
        # Ours; peers in Go neither read nor write them.
        self.callbacks = prefix + "x:callbacks"  # string: exists if tasks have callbacks
        self.cancellations = prefix + "x:cancel"  # hash: task id, which attempt to cancel and how
        self.events = prefix + "x:events"  # stream: what happened to tasks, as JSON in the field `event`
        self.fence = prefix + "x:fence"  # string: marker of durable writes, for a second
        self.limits = prefix + "x:limits"  # hash: settings of the queue, which override those of servers
        self.objectives = prefix + "x:objectives"  # hash: objectives of the queue, such as its longest wait
        self.bucket = prefix + "x:bucket"  # hash: token bucket: when it is full again, and the last turn
        self.once_prefix = prefix + "x:once:"  # prefix of strings: this id was enqueued
        self.outbox = prefix + "x:outbox"  # hash: address, end of a task with a callback
        self.own_unique_prefix = prefix + "x:unique:"  # prefix of strings: id of the task with this lock
        self.gone_prefix = prefix + "x:gone:"  # prefix of hashes: deleted tasks that can be restored
        self.ticks = prefix + "x:ticks"  # hash: scheduler entry id, Unix time of its last tick
        self.verdicts = prefix + "x:verdicts"  # sorted set: `TOKEN VERDICT ID`, second it is forgotten

    @property
    def places(self) -> tuple[str, ...]:
        """The keys that list waiting and finished tasks."""
        waiting = (self.pending, self.scheduled, self.retry)
        return *waiting, self.archived, self.completed, self.groups, self.aggregation_sets

    def gone(self, operation: str) -> str:
        """Return the key of an operation's undo records: a hash with one for each task that it deleted."""
        return self.gone_prefix + operation

    def gone_task(self, operation: str, task_id: str) -> str:
        """Return the key to which the hash of a task is renamed when an operation deletes it."""
        return f"{self.gone_prefix}{operation}:{task_id}"

    def step(self, operation: str) -> str:
        """Return the key of the hash that keeps the last step of an operation in this queue."""
        return f"{self.prefix}x:step:{operation}"

    def task(self, task_id: str) -> str:
        """Return the key of a task's hash."""
        return self.task_prefix + task_id

    def once(self, task_id: str) -> str:
        """Return the key of the marker that a task with this id was enqueued, for `once_for`."""
        return self.once_prefix + task_id

    def group(self, name: str) -> str:
        """Return the key of a group: a sorted set of task ids, scored with the second they joined."""
        return self.group_prefix + name

    def aggregation_set(self, group: str, set_id: str) -> str:
        """Return the key of an aggregation set: a sorted set of tasks that are being aggregated into one."""
        return f"{self.group_prefix}{group}:{set_id}"

    def find_group_of_set(self, key: str) -> str:
        """Return the group of an aggregation set. Raises ValueError if the key is not one.

        The name of a group may contain colons; the id of a set does not.
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

    def attempt_counts(self, level: str, start: int) -> str:
        """Return the key of counts of ended attempts: a hash that maps task types to packed numbers.

        Args:
            level: `minutes`, `ten_minutes` or `days`.
            start: Unix second at which the chunk of time begins that the key is for.
        """
        return f"{self.prefix}x:stats:{level}:{start}"

    def unique(self, task_type: str, payload: bytes | None) -> str:
        """Return the key of the uniqueness lock of all tasks of this type with this payload.

        No payload (None) and an empty one are two locks, as they are for Go clients.
        """
        digest = "" if payload is None else hashlib.md5(payload, usedforsecurity=False).hexdigest()
        return f"{self.prefix}unique:{task_type}:{digest}"

    def own_unique(self, name: str) -> str:
        """Return the key of the uniqueness lock of all tasks with this `unique_key`.

        It differs from every lock that a client makes of type and payload, which begins with `unique:`.
        """
        return f"{self.own_unique_prefix}{name}"


@lru_cache(maxsize=_KEPT_QUEUES)
def queue_keys(queue: str) -> QueueKeys:
    """Return the keys of a queue. Cached for recently used queues; do not change them."""
    return QueueKeys(queue)


def server_key(host: str, pid: int, server_id: str) -> str:
    """Return the key of a server's record, a ServerInfo."""
    return f"{SERVERS_KEY}:{{{host}:{pid}:{server_id}}}"


def workers_key(host: str, pid: int, server_id: str) -> str:
    """Return the key of a server's running tasks: a hash that maps task ids to WorkerInfo."""
    return f"{WORKERS_KEY}:{{{host}:{pid}:{server_id}}}"


def server_request_key(server_id: str) -> str:
    """Return the key of an operator's request to a server: a hash with the fields `action` and `number`."""
    return f"asynq:x:ask:{server_id}"


def scheduler_key(scheduler_id: str) -> str:
    """Return the key of a scheduler's entries: a list of SchedulerEntry."""
    return f"{SCHEDULERS_KEY}:{{{scheduler_id}}}"


def scheduler_history_key(entry_id: str) -> str:
    """Return the key of an entry's history: a sorted set of SchedulerEnqueueEvent by second of enqueue."""
    return f"asynq:scheduler_history:{entry_id}"


def configuration_versions_key(name: str) -> str:
    """Return the key of the kept versions of a task type's configuration: a sorted set of JSON by version."""
    return f"{CONFIGURATIONS_KEY}:{name}"


def api_key_bucket_key(key_id: str) -> str:
    """Return the key of the token bucket of an API key: a hash with the field `full_at`."""
    return f"asynq:x:bucket:{key_id}"


def host_gate_key(host: str) -> str:
    """Return the key of a host's gate (rate limit and throttling): a hash with `full_at` and `closed`."""
    return f"{HOST_GATE_PREFIX}{{{host}}}"


def host_slots_scope(host: str) -> str:
    """Return the scope of the semaphore of requests to a host, in the same slot as its gate."""
    return f"pyasynq:host:{{{host}}}"


def operation_key(operation: str) -> str:
    """Return the key of the hash that holds an operation on many tasks."""
    return f"asynq:x:op:{operation}"


def semaphore_key(scope: str) -> str:
    """Return the key of a semaphore: a sorted set of task ids by the second their permit expires."""
    return f"asynq:sema:{scope}"


class ListKeys(NamedTuple):
    """The keys of one shard of a task type whose workers only speak Redis; all are in one slot."""

    entries: str
    """List of tasks that a worker takes from; `shard_keys` derives the other keys from this key."""
    workers: str
    """Set of the names of workers."""
    leases: str
    """Hash: by the token of an entry, the lease token of its attempt."""
    replies: str
    """List of the workers' replies about entries, as JSON."""
    alive_prefix: str
    """Prefix of strings, one for each worker: how many entries it takes at once.

    A worker counts as live while its key exists (heartbeat).
    """
    held_prefix: str
    """Prefix of lists, one for each worker: the entries that it has taken."""


def shard_keys(task_type: str, shard: int | str) -> ListKeys:
    """Return the keys of one shard of a task type of the kind `list`."""
    entries = f"{LIST_PREFIX}{{{task_type}:{shard}}}"
    suffixes = ("workers", "leases", "replies", "alive:", "held:")
    return ListKeys(entries, *(f"{entries}:{suffix}" for suffix in suffixes))


def hash_slot(key: str) -> int:
    """Return the hash slot of a key in Redis Cluster, 0 to 16383."""
    return key_slot(key.encode())


def _day_text(day: date) -> str:
    # The day may be a datetime, whose own `isoformat` writes the time as well and is several times slower.
    return date.isoformat(day)
