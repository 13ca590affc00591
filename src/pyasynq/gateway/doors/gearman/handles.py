"""Job handles: the name of a task for clients, and of an attempt for workers.

libgearman keeps 63 bytes of a handle. A client's handle contains a hash of the queue's name, and the task's
id. The service gives its jobs short ids. So each instance can decode a handle, and need not store it.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_PREFIX: Final = b"H:"
_HASH_CHARACTERS: Final = 12
_ID_BYTES: Final = 16
_LONGEST_ID: Final = 48
"""Maximum bytes of a task id that fits into a handle."""


def new_job_id() -> str:
    """Return an id of 22 characters that cannot be guessed."""
    return secrets.token_urlsafe(_ID_BYTES)


def new_attempt_handle() -> bytes:
    """Return the handle of an attempt, which is valid on its connection only."""
    return _PREFIX + b"a:" + secrets.token_urlsafe(_ID_BYTES).encode()


def task_handle(queue: str, task_id: str) -> bytes | None:
    """Return the handle of a task; None for a task of another program whose id is too long."""
    data = task_id.encode("utf-8", "surrogateescape")
    if len(data) > _LONGEST_ID or b"\x00" in data:
        return None
    return _PREFIX + _hash(queue) + b":" + data


def find_task(handle: bytes, queues: Iterable[str]) -> tuple[str, str] | None:
    """Return queue and id of the task that a handle names; None if its queue is unknown.

    Args:
        handle: text that a client received for its job.
        queues: names of all queues.
    """
    head, colon, data = handle.removeprefix(_PREFIX).partition(b":")
    if not handle.startswith(_PREFIX) or not colon:
        return None
    for queue in queues:
        if _hash(queue) == head:
            return queue, data.decode("utf-8", "surrogateescape")
    return None


def _hash(queue: str) -> bytes:
    digest = hashlib.sha256(queue.encode("utf-8", "surrogateescape")).digest()
    return base64.urlsafe_b64encode(digest)[:_HASH_CHARACTERS]
