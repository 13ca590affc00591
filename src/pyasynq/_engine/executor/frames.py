"""Messages between a worker and its child processes: a JSON object and bytes, each with its length."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LENGTHS: Final = struct.Struct("!II")
"""Beginning of a frame: the lengths of its head (JSON) and of its body, in bytes."""

# Messages of the worker.
START: Final = "start"
"""The first frame: settings of the child."""
PREPARE: Final = "prepare"
"""Order to find a handler, and to enter its lifespan."""
RUN: Final = "run"
"""Order to run a task with the prepared handler; the body is the payload."""
CANCEL: Final = "cancel"
"""Order to cancel the running handler, with the reason."""
LOCATE: Final = "locate"
"""Request for the current line of the handler that is about to be killed."""
WRITTEN: Final = "written"
"""Answer to `WRITE_RESULT`: whether the result was stored."""
LEAVE: Final = "leave"
"""Order to leave the lifespans, and to end."""

# Messages of the child.
LOG: Final = "log"
PROGRESS: Final = "progress"
WRITE_RESULT: Final = "write_result"
LOCATED: Final = "located"
"""Answer to `LOCATE`: the line and the stack of the handler."""
READY: Final = "ready"
"""The handler is prepared. `READY`, `RETURNED` and `RAISED` answer an order, with its number and the pid."""
RETURNED: Final = "returned"
RAISED: Final = "raised"


class MessageFrame(NamedTuple):
    """One message. `kind` is one of the constants above; the body may be empty."""

    kind: str
    fields: dict[str, Any]
    body: bytes = b""


def pack_frame(kind: str, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> bytes:
    """Return the bytes of a frame.

    Raises:
        TypeError, ValueError: for fields that JSON does not support.
    """
    # Pure ASCII, because errors and log lines may contain lone surrogates.
    head = json.dumps([kind, fields or {}]).encode("ascii")
    return b"".join((_LENGTHS.pack(len(head), len(body)), head, body))


class Unpacker:
    """Parser of a stream of frames."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def feed(self, data: bytes) -> Iterator[MessageFrame]:
        """Add received bytes, and yield the frames that they complete.

        Raises:
            ValueError: for bytes that are not a frame.
        """
        self._unread += data
        while len(self._unread) >= _LENGTHS.size:
            head_size, body_size = _LENGTHS.unpack_from(self._unread)
            body_at = _LENGTHS.size + head_size
            end = body_at + body_size
            if len(self._unread) < end:
                return
            kind, fields = json.loads(self._unread[_LENGTHS.size : body_at])
            body = bytes(self._unread[body_at:end])
            del self._unread[:end]
            yield MessageFrame(kind, fields, body)
