"""What the doctor may find, and what it says about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Severity(enum.StrEnum):
    """How bad a finding is."""

    ERROR = "error"
    """Tasks are lost, stuck or run wrongly, or soon will be."""
    WARNING = "warning"
    """Something is in the way or will be."""
    NOTICE = "notice"
    """Untidy and harmless; workers of Go leave it behind when all is well."""


class FindingKind(enum.StrEnum):
    """What was found."""

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
    LIMITS_IGNORED = "limits_ignored"
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
        "these ids stand in a queue although there is no task behind them; nothing can run them, and new "
        "tasks with the same id may be refused",
        "drops the ids and what is left of their hashes",
    ),
    FindingKind.BLANK_TASK: _Description(
        _W,
        "these hashes hold no message and belong to no task; they take memory, and new tasks with the same "
        "id are refused",
        "deletes the hashes",
    ),
    FindingKind.ORPHAN: _Description(
        _E,
        "these tasks are in no collection, so nothing will ever run them, and no tool lists them",
        "puts them back where their state says; archives those that may have run and those whose time is "
        "lost, for you to run or delete; deletes those that a trimmed archive left behind",
    ),
    FindingKind.IN_TWO_PLACES: _Description(
        _E,
        "these tasks stand in several places at once and may run more than once",
        "leaves each in one place: where it runs, else where its state says",
    ),
    FindingKind.WRONG_STATE: _Description(
        _E,
        "the hash of these tasks says another state than the collection that they are in, so tools refuse "
        "to act on them",
        "writes the state of the collection into the hash",
    ),
    FindingKind.WRONG_GROUP: _Description(
        _E,
        "the hash or the message of these tasks names another group than the one that they are in or asked "
        "for, so they cannot be run, archived or deleted, or join the wrong group",
        "has both name the group that a task is in, and the hash of one in no group that of its message",
    ),
    FindingKind.WRONG_RETRIES: _Description(
        _W,
        "these tasks say that they were retried more often than they may be, or fewer times than never, so "
        "they get too few attempts or too many",
        "writes the nearest number that can be, unless a worker runs the task",
    ),
    FindingKind.WRONG_SCORE: _Description(
        _W,
        "the scores of these tasks are no whole seconds, or not those that their messages ask for, so they "
        "are due or deleted at the wrong time",
        "writes the score that the message asks for, rounded up; a completed task without a time to be kept "
        "gets that of its score",
    ),
    FindingKind.WRONG_LOCK: _Description(
        _N,
        "the hash of these tasks names another uniqueness lock than their message, or none; whoever deletes "
        "such a task leaves its lock behind",
        "writes the lock of the message into the hash",
    ),
    FindingKind.ACTIVE_WITHOUT_LEASE: _Description(
        _E,
        "these tasks are active and have no lease; workers of Go never take such a task back when its "
        "worker dies",
        "gives them a lease of 30 s: a live worker renews it, else the task is recovered when it ends",
    ),
    FindingKind.LEASE_WITHOUT_ACTIVE: _Description(
        _W,
        "these leases belong to tasks that are not active; recoverers look at them in vain",
        "removes the leases",
    ),
    FindingKind.UNDECODABLE: _Description(
        _E,
        "the messages of these tasks cannot be read; one of them stops the recovery of all tasks by workers "
        "of Go",
        "archives them with the reason, their bytes untouched",
    ),
    FindingKind.FOREIGN_MESSAGE: _Description(
        _E,
        "the messages of these tasks name another id or queue, so their workers settle the wrong task",
        "has them name the task that they are kept as, and archives them with the reason, for you to run or "
        "delete; not while a worker runs one",
    ),
    FindingKind.STALE_FIELDS: _Description(
        _N,
        "the hashes of these tasks hold fields of another state, or a pending one does not say since when; "
        "at most a latency is shown wrongly",
        "removes or sets the fields",
    ),
    FindingKind.STRANDED_GROUP: _Description(
        _E,
        "these groups have members and are missing in the list of groups, so nothing aggregates them until "
        "another task joins",
        "lists the groups",
    ),
    FindingKind.EMPTY_GROUP: _Description(
        _N, "these names are in the list of groups, and the groups have no members", "removes the names"
    ),
    FindingKind.ORPHAN_SET: _Description(
        _E,
        "these aggregation sets are in no list, so their tasks are neither aggregated nor given back",
        "puts the tasks back into their groups",
    ),
    FindingKind.EMPTY_SET: _Description(
        _W, "these aggregation sets are listed and do not exist", "removes them from the list"
    ),
    FindingKind.LEAKED_LOCK: _Description(
        _W,
        "these uniqueness locks belong to no task that is still to run, and keep out new tasks until they "
        "expire",
        "releases the locks",
    ),
    FindingKind.ENDLESS_LOCK: _Description(
        _E,
        "these uniqueness locks never expire; should their task be lost, no new one can ever be enqueued",
        "gives each an end in 24 hours, or releases it if its task is gone",
    ),
    FindingKind.ENDLESS_COUNTER: _Description(
        _N, "these counters of one day never expire and pile up", "gives them an end in 90 days"
    ),
    FindingKind.WRONG_COUNTER: _Description(
        _N,
        "these counters contradict others or are no numbers: more tasks failed than were processed, or more "
        "in 90 days than in all; the statistics are wrong",
        "raises a number to what the others prove, and deletes what is none",
    ),
    FindingKind.ENDLESS_RECORD: _Description(
        _W,
        "these records of servers or schedulers never expire, so the dead are shown as running",
        "gives them an end in 60 s: who lives writes its own anew",
    ),
    FindingKind.ARCHIVE_OVER_CAP: _Description(
        _W,
        "the archive holds more tasks than it is meant to; trimming by workers of Go has failed or was "
        "never done",
        "deletes the oldest beyond the cap, if you give the cap with --archive-max-size",
    ),
    FindingKind.UNREGISTERED_QUEUE: _Description(
        _E,
        "this queue has tasks and is not in the list of queues, so tools do not show it",
        "puts the name into the list",
    ),
    FindingKind.REMOVED_QUEUE: _Description(
        _W,
        "this queue was removed by a tool that does not know these keys; settings among them would apply to "
        "a new queue of the name",
        "deletes what is left of the queue",
    ),
    FindingKind.UNSERVED_QUEUE: _Description(
        _W, "tasks have been due for over ten seconds, and no running server serves this queue", ""
    ),
    FindingKind.LIMITS_IGNORED: _Description(
        _W,
        "these servers know neither limits nor order, and this queue has them: more runs at once than you "
        "allow",
        "",
    ),
    FindingKind.FUTURE_TICK: _Description(
        _W,
        "these ticks of scheduler entries lie over 5 minutes in the future, so the clock of Redis was wrong "
        "when they were written; schedulers ignore a last tick in the future and may fire a tick twice",
        "sets them to the present",
    ),
    FindingKind.DEAD_SERVER: _Description(
        _N,
        "these records say until when a server or scheduler was to be believed, over a minute ago; it ended "
        "without taking leave",
        "removes them from the index",
    ),
    FindingKind.OLD_HISTORY: _Description(
        _N,
        "these histories belong to scheduler entries that no running scheduler has, and never expire",
        "gives them an end in 90 days",
    ),
    FindingKind.EVICTION: _Description(
        _E,
        "Redis deletes keys when it is full, tasks among them: set maxmemory-policy to noeviction",
        "",
    ),
    FindingKind.CLOCK_SKEW: _Description(
        _W,
        "the clocks of these hosts differ from that of Redis by over two seconds: tasks run early or late, "
        "and leases are too short or too long; synchronise them",
        "",
    ),
    FindingKind.SLOW_SCRIPT: _Description(
        _W,
        "these scripts have blocked Redis for over 50 ms within the last hour: lists are very long, "
        "payloads very large, or the machine is too slow",
        "",
    ),
    FindingKind.WRONG_TYPE: _Description(
        _E,
        "another program has written these keys: their type is not the one that pyasynq and Asynq expect, so "
        "calls that meet them fail; delete or rename them",
        "",
    ),
}
"""Severity, what it means for the user, and what a repair does (empty: nothing) for each kind."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One kind of damage in one queue.

    Attributes:
        queue: empty for what concerns all of Redis.
        kind: what was found.
        severity: how bad it is.
        subjects: ids of tasks, names of groups, keys or servers that it is about.
        explanation: what it means, as a sentence.
        repair: what `repair` does about it, as a sentence; empty if only you can do something.
        repaired: those of the subjects that have been repaired.
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
        """Whether `repair` can do something about it."""
        return bool(self.repair)

    @property
    def is_repaired(self) -> bool:
        """Whether all of it has been repaired."""
        return len(self.repaired) == len(self.subjects)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON objects are made of."""
        return {
            "queue": self.queue,
            "kind": self.kind.value,
            "severity": self.severity.value,
            "subjects": list(self.subjects),
            "explanation": self.explanation,
            "repair": self.repair,
            "repaired": list(self.repaired),
        }


def finding_of(queue: str, kind: FindingKind, evidence: Mapping[bytes, bytes], detail: str = "") -> Finding:
    """Return a finding about subjects, each with what its repair needs to know."""
    severity, explanation, repair = DESCRIPTIONS[kind]
    text = explanation[0].upper() + explanation[1:] + (f" ({detail})" if detail else "") + "."
    subjects = tuple(as_text(subject) for subject in evidence)
    return Finding(queue, kind, severity, subjects, text, repair, _evidence=dict(evidence))


def as_text(subject: bytes) -> str:
    """Return what a subject is shown as."""
    return subject.decode("utf-8", "backslashreplace")
