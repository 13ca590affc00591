"""Factory of attempts for tests without a server."""

from __future__ import annotations

from typing import Any

from pyasynq._engine.run.attempt import Attempt
from pyasynq._wire.messages import new_task_message


def attempt(task_id: str = "a", queue: str = "default", *, crashes: int = 0, **fields: Any) -> Attempt:
    """Return an attempt that was just taken."""
    message = new_task_message(id=task_id, queue=queue, type="t", **fields)
    return Attempt(None, queue, message, "server/1", crashes=crashes, lease_until=30.0)  # type: ignore[arg-type]
