"""Tasks read from the lines that an export wrote, and the outcome of their import. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from pyasynq._checks import check_new_name
from pyasynq.errors import InvalidOptionError, nearest
from pyasynq.options import EnqueueOptions, resolve_options
from pyasynq.task import EnqueueStatus, Task

from .redaction import check_headers_not_redacted, check_not_redacted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq.errors import PyasynqError
    from pyasynq.task import EnqueueResult

_THERE: Final = frozenset({EnqueueStatus.EXISTING, EnqueueStatus.IGNORED, EnqueueStatus.CONFLICT})
_TEXT_OPTIONS: Final = {"id": "task_id", "group": "group"}
_NUMBER_OPTIONS: Final = ("max_retry", "timeout", "retention")
_TIME_OPTIONS: Final = {"deadline": "deadline", "next_process_at": "process_at"}
_KNOWN: Final = frozenset(
    (
        *("id", "queue", "type", "payload", "payload_base64", "headers", "group"),
        *("max_retry", "timeout", "retention", "deadline", "next_process_at"),
        # Fields about the past of the exported task, which the imported task does not take over.
        *("state", "result", "result_base64", "retried", "crashes", "in_state_since", "completed_at"),
        *("expires_at", "last_failed_at", "last_error", "traceback", "unique_key"),
    )
)


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Outcome of an import."""

    enqueued: int = 0
    existing: int = 0
    """Number of tasks that existed already, or that an earlier import enqueued."""
    errors: Mapping[int, PyasynqError] = field(default_factory=dict)
    """Reasons why tasks were refused, by the position of the task in the call, from 0."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of enqueued, existing and refused tasks, for the audit."""
        return {"enqueued": self.enqueued, "existing": self.existing, "refused": len(self.errors)}


def count_results(results: Sequence[EnqueueResult]) -> ImportReport:
    """Count the results of an import; return its report.

    Raises:
        PyasynqError: the reply about a task was lost, so that Redis may or may not have it.
    """
    for result in results:
        if result.status is EnqueueStatus.UNKNOWN and result.error is not None:
            raise result.error
    errors = {
        at: result.error
        for at, result in enumerate(results)
        if result.error is not None and result.status not in {*_THERE, EnqueueStatus.ENQUEUED}
    }
    existing = sum(result.status in _THERE for result in results)
    return ImportReport(len(results) - existing - len(errors), existing, errors)


def parse_task_line(line: str) -> tuple[str, Task]:
    """Return the queue and the task of a line that `export_line` wrote.

    The task has the id, payload, headers, group, limits and time of the exported one. It has not failed yet,
    and holds no lock.

    Raises:
        InvalidOptionError: a field is missing or invalid. The message names the field, and shows none of its
            content.
    """
    facts = _parse_object(line)
    for name in facts:
        if name not in _KNOWN:
            raise InvalidOptionError(name, object, f"is not a field of a task{nearest(name, _KNOWN)}")
    queue = check_new_name("queue", _get_text(facts, "queue"))
    options = _parse_options(facts)
    payload = _parse_payload(facts)
    check_not_redacted("payload", payload)
    check_headers_not_redacted(options.get("headers"))
    resolve_options(options)
    return queue, Task(_get_text(facts, "type"), payload, **cast("EnqueueOptions", options))


def _parse_object(line: str) -> dict[str, Any]:
    try:
        facts = json.loads(line)
    except (ValueError, RecursionError) as error:
        place = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
        raise InvalidOptionError("line", str, f"is not JSON{place}") from None
    if not isinstance(facts, dict):
        raise InvalidOptionError("line", type(facts), "must be an object, as an export writes it")
    return facts


def _get_text(facts: Mapping[str, Any], name: str) -> str:
    value = facts.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidOptionError(name, type(value), "must be a text that is not empty")
    return value


def _parse_options(facts: Mapping[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"task_id": _get_text(facts, "id")}
    options |= {option: _get_text(facts, name) for name, option in _TEXT_OPTIONS.items() if facts.get(name)}
    for name in _NUMBER_OPTIONS:
        value = facts.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidOptionError(name, type(value), "must be a number")
        options[name] = value
    options |= {option: _parse_time(facts, name) for name, option in _TIME_OPTIONS.items() if facts.get(name)}
    headers = facts.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(one, str) for one in headers.values()):
        raise InvalidOptionError("headers", type(headers), "must be an object of texts")
    return {**options, "headers": headers} if headers else options


def _parse_time(facts: Mapping[str, Any], name: str) -> datetime:
    try:
        at = datetime.fromisoformat(_get_text(facts, name))
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise InvalidOptionError(name, str, "must be a time with a zone, as in 2026-11-25T14:05:00+00:00")
    return at


def _parse_payload(facts: Mapping[str, Any]) -> bytes:
    if ("payload" in facts) == ("payload_base64" in facts):
        raise InvalidOptionError("payload", type(None), "give either payload or payload_base64")
    name = "payload" if "payload" in facts else "payload_base64"
    value = facts[name]
    if not isinstance(value, str):
        raise InvalidOptionError(name, type(value), "must be a text")
    try:
        return value.encode() if name == "payload" else base64.b64decode(value, validate=True)
    except (UnicodeEncodeError, binascii.Error):
        raise InvalidOptionError(name, str, "is not UTF-8, or not Base64") from None
