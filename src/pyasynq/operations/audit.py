"""Audit log entries: user, verb, subject, address, reason and outcome of each call."""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyasynq._human_text import shorten_end
from pyasynq._visible_text import visible
from pyasynq.info import BulkResult, TaskResults
from pyasynq.task import Task, TaskInfo

from .operation import OperationInfo, OperationOptions, Targets
from .patterns import matches_any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .permissions import User
    from .redaction import Redactor
    from .verbs import Verb

LOGGER: Final = logging.getLogger("pyasynq.audit")
"""Logger that receives a record for each audit entry; the record's attribute `audit` has the fields."""

OUTCOME_STARTED: Final = "started"
"""Outcome of an entry that announces a change; the final outcome replaces it when the change has ended."""
OUTCOME_DONE: Final = "done"
OUTCOME_FAILED: Final = "failed"
OUTCOME_REFUSED: Final = "refused"

_DEFAULT: Final = OperationOptions()
_MAX_TEXT: Final = 1_000
_MAX_NAMES: Final = 100
_NO_DETAILS: Final = frozenset({"self", "queue", "queues", "reason"})


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Audit entry of one call: done, attempted or refused."""

    at: datetime
    """Time at which the action began, as an aware `datetime`."""
    user: str
    role: str
    login: str
    address: str
    verb: str
    """Method of the operator; `request` for a request that was refused before it called a method."""
    queues: tuple[str, ...] = ()
    """Queues that the action concerns; empty for none, or for all."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Arguments as text, without secrets; of an argument that is bytes, only the length."""
    reason: str = ""
    outcome: str = OUTCOME_STARTED
    """`started`, `done`, `failed` or `refused`. A change that stays `started` was interrupted."""
    error: str = ""
    """Reason why the call failed or was refused; empty if the call succeeded."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts from the result, such as the number of tasks done and of tasks refused."""
    before: str = ""
    """Values before an edit, without secrets."""
    after: str = ""
    seconds: float | None = None
    """Duration of the action in seconds; None while unknown."""
    operation: str = ""
    """Id of the operation on many tasks that the call belongs to."""
    more: int = 0
    """Number of further refused calls that share this entry."""
    position: str = ""
    """Position in the audit's stream; the next page continues before it."""


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Entries of the audit, newest first."""

    entries: tuple[AuditEntry, ...]
    cursor: str | None
    """Cursor of the next page; None at the end."""
    scanned: int
    """Number of examined entries."""


@dataclass(frozen=True, slots=True)
class AuditFilters:
    """Filters of a page of the audit; empty fields match everything."""

    user: str = ""
    verb: str = ""
    queue: str = ""
    """Glob pattern that at least one queue of the entry matches."""
    outcome: str = ""
    operation: str = ""
    text: str = ""
    """Text that reason, details or error contain; case is ignored."""
    since: datetime | None = None
    until: datetime | None = None

    def match(self, entry: AuditEntry) -> bool:
        """Return whether an entry passes the filters."""
        wanted = (
            (self.user, entry.user),
            (self.verb, entry.verb),
            (self.outcome, entry.outcome),
            (self.operation, entry.operation),
        )
        if any(value and value != found for value, found in wanted):
            return False
        if self.queue and not any(matches_any(queue, [self.queue]) for queue in entry.queues):
            return False
        if (self.since and entry.at < self.since) or (self.until and entry.at > self.until):
            return False
        texts = " ".join([entry.reason, entry.error, *entry.details.values()]).lower()
        return self.text.lower() in texts


@dataclass(slots=True)
class _Change:
    before: str = ""
    after: str = ""
    task_type: str = ""


_change: ContextVar[_Change | None] = ContextVar("pyasynq_audited_change", default=None)


def note_change(before: object, after: object, task_type: str = "") -> None:
    """Record the old and new value for the audit; methods of the operator call this before they edit.

    The task type decides which fields of the payload are redacted as secrets.
    """
    change = _change.get()
    if change is not None:
        change.before, change.after, change.task_type = str(before), str(after), task_type


@contextmanager
def noting_change() -> Iterator[_Change]:
    """Collect the changes passed to `note_change` within the block."""
    change = _Change()
    token = _change.set(change)
    try:
        yield change
    finally:
        _change.reset(token)


def begin_entry(
    user: User,
    verb: Verb,
    arguments: Mapping[str, Any],
    redactor: Redactor,
    *,
    concerns: tuple[str, ...] = (),
    now: datetime,
) -> AuditEntry:
    """Return the entry that announces a call: its queues are those in the arguments, else `concerns`."""
    named = arguments.get("queue") or arguments.get("queues") or concerns
    queues = (named,) if isinstance(named, str) else tuple(named)
    flat = {**arguments, **arguments.get("limits", {})}
    details = {
        name: _describe(value, redactor)
        for name, value in flat.items()
        if name not in _NO_DETAILS and name != "limits" and value is not None
    }
    return replace(
        _entry_of(user, verb.name, now),
        queues=queues[:_MAX_NAMES],
        details=redactor.headers(details),
        reason=shorten_end(redactor.text(str(arguments.get("reason") or "")), _MAX_TEXT),
    )


def describe_request(
    user: User, request: str, queues: tuple[str, ...], redactor: Redactor, *, now: datetime
) -> AuditEntry:
    """Return the entry of an HTTP request that was refused before it called the operator: verb `request`."""
    details = {"request": shorten_end(redactor.text(request), _MAX_TEXT)}
    return replace(_entry_of(user, "request", now), queues=queues[:_MAX_NAMES], details=details)


def _entry_of(user: User, verb: str, now: datetime) -> AuditEntry:
    return AuditEntry(
        at=now,
        user=user.name[:_MAX_TEXT],
        role=user.role[:_MAX_TEXT],
        login=user.login[:_MAX_TEXT],
        address=user.address[:_MAX_TEXT],
        verb=verb,
    )


def end_entry(
    entry: AuditEntry,
    redactor: Redactor,
    *,
    result: Any = None,
    error: Exception | None = None,
    seconds: float,
) -> AuditEntry:
    """Return the entry of a call that has ended."""
    if error is not None:
        text = shorten_end(f"{type(error).__name__}: {redactor.text(str(error))}", _MAX_TEXT)
        return replace(entry, outcome=OUTCOME_FAILED, error=text, seconds=seconds)
    operation = getattr(result, "operation", "")
    return replace(
        entry,
        outcome=OUTCOME_DONE,
        queues=entry.queues or _find_queues(result),
        counts=_counts(result),
        seconds=seconds,
        operation=operation if isinstance(operation, str) else "",
    )


def with_change(entry: AuditEntry, change: _Change, redactor: Redactor) -> AuditEntry:
    """Return an entry with the change, whose values are redacted and shortened."""
    before, after = (
        shorten_end(redactor.data(text.encode("utf-8", "replace"), change.task_type).decode(), _MAX_TEXT)
        for text in (change.before, change.after)
    )
    return replace(entry, before=before, after=after)


def encode_entry(entry: AuditEntry) -> bytes:
    """Encode an entry as JSON, without empty fields."""
    values = {name: value for name, value in asdict(entry).items() if value or name == "seconds"}
    values["at"] = entry.at.timestamp()
    del values["seconds"]
    if entry.seconds is not None:
        values["seconds"] = round(entry.seconds, 6)
    values.pop("position", None)
    return json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")


def decode_entry(position: str, data: bytes, *, more: int = 0) -> AuditEntry | None:
    """Decode an entry from its JSON; return None for anything else."""
    try:
        values = json.loads(data)
        texts = {
            name: str(values.get(name, ""))
            for name in (
                *("user", "role", "login", "address", "verb", "reason", "error"),
                *("before", "after", "operation"),
            )
        }
        return AuditEntry(
            at=datetime.fromtimestamp(float(values["at"]), UTC),
            queues=tuple(map(str, values.get("queues", ()))),
            details={str(name): str(value) for name, value in values.get("details", {}).items()},
            outcome=str(values.get("outcome", OUTCOME_STARTED)),
            counts={str(name): int(value) for name, value in values.get("counts", {}).items()},
            seconds=None if values.get("seconds") is None else float(values["seconds"]),
            more=more,
            position=position,
            **texts,
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError, RecursionError):
        return None


def log_entry(entry: AuditEntry) -> None:
    """Write an entry to the log `pyasynq.audit`."""
    level = logging.INFO if entry.outcome in {OUTCOME_STARTED, OUTCOME_DONE} else logging.WARNING
    if not LOGGER.isEnabledFor(level):
        return
    who = ", ".join(filter(None, (entry.role, entry.login, entry.address)))
    parts = [f"{entry.user} ({who}) {entry.verb}", *entry.queues]
    parts += [f"{name}={value}" for name, value in entry.details.items()]
    text = f"{' '.join(parts)}: {entry.outcome}"
    if entry.error:
        text += f", {entry.error}"
    if entry.reason:
        text += f"; reason: {entry.reason}"
    LOGGER.log(level, "%s", visible(text), extra={"audit": asdict(entry)})


def _describe(value: Any, redactor: Redactor) -> str:
    match value:
        case bytes():
            return f"{len(value)} bytes"
        case Task():
            return f"{value.type} ({len(value.payload or b'')} bytes)"
        case bool() | int() | float() | timedelta() | date() | str():
            return shorten_end(redactor.text(str(value)), _MAX_TEXT)
        case Targets():
            names = f"{len(value)} tasks: {_describe_names(value.names, redactor)}"
            return redactor.text(value.query)[:_MAX_TEXT] or names
        case OperationOptions():
            return _describe_options(value, redactor)
    is_several = isinstance(value, list | tuple | set | frozenset)
    return _describe_names(list(value), redactor) if is_several else type(value).__name__


def _describe_options(options: OperationOptions, redactor: Redactor) -> str:
    """Return the options that differ from the defaults, as text; secret headers are redacted."""
    given = {one.name: getattr(options, one.name) for one in fields(options)}
    given["headers"] = redactor.headers(options.headers)
    return ", ".join(f"{name}={value}" for name, value in given.items() if value != getattr(_DEFAULT, name))


def _describe_names(values: Sequence[Any], redactor: Redactor) -> str:
    if values and isinstance(values[0], Task):
        return f"{len(values)} tasks"
    names = ", ".join(redactor.text(str(value))[:_MAX_NAMES] for value in values[:_MAX_NAMES])
    rest = len(values) - _MAX_NAMES
    return f"{names} and {rest} more" if rest > 0 else names


def _find_queues(result: Any) -> tuple[str, ...]:
    """Return the queues that the result of a call names, such as the queues of a started operation."""
    return result.concerns[:_MAX_NAMES] if isinstance(result, OperationInfo) else ()


def _counts(result: Any) -> dict[str, int]:
    match result:
        case bool() | None | TaskInfo():
            return {}
        case int():
            return {"count": result}
        case BulkResult():
            return asdict(result)
        case TaskResults():
            return {"done": result.done, "refused": len(result.refused), "trimmed": result.trimmed}
    counts = getattr(result, "counts", None)
    return dict(counts) if isinstance(counts, dict) else {}
