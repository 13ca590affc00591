"""Request to enqueue a task, `TaskReq`, and its answer, `RequestedTask`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pyasynq._checks import check_name
from pyasynq.errors import InvalidOptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReq:
    """Request to enqueue a task.

    Attributes:
        task_name: task type, which is also the queue.
        params: parameters of the task; any value that JSON can represent.
        task_id: number or text that you choose. While a task with this id waits or runs, another request with
            it returns that task; after its end, a new task is enqueued. None always enqueues a new task.

    Raises:
        InvalidOptionError: for an invalid field; the message names it.
    """

    task_name: str
    params: Any = field(default_factory=dict, repr=False)
    task_id: int | str | None = None

    def __post_init__(self) -> None:
        check_name("task_name", self.task_name)
        if isinstance(self.task_id, bool) or not isinstance(self.task_id, int | str | None):
            raise InvalidOptionError("task_id", self.task_id, "must be a whole number, text or None")
        if self.task_id == "":
            raise InvalidOptionError("task_id", self.task_id, "must not be empty; None makes a new task")

    def encode_params(self) -> bytes:
        """Return the params in JSON.

        Raises:
            InvalidOptionError: for params that JSON cannot represent.
        """
        try:
            text = json.dumps(self.params, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return text.encode()
        except (TypeError, ValueError, RecursionError):
            raise InvalidOptionError("params", type(self.params), "must be what JSON can carry") from None


@dataclass(frozen=True, slots=True)
class RequestedTask:
    """An enqueued task, or the existing one with the same id."""

    id: str
    queue: str
    state: str
    """State of the task at the time of the request, such as `pending`."""
    existing: bool
    """Whether the task existed before; then its params are those of the first request."""
