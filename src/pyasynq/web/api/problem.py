"""Problem details (RFC 9457): every error of the API as JSON, with a code, the wrong field and the remedy."""

from __future__ import annotations

import json
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from pyasynq import errors
from pyasynq._visible_text import visible, visible_lines
from pyasynq.errors import error_code

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger("pyasynq.web")

MEDIA_TYPE: Final = "application/problem+json"
_TYPE: Final = "urn:pyasynq:problem:"
_RETRY_SECONDS: Final = "5"
_AGAIN: Final = "Try again in a few seconds."


class ProblemError(Exception):
    """Error that becomes an HTTP error response with problem details.

    Args:
        status: status of the response.
        code: name of the kind of error, which does not change: `task_not_found`.
        detail: what is wrong, as a sentence.
        remedy: what to do about it, as a sentence.
        field: the parameter, header or field of the body that is wrong; empty for none.
        headers: headers of the response.
        facts: additional JSON members of the problem details.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        remedy: str = "",
        *,
        field: str = "",
        headers: Mapping[str, str] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.remedy = remedy
        self.field = field
        self.headers = dict(headers or {})
        self.facts = facts

    def content(self) -> dict[str, Any]:
        """Return the JSON members of the problem details; empty members are left out."""
        members = {
            "type": _TYPE + self.code,
            "title": self.code.replace("_", " ").capitalize(),
            "status": self.status,
            "code": self.code,
            "detail": str(self),
            "remedy": self.remedy,
            "field": self.field,
            **self.facts,
        }
        return {name: value for name, value in members.items() if value not in ("", None)}

    def response(self) -> Response:
        """Return the problem as an HTTP response."""
        content = json.dumps(self.content(), ensure_ascii=True) + "\n"
        return Response(content, self.status, headers=self.headers, media_type=MEDIA_TYPE)


def wrong_value(field: str, remedy: str) -> ProblemError:
    """Return the 422 problem of an invalid parameter or field."""
    return ProblemError(422, "invalid_value", f"{field} is wrong.", remedy, field=field)


_STATUS: Final[tuple[tuple[type[Exception], int], ...]] = (
    (errors.PermissionDeniedError, 403),
    (errors.PayloadTooLargeError, 413),
    (errors.QueryError, 422),
    (errors.ConfigurationError, 422),
    (errors.QueueNotFoundError, 404),
    (errors.TaskNotFoundError, 404),
    (errors.OperationNotFoundError, 404),
    (errors.ApiKeyNotFoundError, 404),
    (errors.ReportNotFoundError, 404),
    (errors.ServerNotFoundError, 404),
    (errors.ScheduleNotFoundError, 404),
    (errors.RedisError, 503),
    (errors.ClientClosedError, 503),
)
"""HTTP status by error class; the first match counts. Any other error of pyasynq is a conflict, 409."""

_REMEDIES: Final[Mapping[str, str]] = {
    "task_not_found": "It has ended without retention, or was deleted; search by its id.",
    "queue_not_found": "A queue appears with its first task; GET /queues lists those that you see.",
    "operation_not_found": "Operations are kept for 30 days; GET /operations lists the newest.",
    "api_key_not_found": "pyasynq key list shows the ids of all keys.",
    "report_not_found": "GET /commands and GET /deliveries list what the task service reports.",
    "command_state": "GET /commands lists the running ones first.",
    "server_not_found": "GET /servers lists the live servers.",
    "schedule_not_found": "GET /schedules lists the entries of running schedulers.",
    "queue_not_empty": "Pass force=true to delete the tasks as well.",
    "archive_full": "Pass trim=true to let older archived tasks make room.",
    "task_id_conflict": "Choose another task_id, or leave it out.",
    "duplicate_task": "Wait until the other task has ended, or delete it.",
    "redis_permission": "docs/redis.md lists the rights that the Redis user needs.",
    "redis_out_of_memory": "Free memory, or raise maxmemory.",
    "reply_lost": "It may have been done: look before you send it again, or use an Idempotency-Key.",
}


def to_problem(error: Exception) -> ProblemError:
    """Return the problem for an error. Log an unexpected error under a number that the problem shows."""
    if isinstance(error, ProblemError):
        return error
    if not isinstance(error, errors.PyasynqError):
        number = f"{secrets.token_hex(2)}-{secrets.token_hex(2)}"
        _log.error("error %s in the API", number, exc_info=error)
        remedy = "It is a bug. The log has more under this number."
        return ProblemError(500, "internal_error", "The answer could not be made.", remedy, number=number)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 409)
    code = error_code(error)
    headers = {"Retry-After": _RETRY_SECONDS} if status == 503 else {}
    remedy = _REMEDIES.get(code, _AGAIN if status == 503 else "")
    return _with_facts(error, ProblemError(status, code, _sentence(error), remedy, headers=headers))


def _with_facts(error: errors.PyasynqError, problem: ProblemError) -> ProblemError:
    match error:
        case errors.PermissionDeniedError(permission=""):
            remedy = "Ask a dashboard that is not read-only."
            return ProblemError(403, "read_only", _sentence(error), remedy)
        case errors.PermissionDeniedError():
            problem.remedy = "Ask someone who has this permission, or for a token that has it."
            problem.facts = {"permission": error.permission, "roles": list(error.roles) or None}
        case errors.InvalidOptionError(option="operation_id"):
            return ProblemError(409, "operation_state", "Its state does not allow it.", _end(error.remedy))
        case errors.InvalidOptionError():
            return wrong_value(error.option, _end(visible(error.remedy)))
        case errors.UnknownOptionError():
            problem.field = error.option
        case errors.QueryError():
            problem.field, problem.remedy = "q", _end(error.sentence)
            problem.facts = {"position": error.position, "length": error.length}
        case errors.TaskStateError() | errors.CommandStateError():
            problem.facts = {"state": visible(error.state)}
    return problem


def _sentence(error: Exception) -> str:
    return _end(visible_lines(str(error)).strip())


def _end(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."
