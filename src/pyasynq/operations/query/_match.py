"""Matching of a task against a query."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from pyasynq._clock import Instant
from pyasynq._error_signature import error_signature, is_poison_error, signature_id
from pyasynq._wire.keys import queue_keys
from pyasynq.task import TaskState

from ._fields import Kind
from ._tree import All, Clause, Not, QueryNode
from ._values import (
    Anything,
    Contains,
    Exact,
    Glob,
    NumberRange,
    Signature,
    TimePeriod,
    ValueTest,
    name_matches,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from pyasynq.task import TaskInfo

    from ._facts import MatchFacts, RunningFacts

MAX_JSON_BYTES: Final = 256_000
"""Maximum size in bytes of a payload that is decoded as JSON, since decoding blocks the event loop."""

MAX_TEXT: Final = 1_000_000
"""Maximum bytes or characters of a value that are searched for a text, since that blocks the event loop."""

_MISSING: Final = object()


class Candidate:
    """A task that a query is matched against; caches values that several clauses need."""

    def __init__(self, task: TaskInfo, facts: MatchFacts) -> None:
        self.task = task
        self.now = facts.now.to_microseconds()
        self._facts = facts
        self._json: Any = _MISSING

    @property
    def running(self) -> RunningFacts | None:
        """Record of the running task by its server; None if it is not running."""
        return self._facts.running.get((self.task.queue, self.task.id))

    @property
    def json(self) -> Any:
        """The decoded payload. If it is not JSON or too large, `_NOT_JSON`, which no path matches."""
        if self._json is _MISSING:
            self._json = decode_json(self.task.payload)
        return self._json


class _NotJson:
    """Type of the sentinel for payloads that are not decoded."""


_NOT_JSON: Final = _NotJson()


def decode_json(payload: bytes) -> Any:
    """Return the value of a JSON payload, with exact numbers; `_NOT_JSON` if it is not JSON or too large."""
    if len(payload) > MAX_JSON_BYTES:
        return _NOT_JSON
    try:
        text = payload.decode()
        try:
            return _EXACT.decode(text)
        except json.JSONDecodeError:
            return _NOT_JSON
        except ValueError:
            # Python's `int` refuses more than 4,300 digits; `Decimal` does not.
            return _ENDLESS.decode(text)
    except (ValueError, ArithmeticError, RecursionError):
        return _NOT_JSON


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


# Made once, because making a decoder takes as long as decoding a small payload.
_EXACT: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant)
_ENDLESS: Final = json.JSONDecoder(parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse_constant)


def matches(node: QueryNode, candidate: Candidate) -> bool:
    """Return whether a task matches a query's tree."""
    if isinstance(node, Clause):
        return _clause_matches(node, candidate)
    if isinstance(node, Not):
        return not matches(node.part, candidate)
    if isinstance(node, All):
        return all(matches(part, candidate) for part in node.parts)
    return any(matches(part, candidate) for part in node.parts)


def _clause_matches(clause: Clause, candidate: Candidate) -> bool:
    field, task = clause.field, candidate.task
    if task.state not in field.states:
        return False
    if field.kind is Kind.FLAG:
        return _FLAGS[field.name](candidate)
    if field.kind is Kind.PATH:
        values = list(_path_values(clause, candidate))
        return any(_test_json(test, value) for test in clause.tests for value in values)
    value = _VALUES[field.name](candidate)
    return value is not None and any(_test_value(test, value, candidate) for test in clause.tests)


def _test_value(test: ValueTest, value: Any, candidate: Candidate) -> bool:
    if isinstance(test, Anything):
        return value not in {"", b""} if isinstance(value, (str, bytes)) else True
    if isinstance(test, Contains):
        return _contains(test, value)
    if isinstance(test, TimePeriod):
        return test.holds(value, candidate.now)
    if isinstance(test, NumberRange):
        return test.holds(value)
    if isinstance(test, Signature):
        return bool(value) and signature_id(error_signature(value)).startswith(test.prefix)
    return name_matches(test, value)


def _contains(test: Contains, value: str | bytes | Sequence[str | bytes]) -> bool:
    if isinstance(value, str):
        return value.find(test.text, 0, MAX_TEXT) >= 0
    if isinstance(value, bytes):
        return value.find(test.data, 0, MAX_TEXT) >= 0
    return any(_contains(test, one) for one in value)


