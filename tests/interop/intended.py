"""Where pyasynq leaves something else in Redis, or answers something else, than Asynq 0.26 does, on purpose.

A difference that is not listed fails the comparison; so does, at night, an entry that no sequence needs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.interop.normal import Difference
    from tests.interop.steps import Step


class Intended(NamedTuple):
    """One intended difference.

    Attributes:
        number: of the weak point (W) or hazard (H) of Asynq that is mended; else the section of
            docs/wire-format.md that says what Asynq does, which test_facts.py confirms.
        operations: after which of them it comes into being; empty for any.
        key, part: regular expressions that match all of it.
        holds: whether the two values are what is intended.
        reason: what is better.
        also: another part of the same key that must differ too.
    """

    number: str
    operations: str
    key: str
    part: str
    holds: Callable[[Any, Any], bool]
    reason: str
    also: str = ""

    def covers(self, step: Step, found: Difference, all_found: Collection[Difference]) -> bool:
        """Return whether this is why a step made a difference, among all that it made."""
        return (
            not self.also or any((found.key, self.also) == (one.key, one.part) for one in all_found)
        ) and (
            (not self.operations or step.operation in self.operations.split())
            and re.fullmatch(self.key, found.key, re.DOTALL) is not None
            and re.fullmatch(self.part, found.part, re.DOTALL) is not None
            and self.holds(found.theirs, found.ours)
        )


def _only_ours(theirs: Any, ours: Any) -> bool:
    return theirs is None and ours is not None


def _only_theirs(theirs: Any, ours: Any) -> bool:
    return ours is None and theirs is not None


def _one_more(theirs: Any, ours: Any) -> bool:
    return bool(ours == theirs + 1)


def _greater(theirs: Any, ours: Any) -> bool:
    return bool(ours > theirs)


def _one_less(theirs: Any, ours: Any) -> bool:
    return bool(ours == theirs - 1)


def _same_members(theirs: Any, ours: Any) -> bool:
    return sorted(theirs or ()) == sorted(ours or ())


def _fewer(theirs: Any, ours: Any) -> bool:
    """Ours is what is left of theirs without some of it, in the same order."""
    names, rest = _members(theirs), iter(_members(theirs))
    return len(_members(ours)) < len(names) and all(one in rest for one in _members(ours))


def _more(theirs: Any, ours: Any) -> bool:
    return _fewer(ours, theirs)


def _members(value: Any) -> list[Any]:
    """The members of a list or a sorted set; the whole key where the other side has none."""
    if isinstance(value, dict):
        value = value.get("value", list(value))
    return list(value or ())


def _is(*wanted: tuple[Any, Any]) -> Callable[[Any, Any], bool]:
    return lambda theirs, ours: (theirs, ours) in wanted


def _becomes(theirs: Any, ours: Any) -> Callable[[Any, Any], bool]:
    return _is((theirs, ours))


def _not_failed_again(theirs: Any, ours: Any) -> bool:
    """Ours has nothing, or what an attempt before the crash has left."""
    return "asynq: task lease expired" == theirs if isinstance(theirs, str) else bool(theirs > ours)


def _any(theirs: Any, ours: Any) -> bool:
    return True


def _poisoned(theirs: Any, ours: Any) -> bool:
    return str(ours).startswith("poison: its worker crashed 3 times")


def _counted(theirs: Any, ours: Any) -> bool:
    """Asynq has counted an attempt, and we have not."""
    return int(_count(theirs)) > int(_count(ours))


def _count(value: Any) -> Any:
    return (value["value"] if isinstance(value, dict) else value) or 0


TASK = r"asynq:\{.*?\}:t:.*"
LOCK = r"asynq:\{.*?\}:unique:.*"
PENDING = r"asynq:\{.*?\}:pending"
ACTIVE = r"asynq:\{.*?\}:active"
LEASE = r"asynq:\{.*?\}:lease"
ARCHIVED = r"asynq:\{.*?\}:archived"
DELAYED = r"asynq:\{.*?\}:(scheduled|retry)"
GROUPS = r"asynq:\{.*?\}:groups"
GROUP = r"asynq:\{.*?\}:g:.*"
SETS = r"asynq:\{.*?\}:aggregation_sets"
CANCELLATIONS = r"asynq:\{.*?\}:x:cancel"
COUNTER = r"asynq:\{.*?\}:(processed|failed).*"
BY_HAND = "Looking and changing by hand"
GROUPS_SECTION = "Groups"
WHOLE_KEY = "key"
EACH = ".*"

QUIET = (
    Intended("H5", "", TASK, "x:attempt", _only_ours, "the token of the attempt"),
    Intended("H6", "", TASK, "x:crashes", _only_ours, "how many workers died with the task"),
    Intended("H6", "", TASK, "x:extended", _only_ours, "which remote worker is known to live"),
    Intended("H6", "", TASK, "x:lapses", _only_ours, "how many leases ended without a sign of a worker"),
    Intended("W5", "", TASK, "x:group", _only_ours, "the group that a scheduled task is to join"),
    Intended("H9", "", TASK, "x:unique_ttl", _only_ours, "for how long the lock is to be renewed"),
    Intended("H6", "", TASK, "x:attempts", _only_ours, "the outcomes of the newest attempts"),
    Intended("H6", "", TASK, "x:trace", _only_ours, "the traceback of the last failure"),
    Intended("H16", "", CANCELLATIONS, EACH, _only_ours, "a request without a listener is stored"),
)
"""Fields that Asynq does not know; they stay while both databases go on."""

LOUD = (
    Intended("W24", "enqueue", TASK, "msg.timeout|msg.retention", _one_more, "no duration is cut short"),
    Intended("W24", "enqueue", "answer", "timeout|retention", _one_more, "no duration is cut short"),
    Intended("W2", "enqueue", LOCK, WHOLE_KEY, _only_theirs, "a conflict leaves no lock behind"),
    Intended(
        "W2", "enqueue", "answer", "refusal", _becomes("duplicate", "conflict"), "the id is looked at first"
    ),
    Intended(
        "W8", "enqueue aggregate", "asynq:queues", EACH, _only_ours, "a queue that was removed is named again"
    ),
    Intended("W9", "enqueue", TASK, "unique_key", _only_ours, "a later delete finds its lock"),
    Intended(
        "W9", "aggregate delete_all", LOCK, WHOLE_KEY, _only_theirs, "who deletes a task releases its lock"
    ),
    Intended(
        "H9",
        "take finish cancel recover",
        LOCK,
        "ttl",
        _greater,
        "a lock holds for as long as its task may run",
    ),
    Intended(
        "W13", "stop run_task run_all", TASK, "pending_since", _only_ours, "who comes back waits from then on"
    ),
    Intended(
        "W13", "archive_task archive_all", TASK, "pending_since", _only_theirs, "an archived task waits not"
    ),
    Intended(
        "W5", "run_task run_all archive_task archive_all", TASK, "group", _only_ours, "the group stays known"
    ),
    Intended(
        "W5", "forward", TASK, "group", _only_ours, "a scheduled task of a group joins it when it is due"
    ),
    Intended("W5", "forward", TASK, "state", _becomes(b"pending", b"aggregating"), "it joins its group"),
    Intended("W5", "forward", TASK, "pending_since", _only_theirs, "it joins its group", also="state"),
    Intended("W5", "forward", PENDING, f"value|{WHOLE_KEY}", _fewer, "it joins its group"),
    Intended("W5", "forward", GROUP, EACH, _only_ours, "it joins its group"),
    Intended("W4", "forward", GROUPS, EACH, _only_ours, "a group that has members is named"),
    Intended("W3", "recover", GROUPS, EACH, _only_ours, "a group that has members is named"),
    Intended("H6", "recover", TASK, "state", _becomes(b"retry", b"pending"), "a crash is not a failure"),
    Intended("H6", "recover", TASK, "state", _becomes(b"archived", b"pending"), "a crash is not a failure"),
    Intended("H6", "recover", TASK, "state", _becomes(b"retry", b"archived"), "three crashes are too many"),
    Intended("H6", "recover", TASK, "msg.retried", _one_less, "a crash spends no retry"),
    Intended(
        "H6",
        "recover",
        TASK,
        "msg.error_msg|msg.last_failed_at",
        _not_failed_again,
        "a crash is not a failure",
    ),
    Intended("H6", "recover", TASK, "pending_since", _only_ours, "a crashed task is pending again at once"),
    Intended(
        "H6", "recover", PENDING, f"value|{WHOLE_KEY}", _more, "a crashed task is pending again at once"
    ),
    Intended("H6", "recover", DELAYED, EACH, _only_theirs, "a crashed task is pending again at once"),
    Intended("H6", "recover", ARCHIVED, EACH, _only_theirs, "a task is archived at its third crash"),
    Intended("H6", "recover", ARCHIVED, EACH, _only_ours, "a task is archived at its third crash"),
    Intended("H6", "recover", COUNTER, f"value|{WHOLE_KEY}", _counted, "a crash is not a failure"),
    Intended("H6", "recover", TASK, "msg.error_msg", _poisoned, "a task is archived at its third crash"),
    Intended("W10", "archive_task archive_all", TASK, WHOLE_KEY, _only_theirs, "what is trimmed is deleted"),
    Intended(
        "W12", "remove_queue", "answer", "refusal", _becomes("", "queue not empty"), "all its tasks count"
    ),
    Intended("W12", "remove_queue", "asynq:queues", EACH, _only_ours, "all its tasks count"),
    Intended("H8", "recover", ACTIVE, EACH, _fewer, "a crashed task of ours is back 35 s after it was taken"),
    Intended(
        "H8", "recover", LEASE, EACH, _only_theirs, "a crashed task of ours is back 35 s after it was taken"
    ),
    Intended("H8", "recover", TASK, "state", _becomes(b"active", b"pending"), "as the lease says"),
    Intended("H8", "recover", TASK, "state", _becomes(b"active", b"archived"), "as the lease says"),
    Intended(
        "W12",
        "remove_queue",
        "(?!asynq:queues).*",
        WHOLE_KEY,
        _only_theirs,
        "nothing of a queue stays behind",
    ),
    Intended(
        "W32", "queue_info", "answer", "aggregating|size", _greater, "members of aggregation sets are counted"
    ),
    Intended(
        BY_HAND, "groups", "answer", "refusal", _becomes("", "queue not found"), "as for all other questions"
    ),
    Intended(
        BY_HAND, "task_info", "answer", "is_orphaned", _becomes(False, True), "as in a list of active tasks"
    ),
    Intended(
        BY_HAND,
        "update_payload",
        "answer",
        "refusal",
        _becomes("other", ""),
        "tasks in retry and in the archive wait too",
    ),
    Intended(
        BY_HAND, "update_payload", TASK, "msg.payload", _any, "tasks in retry and in the archive wait too"
    ),
    Intended(
        GROUPS_SECTION, "aggregate", PENDING, "value", _same_members, "SMEMBERS tells groups in any order"
    ),
)
"""After any of these, Asynq's database is made like ours, so that both go on from the same state."""
