"""Findings of the doctor: kinds, severities and texts."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Severity(enum.StrEnum):
    """Severity of a finding."""

    ERROR = "error"
    """Tasks are lost, stuck or run wrongly, or soon will be."""
    WARNING = "warning"
    """Something is blocked, or will be."""
    NOTICE = "notice"
    """Untidy but harmless; workers in Go leave it in normal operation."""


class FindingKind(enum.StrEnum):
    """Kind of damage."""

    GHOST = "ghost"
    BLANK_TASK = "blank_task"
    ORPHAN = "orphan"
    IN_TWO_PLACES = "in_two_places"
    WRONG_STATE = "wrong_state"
    WRONG_GROUP = "wrong_group"
    WRONG_RETRIES = "wrong_retries"
    WRONG_SCORE = "wrong_score"
    WRONG_LOCK = "wrong_lock"
    ACTIVE_WITHOUT_LEASE = "active_without_lease"
    LEASE_WITHOUT_ACTIVE = "lease_without_active"
    UNDECODABLE = "undecodable"
    FOREIGN_MESSAGE = "foreign_message"
    STALE_FIELDS = "stale_fields"
    STRANDED_GROUP = "stranded_group"
    EMPTY_GROUP = "empty_group"
    ORPHAN_SET = "orphan_set"
    EMPTY_SET = "empty_set"
    LEAKED_LOCK = "leaked_lock"
    ENDLESS_LOCK = "endless_lock"
    ENDLESS_COUNTER = "endless_counter"
    WRONG_COUNTER = "wrong_counter"
    ENDLESS_RECORD = "endless_record"
    ARCHIVE_OVER_CAP = "archive_over_cap"
    UNREGISTERED_QUEUE = "unregistered_queue"
    REMOVED_QUEUE = "removed_queue"
    UNSERVED_QUEUE = "unserved_queue"
    UNSERVED_TYPE = "unserved_type"
    LIMITS_IGNORED = "limits_ignored"
    UNTOLD_ENDING = "untold_ending"
    FUTURE_TICK = "future_tick"
    DEAD_SERVER = "dead_server"
    OLD_HISTORY = "old_history"
    EVICTION = "eviction"
    CLOCK_SKEW = "clock_skew"
    SLOW_SCRIPT = "slow_script"
    WRONG_TYPE = "wrong_type"


class _Description(NamedTuple):
    severity: Severity
    explanation: str
    repair: str


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTICE

DESCRIPTIONS: Final[Mapping[FindingKind, _Description]] = {
    FindingKind.GHOST: _Description(
        _E,
        "these ids are in a queue, but no task exists for them, so nothing can run them. New tasks with "
        "the same id may be refused",
        "drops the ids and what is left of their hashes",
    ),
    FindingKind.BLANK_TASK: _Description(
        _W,
        "these hashes have no message and belong to no task. They take memory, and new tasks with the "
        "same id are refused",
        "deletes the hashes",
    ),
    FindingKind.ORPHAN: _Description(
        _E,
        "these tasks are in no collection, so nothing will ever run them, and no tool lists them",
        "puts them back where their state says. Archives those that may have run or whose time is lost, "
        "for you to run or delete. Deletes those that a trimmed archive left behind",
    ),
    FindingKind.IN_TWO_PLACES: _Description(
        _E,
        "these tasks are in several places at once and may run more than once",
        "leaves each in one place: where it runs, else where its state says",
    ),
    FindingKind.WRONG_STATE: _Description(
        _E,
        "the hash of these tasks says another state than their collection, so tools refuse to act on them",
        "writes the state of the collection into the hash",
    ),
    FindingKind.WRONG_GROUP: _Description(
        _E,
        "the hash or the message of these tasks names a wrong group. They cannot be run, archived or "
        "deleted, or join the wrong group",
        "writes the group that a task is in into both. Without a group, the message decides",
    ),
    FindingKind.WRONG_RETRIES: _Description(
        _W,
        "these tasks have a number of retries that is negative or above their limit, so they get too few "
        "attempts or too many",
        "writes the nearest valid number, unless a worker runs the task",
    ),
    FindingKind.WRONG_SCORE: _Description(
        _W,
        "the scores of these tasks are not whole seconds, or contradict their messages, so they are due "
        "or deleted at the wrong time",
        "writes the score that the message asks for, rounded up. A completed task without a retention "
        "gets that of its score",
    ),
    FindingKind.WRONG_LOCK: _Description(
        _N,
        "the hash of these tasks names another uniqueness lock than their message, or does not name a lock. "
        "Deleting such a task leaves its lock behind",
        "writes the lock of the message into the hash",
    ),
    FindingKind.ACTIVE_WITHOUT_LEASE: _Description(
        _E,
        "these tasks are active and have no lease. Workers of Go never recover such a task when its "
        "worker dies",
        "gives them a lease of 30 s. A live worker renews it; otherwise the task is recovered when it ends",
    ),
    FindingKind.LEASE_WITHOUT_ACTIVE: _Description(
        _W,
        "these leases belong to tasks that are not active, so recoverers read them for nothing",
        "removes the leases",
    ),
    FindingKind.UNDECODABLE: _Description(
        _E,
        "the messages of these tasks cannot be read. One of them stops the recovery of all tasks by "
        "workers of Go",
        "archives them with the reason, their bytes unchanged",
    ),
    FindingKind.FOREIGN_MESSAGE: _Description(
        _E,
        "the messages of these tasks name another id or queue, so their workers settle the wrong task",
        "writes the id and queue by which the task is kept, and archives it with the reason, for you to "
        "run or delete. Not while a worker runs it",
    ),
    FindingKind.STALE_FIELDS: _Description(
        _N,
        "the hashes of these tasks have fields of another state, or a pending one lacks its start of "
        "waiting. At most a latency is shown wrongly",
        "removes or sets the fields",
    ),
    FindingKind.STRANDED_GROUP: _Description(
        _E,
        "these groups have members and are missing in the list of groups, so nothing aggregates them "
        "until another task joins",
        "lists the groups",
    ),
    FindingKind.EMPTY_GROUP: _Description(
        _N,
        "these names are in the list of groups, and the groups have no members",
        "removes the names",
    ),
    FindingKind.ORPHAN_SET: _Description(
        _E,
        "these aggregation sets are in no list, so their tasks are neither aggregated nor given back",
        "puts the tasks back into their groups",
    ),
    FindingKind.EMPTY_SET: _Description(
        _W,
        "these aggregation sets are listed and do not exist",
        "removes them from the list",
    ),
    FindingKind.LEAKED_LOCK: _Description(
        _W,
        "these uniqueness locks belong to no unfinished task, and keep out new tasks until they expire",
        "releases the locks",
    ),
    FindingKind.ENDLESS_LOCK: _Description(
        _E,
        "these uniqueness locks never expire. If their task is lost, no new one can ever be enqueued",
        "sets an expiry of 24 hours, or releases the lock if its task is gone",
    ),
    FindingKind.ENDLESS_COUNTER: _Description(
        _N,
        "these counters of one day never expire and pile up",
        "sets an expiry of 90 days",
    ),
    FindingKind.WRONG_COUNTER: _Description(
        _N,
        "these counters are not numbers or contradict others, so the statistics are wrong. More tasks "
        "failed than were processed, or more in 90 days than in all",
        "raises a number to what the others prove, and deletes one that cannot be read",
    ),
    FindingKind.ENDLESS_RECORD: _Description(
        _W,
        "these records of servers or schedulers never expire, so dead ones are shown as running",
        "sets an expiry of 60 s; a live server or scheduler writes its record again",
    ),
    FindingKind.ARCHIVE_OVER_CAP: _Description(
        _W,
        "the archive holds more tasks than it should. Trimming by workers of Go has failed or was never done",
        "deletes the oldest beyond the cap, if you give the cap with --archive-max-size",
    ),
    FindingKind.UNREGISTERED_QUEUE: _Description(
        _E,
        "this queue has tasks and is not in the list of queues, so tools do not show it",
        "puts the name into the list",
    ),
    FindingKind.REMOVED_QUEUE: _Description(
        _W,
        "this queue was removed by a tool that does not know these keys. Settings among them would apply "
        "to a new queue of the name",
        "deletes what is left of the queue",
    ),
    FindingKind.UNSERVED_QUEUE: _Description(
        _W,
        "tasks have been due for over ten seconds, and no running server serves this queue",
        "",
    ),
    FindingKind.UNSERVED_TYPE: _Description(
        _W,
        "tasks of these types wait, and no running server of this queue handles them. Start a worker that"
        " does, or look for a misspelt type",
        "",
    ),
    FindingKind.LIMITS_IGNORED: _Description(
        _W,
        "these servers know neither limits nor order, and this queue has them, so more tasks run at once "
        "than you allow",
        "",
    ),
    FindingKind.UNTOLD_ENDING: _Description(
        _W,
        "these ends of tasks have waited for their completion callbacks for over a minute. No server serves "
        "the queue, or their entries in its outbox cannot be read",
        "enqueues the callbacks. Entries that cannot be read stay",
    ),
    FindingKind.FUTURE_TICK: _Description(
        _W,
        "these ticks of scheduler entries are over 5 minutes in the future, because the clock of Redis "
        "was wrong. Schedulers ignore a last tick in the future and may fire a tick twice",
        "sets them to the present",
    ),
    FindingKind.DEAD_SERVER: _Description(
        _N,
        "these records of a server or scheduler expired over a minute ago. It ended without removing its "
        "record",
        "removes them from the index",
    ),
    FindingKind.OLD_HISTORY: _Description(
        _N,
        "these histories belong to scheduler entries that no running scheduler has, and never expire",
        "sets an expiry of 90 days",
    ),
    FindingKind.EVICTION: _Description(
        _E,
        "Redis deletes keys when it is full, tasks among them: set maxmemory-policy to noeviction",
        "",
    ),
    FindingKind.CLOCK_SKEW: _Description(
        _W,
        "the clocks of these hosts differ from that of Redis by over two seconds. Tasks run early or "
        "late, and leases are too short or too long; synchronise the clocks",
        "",
    ),
    FindingKind.SLOW_SCRIPT: _Description(
        _W,
        "these scripts have blocked Redis for over 50 ms within the last hour. Lists are very long, "
        "payloads very large, or the machine is too slow",
        "",
    ),
    FindingKind.WRONG_TYPE: _Description(
        _E,
        "another program has written these keys with a type that pyasynq and Asynq do not expect. Calls "
        "that meet them fail; delete or rename them",
        "",
    ),
}
"""For each kind: severity, meaning for the user, and the effect of a repair (empty: no repair)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of damage in one queue.

    Attributes:
        queue: empty for damage that concerns all of Redis.
        kind: kind of the damage.
        severity: severity of the damage.
        subjects: ids of tasks, names of groups, keys or servers that it concerns.
        explanation: its meaning, as a sentence.
        repair: what `repair` does about it, as a sentence; empty if only you can repair it.
        repaired: the subjects that have been repaired.
    """

    queue: str
    kind: FindingKind
    severity: Severity
    subjects: tuple[str, ...]
    explanation: str
    repair: str
    repaired: tuple[str, ...] = ()
    _evidence: Mapping[bytes, bytes] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_repairable(self) -> bool:
        """Whether `repair` can repair it."""
        return bool(self.repair)

    @property
    def is_repaired(self) -> bool:
        """Whether all of it has been repaired."""
        return len(self.repaired) == len(self.subjects)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return {
            "queue": self.queue,
            "kind": self.kind.value,
            "severity": self.severity.value,
            "subjects": list(self.subjects),
            "explanation": self.explanation,
            "repair": self.repair,
            "repaired": list(self.repaired),
        }


def make_finding(queue: str, kind: FindingKind, evidence: Mapping[bytes, bytes], detail: str = "") -> Finding:
    """Build a finding about subjects, each with the evidence that its repair needs."""
    severity, explanation, repair = DESCRIPTIONS[kind]
    text = explanation[0].upper() + explanation[1:] + (f" ({detail})" if detail else "") + "."
    subjects = tuple(as_text(subject) for subject in evidence)
    return Finding(queue, kind, severity, subjects, text, repair, _evidence=dict(evidence))


def as_text(subject: bytes) -> str:
    """Decode a subject, such as a task id or a key, for display."""
    return subject.decode("utf-8", "backslashreplace")
