"""What a worker and its child processes say to each other: a JSON object and bytes, each with its length."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LENGTHS: Final = struct.Struct("!II")
"""Bytes of the head and of the body."""

# What the worker says.
START: Final = "start"
"""The first frame: how the child is to be set up."""
PREPARE: Final = "prepare"
"""Find a handler, and enter the lifespan that it needs."""
RUN: Final = "run"
"""Run this task with a handler that was prepared; the body is its payload."""
CANCEL: Final = "cancel"
"""Break off what runs."""
WRITTEN: Final = "written"
"""The answer to a result that was to be written."""
LEAVE: Final = "leave"
"""Leave the lifespans, and end."""

# What the child says.
LOG: Final = "log"
PROGRESS: Final = "progress"
WRITE_RESULT: Final = "write_result"
READY: Final = "ready"
"""The handler is prepared. This and the next two answer an order: they carry its number, and the pid."""
RETURNED: Final = "returned"
RAISED: Final = "raised"


class Frame(NamedTuple):
    """One message. `kind` is one of the words above, the body is empty where nothing else is said."""

    kind: str
    fields: dict[str, Any]
    body: bytes = b""


def pack_frame(kind: str, fields: Mapping[str, Any] | None = None, body: bytes = b"") -> bytes:
    """Return the bytes of a frame.

    Raises:
        TypeError, ValueError: for fields that JSON cannot carry.
    """
    # Pure ASCII, so that halves of surrogate pairs, which errors and log lines may hold, come through.
    head = json.dumps([kind, fields or {}]).encode("ascii")
    return b"".join((_LENGTHS.pack(len(head), len(body)), head, body))


class Unpacker:
    """Puts frames together from the pieces in which a stream brings them."""

    def __init__(self) -> None:
        self._unread = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take a piece, and yield the frames that are complete by it.

        Raises:
            ValueError: for bytes that are no frame.
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
            yield Frame(kind, fields, body)
