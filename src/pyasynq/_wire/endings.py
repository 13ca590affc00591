"""Bytes of completion callbacks: the hash field `x:finished`, and entries of a transactional outbox."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq.callbacks import Callback
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

KIND: Final = b"enqueue"
"""Kind of the entries that enqueue a callback; other programs may write other kinds."""
OUTCOMES: Final = ("succeeded", "archived", "cancelled", "deleted")
_FIELDS: Final = 7
_LONGEST_NUMBER: Final = 10


class TaskEnding(NamedTuple):
    """The end of a task, for its callback.

    Attributes:
        at: Unix time by Redis' clock.
        id: the task's id.
        type: the task's type.
        outcome: `succeeded`, `archived`, `cancelled` or `deleted`.
        error: the beginning of the last attempt's error; empty for none.
        callback: the callback to enqueue.
    """

    at: float
    id: str
    type: str
    outcome: str
    error: str
    callback: Callback

    @property
    def arguments(self) -> Mapping[str, str]:
        """The arguments of the callback."""
        return {"id": self.id, "type": self.type, "outcome": self.outcome, "error": self.error}


def encode_callback(callback: Callback, task_type: str, nonce: str) -> bytes:
    """Encode the value of the hash field `x:finished` of a task of this type.

    Args:
        callback: callback to enqueue at the task's end.
        task_type: type of the task.
        nonce: unique text, which distinguishes this task from earlier and later tasks with its id.
    """
    fields = {
        "type": callback.type,
        "queue": callback.queue,
        "retry": callback.max_retry,
        "timeout": callback.timeout,
        "retention": callback.retention,
        "of": task_type,
        "nonce": nonce,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def split_netstrings(data: bytes, most: int = _FIELDS) -> list[bytes]:
    """Return the values of a row of netstrings (`LENGTH:BYTES,`).

    Raises:
        ValueError: for anything else, and for more than `most` values.
    """
    values: list[bytes] = []
    at = 0
    while at < len(data):
        colon = data.find(b":", at, at + _LONGEST_NUMBER + 1)
        digits = data[at:colon]
        if colon < 0 or not digits.isdigit() or len(values) == most:
            raise ValueError("not a row of netstrings")
        end = colon + 1 + int(digits)
        if data[end : end + 1] != b",":
            raise ValueError("not a row of netstrings")
        values.append(data[colon + 1 : end])
        at = end + 1
    return values


def decode_ending(entry: bytes) -> TaskEnding:
    """Decode an outbox entry about the end of a task.

    Raises:
        ValueError: for an entry of another kind, and for one that pyasynq has not written.
    """
    kind, at, task_id, outcome, _token, report, finished = _seven(split_netstrings(entry))
    if kind != KIND or outcome.decode() not in OUTCOMES:
        raise ValueError("not the end of a task")
    callback, task_type = _decode_callback(finished)
    return TaskEnding(float(at), task_id.decode(), task_type, outcome.decode(), _error_in(report), callback)


def read_ended_at(entry: bytes) -> float:
    """Return the Unix time of an outbox entry of any kind.

    Raises:
        ValueError: for an entry without one.
    """
    values = split_netstrings(entry, most=1_000)
    at = float(values[1]) if len(values) > 1 else 0.0
    if not 0.0 < at < float(1 << 40):
        raise ValueError("not a time")
    return at


def decode_callback(finished: bytes) -> Callback:
    """Decode the callback in the hash field `x:finished`.

    Raises:
        ValueError: for a value that pyasynq has not written.
    """
    return _decode_callback(finished)[0]


def _seven(values: list[bytes]) -> list[bytes]:
    if len(values) != _FIELDS:
        raise ValueError("not the end of a task")
    return values


def _decode_callback(finished: bytes) -> tuple[Callback, str]:
    fields = _object(finished)
    try:
        callback = Callback(
            fields["type"],
            fields["queue"],
            max_retry=fields["retry"],
            timeout=fields["timeout"],
            retention=fields["retention"],
        )
        task_type = fields["of"]
    except (KeyError, TypeError, InvalidOptionError) as error:
        raise ValueError("not a callback") from error
    if not isinstance(task_type, str):
        raise ValueError("not a callback")  # noqa: TRY004 - every damage is one kind of error here
    return callback, task_type


def _error_in(report: bytes) -> str:
    error = _object(report).get("error", "") if report else ""
    return error if isinstance(error, str) else ""


def _object(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except RecursionError as error:
        raise ValueError("not an object") from error
    if not isinstance(fields, dict):
        raise ValueError("not an object")  # noqa: TRY004 - every damage is one kind of error here
    return fields
