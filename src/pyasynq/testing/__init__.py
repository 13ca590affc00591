"""Test kit for code that uses pyasynq: a real Redis, a clock that stands still, and a worker run on request.

    with testing.use(app) as kit:
        sign_up("ada@example.com")  # enqueues
        kit.assert_enqueued(deliver, template="welcome")
        kit.drain_sync()
        kit.advance_sync(days=3)

With pytest, the fixture `pyasynq_kit` replaces the first line.
"""

from __future__ import annotations

from pyasynq.errors import DrainTimeoutError, EndlessDrainError, ForeignRedisError, HandlerExitError
from pyasynq.testing._contexts import RecordedContext, task_context
from pyasynq.testing._database import stop_server
from pyasynq.testing._enqueued import Enqueued
from pyasynq.testing._kit import Kit, use
from pyasynq.testing._report import Attempt, Report

__all__ = [
    "Attempt",
    "DrainTimeoutError",
    "EndlessDrainError",
    "Enqueued",
    "ForeignRedisError",
    "HandlerExitError",
    "Kit",
    "RecordedContext",
    "Report",
    "stop_server",
    "task_context",
    "use",
]
