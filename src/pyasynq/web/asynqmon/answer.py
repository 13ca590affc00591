"""Requests to the API of asynqmon and their answers: JSON, empty, or an error as plain text."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from pyasynq import errors
from pyasynq.task import TaskState

from .go_texts import encode_json, quote_for_go

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from starlette.requests import Request

    from pyasynq.operations import Operator
    from pyasynq.web.settings import Settings

    from .shapes import TextLimits

    Recent = Callable[[Hashable, Callable[[], Awaitable[Any]]], Awaitable[Any]]

_LARGEST_BODY: Final = 1_000_000
_DEFAULT_SIZE: Final = 20
_LARGEST_SIZE: Final = 10_000
_LONGEST_NUMBER: Final = 9


class ApiError(Exception):
    """Error that becomes an HTTP error response with a plain text.

    Attributes:
        status: status of the response.
        text: text of the response, without the newline.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to one route."""

    request: Request
    operator: Operator
    settings: Settings
    recent: Recent
    """Function that caches an answer for a few seconds; users with equal permissions share the answer."""
    names: dict[str, str] = field(default_factory=dict)
    """Path parameters by name: `queue`, `task`, `group`, `state`, `entry`."""

    @property
    def limits(self) -> TextLimits:
        """Maximum length, in characters, of payloads and of results in responses."""
        return self.settings.text_limits

    @property
    def queue(self) -> str:
        """Name of the queue in the path."""
        return self.names["queue"]

    @property
    def state(self) -> TaskState:
        """State that the path names."""
        return TaskState(self.names["state"])

    @property
    def group(self) -> str:
        """Group in the path; empty if it has none."""
        return self.names.get("group", "")

    def page(self) -> tuple[int, int]:
        """Return number and size of the requested page.

        A value that is not a number is ignored. A size below 1 selects the first page of the maximum size.
        """
        page, size = max(self._read_number("page", 1), 1), self._read_number("size", _DEFAULT_SIZE)
        return (page, min(size, _LARGEST_SIZE)) if size > 0 else (1, _LARGEST_SIZE)

    def _read_number(self, name: str, default: int) -> int:
        text = self.request.query_params.get(name, "")
        digits = text[1:] if text[:1] in {"+", "-"} else text
        return (
            int(text)
            if digits.isdecimal() and digits.isascii() and len(digits) <= _LONGEST_NUMBER
            else default
        )

    async def read_ids(self) -> list[str]:
        """Return the ids in the body, `{"task_ids": [...]}`.

        Raises:
            ApiError: for an invalid body, or one of more than 1,000,000 bytes.
        """
        body = bytearray()
        async for chunk in self.request.stream():
            body += chunk
            if len(body) > _LARGEST_BODY:
                raise ApiError(400, "http: request body too large")
        return _parse_ids(bytes(body))


def json_answer(value: Any) -> Response:
    """Return a response with JSON, whose media type is `text/plain` as in asynqmon."""
    return Response(encode_json(value), media_type="text/plain")


def error_answer(status: int, text: str) -> Response:
    """Return a plain-text response with an error message."""
    return Response(f"{text}\n", status, media_type="text/plain")


def answer_error(error: Exception) -> Response:
    """Return the response to an error: an `ApiError`'s own status, 403 for a missing permission, else 500."""
    if isinstance(error, ApiError):
        return error_answer(error.status, error.text)
    status = 403 if isinstance(error, errors.PermissionDeniedError) else 500
    return error_answer(status, _describe_error(error))


def _describe_error(error: Exception) -> str:
    """Return asynqmon's message for an error, or our own message if asynqmon has none."""
    match error:
        case errors.QueuePausedError():
            text = f"queue {quote_for_go(error.queue)} is already paused"
        case errors.QueueNotPausedError():
            text = f"queue {quote_for_go(error.queue)} is not paused"
        case errors.QueueNotFoundError():
            text = f"NOT_FOUND: queue {quote_for_go(error.queue)} does not exist"
        case errors.TaskNotFoundError():
            text = "asynq: task not found"
        case errors.TaskStateError():
            text = f"asynq: FAILED_PRECONDITION: {_describe_state(error)}"
        case _:
            text = str(error)
    return text


def _describe_state(error: errors.TaskStateError) -> str:
    match error.action, error.state:
        case "run", TaskState.ACTIVE:
            return "task is already running"
        case "run", TaskState.PENDING:
            return "task is already in pending state"
        case "archive", TaskState.ARCHIVED:
            return f"task is already archived: id={error.task_id}, queue={error.queue}"
        case _, TaskState.ACTIVE:
            return f"cannot {error.action} task in active state. use CancelProcessing instead."
    return str(error)


def _parse_ids(body: bytes) -> list[str]:
    text = body.decode("utf-8", "replace").lstrip(" \t\r\n")
    if not text:
        raise ApiError(400, "EOF")
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        raise ApiError(400, "the body is not JSON") from None
    if value is None:
        return []
    if not isinstance(value, dict):
        raise ApiError(400, 'the body must be an object: {"task_ids": ["..."]}')
    ids: list[str] = []
    for name, given in value.items():
        if name.lower() != "task_ids":
            raise ApiError(400, f"json: unknown field {quote_for_go(name)}")
        if not isinstance(given, list | None) or not all(isinstance(one, str) for one in given or ()):
            raise ApiError(400, "task_ids must be a list of texts")
        ids = list(given or ())
    return ids
