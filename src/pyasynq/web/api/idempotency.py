"""Idempotency keys: one task for each key of a user within a day, in the enqueue's own script."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from pyasynq.task import EnqueueStatus

from .problem import ProblemError, wrong_value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

    from pyasynq.task import Task, TaskInfo

KEY_HEADER: Final = "Idempotency-Key"
_FINGERPRINT: Final = "idempotency-fingerprint"
_KEY_SECONDS: Final = 86_400
_LONGEST_KEY: Final = 255


def read_key(request: Request) -> str:
    """Return the idempotency key of a request; empty for none. Raises `ProblemError` if it is invalid."""
    key = request.headers.get(KEY_HEADER, "")
    if len(key) > _LONGEST_KEY or not key.isprintable() or not key.isascii():
        raise wrong_value(KEY_HEADER, f"Write at most {_LONGEST_KEY} printable characters of ASCII.")
    return key


def options_of_key(key: str, user: str, content: bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that enqueue a key's task only once: its id, and a fingerprint of the request.

    Args:
        key: key of the request.
        user: name of the user; each user has separate keys.
        content: canonical encoding of the request's content.
        options: options of the task, without the key.
    """
    whose = f"{user}\n{key}".encode("utf-8", "surrogateescape")
    return {
        "task_id": options.get("task_id", f"once-{hashlib.sha256(whose).hexdigest()[:32]}"),
        "once_for": _KEY_SECONDS,
        "headers": {
            **options.get("headers", {}),
            _FINGERPRINT: hashlib.sha256(content).hexdigest()[:32],
        },
    }


def check_fingerprint(task: Task, info: TaskInfo) -> None:
    """Compare a new task with the task that the same key enqueued before.

    Raises:
        ProblemError: the earlier request was a different one.
    """
    wanted, found = task.headers.get(_FINGERPRINT), info.headers.get(_FINGERPRINT)
    if info.enqueue_status is EnqueueStatus.EXISTING and wanted and found and wanted != found:
        raise key_was_reused("task")


def key_was_reused(subject: str) -> ProblemError:
    """Return the problem of an idempotency key that was used for another task or operation."""
    detail, remedy = f"The key was used for another {subject}.", f"Use a key of its own for each {subject}."
    return ProblemError(422, "idempotency_key_reused", detail, remedy, field=KEY_HEADER)
