"""Idempotency keys: a user's request enqueues one task, even if it is sent again within a day."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from pyasynq.errors import InvalidOptionError
from pyasynq.task import EnqueueStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.task import TaskInfo

KEY_SECONDS: Final = 86_400
"""Seconds for which a key is remembered."""
FINGERPRINT_HEADER: Final = "idempotency-fingerprint"
"""Header of a task with the fingerprint (hash) of the request that enqueued it."""


def name_by_key(user: str, key: str) -> str:
    """Return the id of the task or other object that a user makes with a key; each user has separate keys."""
    whose = f"{user}\n{key}".encode("utf-8", "surrogateescape")
    return f"once-{hashlib.sha256(whose).hexdigest()[:32]}"


def options_of_key(key: str, user: str, content: bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for a task that a key enqueues only once: its id, and a fingerprint of the request.

    Args:
        key: key of the request.
        user: name of the user.
        content: canonical encoding of the request's content.
        options: options of the task, without the key.
    """
    return {
        "task_id": options.get("task_id", name_by_key(user, key)),
        "once_for": KEY_SECONDS,
        "headers": {
            **options.get("headers", {}),
            FINGERPRINT_HEADER: hashlib.sha256(content).hexdigest()[:32],
        },
    }


def has_other_content(headers: Mapping[str, str], info: TaskInfo) -> bool:
    """Return whether a key's task is from another request than `headers`, as their fingerprints differ."""
    wanted, found = headers.get(FINGERPRINT_HEADER), info.headers.get(FINGERPRINT_HEADER)
    return bool(info.enqueue_status is EnqueueStatus.EXISTING and wanted and found and wanted != found)


def check_key(key: str, headers: Mapping[str, str], info: TaskInfo) -> None:
    """Check that a key was not used for another request. Raises `InvalidOptionError` if it was."""
    if key and has_other_content(headers, info):
        raise InvalidOptionError("key", key, "was used for another request; use a key of its own for each")
