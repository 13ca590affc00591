"""Errors of the SDK."""

from __future__ import annotations

from pyasynq.errors import PyasynqError


class WorkerEndedError(PyasynqError):
    """Error: a worker has ended by itself, without a call of `close`."""


class ServiceError(PyasynqError):
    """Error: the task service has refused a request, or does not answer.

    Attributes:
        status: HTTP status; 0 without an answer.
        code: code of the problem in the answer, such as `missing_scope`.
    """

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
