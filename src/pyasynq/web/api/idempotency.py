"""The header `Idempotency-Key`, and the problem of a key that was used for another request."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyasynq.errors import InvalidOptionError
from pyasynq.operations.request_keys import has_other_content

from .problem import ProblemError, wrong_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from pyasynq.task import Task, TaskInfo

KEY_HEADER: Final = "Idempotency-Key"
_LONGEST_KEY: Final = 255


def read_key(request: Request) -> str:
    """Return the idempotency key of a request; empty for none. Raises `ProblemError` if it is invalid."""
    key = request.headers.get(KEY_HEADER, "")
    if len(key) > _LONGEST_KEY or not key.isprintable() or not key.isascii():
        raise wrong_value(KEY_HEADER, f"Write at most {_LONGEST_KEY} printable characters of ASCII.")
    return key


def check_fingerprint(task: Task, info: TaskInfo) -> None:
    """Check by the fingerprint that an idempotency key was not used for another request.

    Raises:
        ProblemError: an earlier, different request has enqueued a task with this key.
    """
    if has_other_content(task.headers, info):
        raise _key_was_reused("task")


@contextmanager
def refusing_reused_key(subject: str) -> Iterator[None]:
    """Turn the operator's error about a reused idempotency key into a `ProblemError`, in a `with` block."""
    try:
        yield
    except InvalidOptionError as error:
        if error.option == "key":
            raise _key_was_reused(subject) from None
        raise


def _key_was_reused(subject: str) -> ProblemError:
    """Return the problem of an idempotency key that was used for another task or operation."""
    detail, remedy = f"The key was used for another {subject}.", f"Use a key of its own for each {subject}."
    return ProblemError(422, "idempotency_key_reused", detail, remedy, field=KEY_HEADER)
