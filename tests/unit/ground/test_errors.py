from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from pyasynq._embedded.errors import ServerStartError
from pyasynq.errors import (
    DrainTimeoutError,
    DuplicateTaskError,
    EndlessDrainError,
    EnqueueManyError,
    ForeignRedisError,
    HandlerExitError,
    InvalidOptionError,
    InvalidTextError,
    PayloadTooLargeError,
    PyasynqError,
    RedisUnavailableError,
    RedisVersionError,
    ReplyLostError,
    ResultNotKeptError,
    SemaphoreFullError,
    SemaphoreNotHeldError,
    TaskDeletedError,
    TaskFailedError,
    TaskIDConflictError,
    TaskTimeoutError,
    UndecodableMessageError,
    UnknownOptionError,
    WaitTimeoutError,
)
from pyasynq.task import EnqueueResult, EnqueueStatus

ERRORS = [
    DrainTimeoutError(["t a"], 60.0),
    DuplicateTaskError("default", "asynq:{default}:unique:t:", "a", "is gone"),
    EndlessDrainError({"t": 3}),
    ForeignRedisError("production:6379"),
    HandlerExitError(SystemExit(1)),
    InvalidOptionError("queue", "", "must not be blank"),
    InvalidTextError("TaskMessage", "type", "\ud800", 0),
    PayloadTooLargeError(10, 5),
    RedisUnavailableError("redis:6379", "refused"),
    RedisVersionError("5.0"),
    ReplyLostError("redis:6379", "reset"),
    SemaphoreFullError("api", 3),
    SemaphoreNotHeldError("api", "a"),
    ServerStartError("no", folder=Path("/f"), binary=Path("/b"), log=""),
    ResultNotKeptError("default", "a", "is gone"),
    TaskDeletedError("default", "a", "was deleted"),
    TaskFailedError("default", "a", "timeout"),
    TaskIDConflictError("default", "a"),
    TaskTimeoutError(),
    UndecodableMessageError("TaskMessage", b"x", "no"),
    UnknownOptionError("queu", ["queue"]),
    WaitTimeoutError("default", "a", 1.5),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_out_of_a_process_pool(error: PyasynqError) -> None:
    """Pickled and copied it keeps class, text and attributes; otherwise it would break the whole pool."""
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(error) is type(twin)
        assert str(error) == str(twin)
        assert vars(error) == vars(twin)


@pytest.mark.parametrize(("number", "text"), [(1, "1 of 1 task was not"), (2, "2 of 2 tasks were not")])
def test_lost_tasks_are_counted_in_singular_and_plural(number: int, text: str) -> None:
    """The message has `1 task` and `2 tasks`."""
    results = [EnqueueResult(EnqueueStatus.REFUSED, None, None, PyasynqError("no")) for _ in range(number)]
    assert str(EnqueueManyError(results)).startswith(text)
