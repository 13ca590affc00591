"""Problems of lease requests: status and advice for each error of a consumer."""

from __future__ import annotations

from typing import Final

from pyasynq import errors
from pyasynq.gateway.leases.tokens import InvalidTokenError
from pyasynq.web.api.problem import ProblemError, to_problem, wrong_value

_ACT_OF_VERDICT: Final = {
    "done": "complete",
    "retry": "fail",
    "archive": "fail",
    "cancel": "cancel",
    "snooze": "snooze",
    "requeue": "release",
}
_STOP: Final = "Stop working on it."


class OutcomeUnknownError(Exception):
    """Error: Redis has not confirmed an act in time; the instance keeps trying."""


def to_lease_problem(error: Exception) -> ProblemError:  # noqa: PLR0911 - one for each kind of error
    """Return the problem for an error of a lease request or of an act."""
    match error:
        case InvalidTokenError():
            detail = "This token belongs to no attempt of this key."
            remedy = "Use the token as it was given, and the key that leased the task."
            return ProblemError(404, "attempt_not_found", detail, remedy, field="token")
        case errors.TaskTimeoutError():
            detail = "The task's time is over; it was settled as timed out."
            return ProblemError(410, "attempt_over", detail, _STOP, reason="timed-out")
        case errors.TaskCanceledError():
            detail = "The task was cancelled; it was settled as the request to cancel says."
            return ProblemError(410, "attempt_over", detail, _STOP, reason="cancelled", outcome=error.outcome)
        case errors.AttemptSettledError():
            detail = "The attempt was settled before, in another way."
            settled_as = _ACT_OF_VERDICT.get(error.verdict, error.verdict)
            return ProblemError(
                409, "attempt_settled", detail, "Its outcome cannot be changed.", settled_as=settled_as
            )
        case errors.LeaseExpiredError():
            detail = "The lease has ended; another worker has the task, or will have it."
            return ProblemError(409, "lease_lost", detail, _STOP)
        case errors.ResultTooLargeError():
            problem = to_problem(error)
            problem.status, problem.field = 413, "result"
            return problem
        case OutcomeUnknownError() | errors.ReplyLostError():
            detail = "Redis has not confirmed it; it may have been done."
            remedy = "Send it again: the same outcome is answered as the first time."
            headers = {"Retry-After": "2"}
            return ProblemError(503, "unknown_outcome", detail, remedy, headers=headers)
        case errors.ServerStateError():
            remedy = "Send it again; another instance answers it."
            headers = {"Retry-After": "1"}
            return ProblemError(503, "shutting_down", "This instance is closing.", remedy, headers=headers)
        case errors.InvalidOptionError(option="duration"):
            return wrong_value("lease", to_problem(error).remedy)
    return to_problem(error)