def _path_values(clause: Clause, candidate: Candidate) -> Iterator[Any]:
    if clause.field.name == "header.":
        value = candidate.task.headers.get(".".join(part or "*" for part in clause.path))
        if value is not None:
            yield value if not _asks_numbers(clause) else _number(value)
        return
    values = [candidate.json]
    for part in clause.path:
        values = [found for value in values for found in _parts(value, part)]
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value


def _asks_numbers(clause: Clause) -> bool:
    return all(isinstance(test, NumberRange) for test in clause.tests)


def _parts(value: Any, part: str | None) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values()) if part is None else [value[part]] if part in value else []
    if not isinstance(value, list):
        return []
    if part is None:
        return value
    is_index = part.isascii() and part.isdigit() and len(part) < 7
    return value[int(part) : int(part) + 1] if is_index else []


def _number(text: str) -> Any:
    try:
        return Decimal(text)
    except ArithmeticError:
        return text


def _test_json(test: ValueTest, value: Any) -> bool:
    if isinstance(test, Anything):
        return value is not None and value != "" and value is not _NOT_JSON
    if isinstance(value, str):
        return (isinstance(test, Exact) and test.text == value) or (
            isinstance(test, Glob) and test.matches(value)
        )
    is_literal = isinstance(test, Exact) and not test.is_quoted
    if value is None or isinstance(value, bool):
        return is_literal and isinstance(test, Exact) and test.text == _LITERALS[value]
    if not isinstance(value, (int, Decimal)):
        return False
    if isinstance(test, NumberRange):
        return not _is_nan(value) and test.holds(value)
    return is_literal and isinstance(test, Exact) and test.number is not None and test.number == value


def _is_nan(value: int | Decimal) -> bool:
    return isinstance(value, Decimal) and value.is_nan()


_LITERALS: Final = {None: "null", True: "true", False: "false"}


def _microseconds(moment: datetime | None) -> int | None:
    return None if moment is None else Instant.from_datetime(moment).to_microseconds()


def _started(candidate: Candidate) -> int | None:
    running = candidate.running
    return None if running is None or running.started is None else running.started.to_microseconds()


def _deadline(candidate: Candidate) -> int | None:
    running = candidate.running
    return None if running is None or running.deadline is None else running.deadline.to_microseconds()


def _share(candidate: Candidate) -> Decimal | None:
    started, deadline = _started(candidate), _deadline(candidate)
    if started is None or deadline is None or deadline <= started:
        return None
    return Decimal(100 * (candidate.now - started)) / (deadline - started)


def _server(candidate: Candidate) -> str:
    running = candidate.running
    return candidate.task.server_id or (running.server_id if running else "")


def _lock_name(task: TaskInfo) -> str:
    keys = queue_keys(task.queue)
    return task.unique_key.removeprefix(keys.own_unique_prefix).removeprefix(f"{keys.prefix}unique:")


def _is_overdue(candidate: Candidate) -> bool:
    is_active = candidate.task.state is TaskState.ACTIVE
    end = _deadline(candidate) if is_active else _microseconds(candidate.task.next_process_at)
    return end is not None and end < candidate.now


_VALUES: Final[dict[str, Callable[[Candidate], Any]]] = {
    "": lambda one: (one.task.id, one.task.type, one.task.payload, one.task.last_error),
    "public": lambda one: (one.task.id, one.task.type),
    "state": lambda one: one.task.state.value,
    "queue": lambda one: one.task.queue,
    "id": lambda one: one.task.id,
    "type": lambda one: one.task.type,
    "error": lambda one: one.task.last_error,
    "payload": lambda one: one.task.payload,
    "result": lambda one: one.task.result or b"",
    "retried": lambda one: one.task.retried,
    "max_retry": lambda one: one.task.max_retry,
    "crashes": lambda one: one.task.crashes,
    "size": lambda one: len(one.task.payload),
    "due": lambda one: _microseconds(one.task.next_process_at),
    "failed": lambda one: _microseconds(one.task.last_failed_at),
    "archived": lambda one: _microseconds(one.task.in_state_since),
    "completed": lambda one: _microseconds(one.task.completed_at),
    "expires": lambda one: _microseconds(one.task.expires_at),
    "waiting": lambda one: _microseconds(one.task.in_state_since),
    "running": _started,
    "deadline": _share,
    "server": _server,
    "group": lambda one: one.task.group,
    "unique": lambda one: _lock_name(one.task),
}
_FLAGS: Final[dict[str, Callable[[Candidate], bool]]] = {
    "orphaned": lambda one: one.task.is_orphaned,
    "poison": lambda one: is_poison_error(one.task.last_error),
    "overdue": _is_overdue,
}
