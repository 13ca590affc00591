"""Request for a task, `TaskReq`, and the answer to it, `RequestedTask`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from pyasynq._checks import check_name
from pyasynq.errors import InvalidOptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReq:
    """A task to enqueue.

    Attributes:
        task_name: its type, which is also its queue.
        params: anything that JSON can carry.
        task_id: number or text of yours. While such a task waits or runs, a repeat finds it; once it has
            ended, a repeat starts it again. None makes a new task each time.

    Raises:
        InvalidOptionError: for a field that cannot be; it names the field.
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
            InvalidOptionError: for params that JSON cannot carry.
        """
        try:
            text = json.dumps(self.params, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            return text.encode()
        except (TypeError, ValueError, RecursionError):
            raise InvalidOptionError("params", type(self.params), "must be what JSON can carry") from None


@dataclass(frozen=True, slots=True)
class RequestedTask:
    """A task that is in its queue."""

    id: str
    queue: str
    state: str
    """Its state when it was asked for, such as `pending`."""
    existing: bool
    """Whether it was there already; then its params are those of the first request."""
