"""Problems of the task service (RFC 9457): the status and the advice for each error."""

from __future__ import annotations

from typing import Final

from pyasynq import errors
from pyasynq.web.api.call import changed_meanwhile
from pyasynq.web.api.problem import ProblemError, to_problem

_RETRY_SECONDS: Final = "2"


def to_service_problem(error: Exception) -> ProblemError:
    """Return the problem for an error of a request."""
    match error:
        case errors.ReplyLostError():
            detail = "Redis has not confirmed it; it may have been done."
            remedy = "Send it again with the same Idempotency-Key or task_id: then it is done once."
            headers = {"Retry-After": _RETRY_SECONDS}
            return ProblemError(503, "unknown_outcome", detail, remedy, headers=headers)
        case errors.ServerStateError():
            headers = {"Retry-After": "1"}
            return ProblemError(503, "shutting_down", "This instance is closing.", headers=headers)
        case errors.ConfigurationChangedError(version=0):
            return ProblemError(404, "task_type_not_found", "The task type has no configuration.")
        case errors.ConfigurationChangedError():
            return changed_meanwhile()
    return to_problem(error)
