from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from pyasynq._embedded.errors import ServerStartError
from pyasynq.errors import (
    DuplicateTaskError,
    InvalidOptionError,
    InvalidTextError,
    PayloadTooLargeError,
    PyasynqError,
    RedisUnavailableError,
    RedisVersionError,
    ReplyLostError,
    TaskIDConflictError,
    TaskTimeoutError,
    UndecodableMessageError,
    UnknownOptionError,
)

ERRORS = [
    DuplicateTaskError("default", "asynq:{default}:unique:t:"),
    InvalidOptionError("queue", "", "must not be blank"),
    InvalidTextError("TaskMessage", "type", "\ud800", 0),
    PayloadTooLargeError(10, 5),
    RedisUnavailableError("redis:6379", "refused"),
    RedisVersionError("5.0"),
    ReplyLostError("redis:6379", "reset"),
    ServerStartError("no", folder=Path("/f"), binary=Path("/b"), log=""),
    TaskIDConflictError("default", "a"),
    TaskTimeoutError(),
    UndecodableMessageError("TaskMessage", b"x", "no"),
    UnknownOptionError("queu", ["queue"]),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_out_of_a_process_pool(error: PyasynqError) -> None:
    """Pickled and copied it keeps class, text and attributes; otherwise it would break the whole pool."""
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(error) is type(twin)
        assert str(error) == str(twin)
        assert vars(error) == vars(twin)
