"""The table of query fields: source of parser, matcher, completion and docs/query.md."""

from __future__ import annotations

import dataclasses
import enum
from dataclasses import dataclass
from typing import Final

from pyasynq.task import TaskState


class Kind(enum.Enum):
    """Kind of a field: the way in which its values are parsed and compared."""

    STATE = "a state, or several"
    NAME = "a name, with `*` for any text"
    ID = "an id, or several"
    TEXT = "text that it contains"
    ERROR = "text that it contains, or `sig:` and the beginning of a signature"
    PATH = "a value, a range, `*` in text, or `*` alone"
    NUMBER = "a number or a range"
    SIZE = "bytes, with kB or MB, or a range"
    PAST = "an age, a time in RFC 3339, or a range"
    FUTURE = "a time ahead, `past`, a time in RFC 3339, or a range"
    SHARE = "a share in percent, or a range"
    FLAG = "none: the word alone"


class Answered(enum.Enum):
    """Method by which a search evaluates a field: in Redis (predicate pushdown), or on decoded tasks."""

    PLACE = "chooses the collections to look at"
    LOOK_UP = "looks the task up by its id"
    TEXT = "Redis leaves out tasks without the text"
    NUMBER = "Redis leaves out tasks with other values"
    SCORE = "a range of scores, so that Redis looks at no other task"
    RECORD = "reads the records of live servers"
    DECODE = "reads every task of the collection"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the query language."""

    name: str
    kind: Kind
    states: frozenset[TaskState]
    """Task states in which the field has a value; tasks in other states never match."""
    answered: Answered
    meaning: str
    example: str
    is_private: bool = False
    """Whether the values may be redacted; only users who may view payloads can search such a field."""
    has_path: bool = False
    """Whether the name is followed by a dot and a path."""


_ALL: Final = frozenset(TaskState)
_SCHEDULED, _RETRY, _ARCHIVED = TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED
_COMPLETED, _PENDING, _ACTIVE = TaskState.COMPLETED, TaskState.PENDING, TaskState.ACTIVE
_GROUPED: Final = TaskState.AGGREGATING


def _states(*states: TaskState) -> frozenset[TaskState]:
    return frozenset(states)


_TABLE: Final = (
    Field("state", Kind.STATE, _ALL, Answered.PLACE, "the state of the task", "state:retry,archived"),
    Field("queue", Kind.NAME, _ALL, Answered.PLACE, "the queue of the task", "queue:mail-*"),
    Field("id", Kind.ID, _ALL, Answered.LOOK_UP, "the id of the task", "id:9f8e,77ab"),
    Field("type", Kind.NAME, _ALL, Answered.TEXT, "the type of the task", "type:email:*"),
    Field(
        "error",
        Kind.ERROR,
        _states(_RETRY, _ARCHIVED),
        Answered.TEXT,
        "the error of the last failure",
        "error:timeout",
        is_private=True,
    ),
    Field(
        "payload", Kind.TEXT, _ALL, Answered.TEXT, "the bytes of the payload", "payload:acme", is_private=True
    ),
    Field(
        "result",
        Kind.TEXT,
        _states(_COMPLETED),
        Answered.TEXT,
        "the bytes of the result",
        "result:sent",
        is_private=True,
    ),
    Field(
        "payload.",
        Kind.PATH,
        _ALL,
        Answered.NUMBER,
        "a value in a JSON payload of at most 256 kB",
        "payload.user.id:>=42",
        is_private=True,
        has_path=True,
    ),
    Field(
        "header.",
        Kind.PATH,
        _ALL,
        Answered.TEXT,
        "a header of the task",
        "header.tenant:acme",
        is_private=True,
        has_path=True,
    ),
    Field("retried", Kind.NUMBER, _ALL, Answered.NUMBER, "retries that were spent", "retried:>3"),
    Field("max_retry", Kind.NUMBER, _ALL, Answered.NUMBER, "retries that are allowed", "max_retry:0"),
    Field("crashes", Kind.NUMBER, _ALL, Answered.DECODE, "workers that died with the task", "crashes:>=1"),
    Field("size", Kind.SIZE, _ALL, Answered.NUMBER, "bytes of the payload", "size:>100kB"),
    Field(
        "due", Kind.FUTURE, _states(_SCHEDULED, _RETRY), Answered.SCORE, "when the task is to run", "due:<5m"
    ),
    Field(
        "failed",
        Kind.PAST,
        _states(_RETRY, _ARCHIVED),
        Answered.NUMBER,
        "when the last attempt failed",
        "failed:<1h",
    ),
    Field(
        "archived",
        Kind.PAST,
        _states(_ARCHIVED),
        Answered.SCORE,
        "when the task was archived",
        "archived:<1d",
    ),
    Field(
        "completed",
        Kind.PAST,
        _states(_COMPLETED),
        Answered.NUMBER,
        "when the task was completed",
        "completed:10m..1h",
    ),
    Field(
        "expires",
        Kind.FUTURE,
        _states(_COMPLETED),
        Answered.SCORE,
        "when the retention of a completed task ends",
        "expires:<1h",
    ),
    Field(
        "waiting",
        Kind.PAST,
        _states(_PENDING, _GROUPED),
        Answered.SCORE,
        "since when the task has waited; by score in groups only",
        "waiting:>10m",
    ),
    Field(
        "running", Kind.PAST, _states(_ACTIVE), Answered.RECORD, "since when the task has run", "running:>5m"
    ),
    Field(
        "deadline",
        Kind.SHARE,
        _states(_ACTIVE),
        Answered.RECORD,
        "how much of the time until its deadline is over",
        "deadline:>80%",
    ),
    Field(
        "server",
        Kind.NAME,
        _states(_ACTIVE),
        Answered.RECORD,
        "the id of the server that runs it",
        "server:5c*",
    ),
    Field("group", Kind.NAME, _ALL, Answered.TEXT, "the group of the task", "group:digest:*"),
    Field(
        "unique",
        Kind.NAME,
        _ALL,
        Answered.TEXT,
        "the name of its uniqueness lock, or type and digest",
        "unique:*",
        is_private=True,
    ),
    Field(
        "orphaned", Kind.FLAG, _states(_ACTIVE), Answered.DECODE, "the lease is over or missing", "orphaned"
    ),
    Field(
        "poison",
        Kind.FLAG,
        _states(_ARCHIVED),
        Answered.DECODE,
        "archived after its workers died or gave no sign",
        "poison",
    ),
    Field(
        "overdue",
        Kind.FLAG,
        _states(_SCHEDULED, _RETRY, _ACTIVE),
        Answered.DECODE,
        "still waiting after its time, or running after its deadline",
        "overdue",
    ),
)

FIELDS: Final = {field.name: field for field in _TABLE}
"""Every field by its name; the name of a field with a path ends in a dot."""

WORD: Final = Field(
    "",
    Kind.TEXT,
    _ALL,
    Answered.TEXT,
    "text in the id, type, payload or error",
    "timeout",
    is_private=True,
)
"""Field for a bare word in a query (one without a field name), which is searched in several fields."""

PUBLIC_WORD: Final = dataclasses.replace(
    WORD, name="public", meaning="text in the id or type", is_private=False
)
"""Field for a bare word of users who may not view payloads: it is searched in id and type only."""

ELSEWHERE: Final = {
    "enqueued": ("is not stored by Asynq; for pending tasks use `waiting:`", "waiting:>2h"),
    "created": ("is not stored by Asynq; for pending tasks use `waiting:`", "waiting:>2h"),
    "started": ("is `running:` here, for active tasks", "running:>5m"),
    "status": ("is `state:` here", "state:"),
    "in": ("is `state:` here", "state:"),
    "name": ("is `type:` here", "type:"),
    "task": ("is `type:` or `id:` here", "type:"),
    "kind": ("is `type:` here", "type:"),
    "args": ("is `payload:` here, or a path such as `payload.user.id:`", "payload:"),
    "kwargs": ("is `payload:` here, or a path such as `payload.user.id:`", "payload:"),
    "meta": ("is `header.` here, with the name of the header", "header."),
    "worker": ("is `server:` here", "server:"),
    "age": ("depends on the state: `waiting:`, `failed:`, `archived:` or `completed:`", "waiting:>10m"),
    "scheduled": ("is `due:` here; for the state use `state:scheduled`", "due:"),
    "attempts": ("is `retried:` here", "retried:"),
    "attempt": ("is `retried:` here", "retried:"),
    "retries": ("is `retried:` here", "retried:"),
    "failure": ("is `error:` here", "error:"),
    "errors": ("is `error:` here", "error:"),
    "finished": ("is `completed:` here", "completed:<1h"),
    "is": ("takes no field: write the state or the flag", "state:"),
    "header": ("takes the name of a header after a dot", "header."),
    "headers": ("is `header.` here, with the name of the header", "header."),
}
"""Field names that users of other task queues expect: for each a hint, and the nearest valid clause."""
