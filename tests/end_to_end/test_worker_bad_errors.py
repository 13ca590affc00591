"""Whatever a handler raises is its own task's failure and nothing else's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyasynq import Task
from pyasynq._wire.messages import decode_task_message
from tests.bad_errors import BAD_ERRORS
from tests.fix_worker import Worker, enqueue, task_field

if TYPE_CHECKING:
    from tests.invariants import RedisClient

KINDS = ("raise", "raise-in-thread", "raise-in-middleware", "raise-late")
LINE = re.compile(r"(\w+)(?:: .*)? \[\w+\.py:\d+\]", re.DOTALL)


def test_every_kind_of_error_fails_its_own_task_and_no_other(
    redis_url: str, redis_client: RedisClient
) -> None:
    """SystemExit and the like, from coroutines, threads and middleware, at once or after a wait.

    The error's line is short, valid and names the place; the trace is bounded; the worker ends with 0.
    """
    tasks = [Task(kind, name.encode(), max_retry=0) for kind in KINDS for name in BAD_ERRORS]
    ids = enqueue(redis_url, *tasks)
    good = enqueue(redis_url, *["mark"] * 50)
    with Worker(redis_url, burst=True) as worker:
        assert 0 == worker.end()
    assert set(good) == set(worker.all("ran (.*)"))
    assert len(tasks) == redis_client.zcard("asynq:{default}:archived")
    for task_id, task in zip(ids, tasks, strict=True):
        name = (task.payload or b"").decode()
        message = decode_task_message(task_field(redis_client, task_id, "msg") or b"")
        line = LINE.fullmatch(message.error_msg)
        assert line, (task.type, name, message.error_msg)
        kind = type(BAD_ERRORS[name]()).__name__
        # Python itself lets neither of these out of a coroutine.
        kinds = {kind, "RuntimeError"} if kind in {"StopIteration", "StopAsyncIteration"} else {kind}
        assert line[1] in kinds
        assert len(message.error_msg.encode()) <= 2_048
        trace = task_field(redis_client, task_id, "x:trace") or b""
        assert 0 < len(trace) <= 16_384
        trace.decode()
    assert not redis_client.keys("asynq:{default}:t:*mark*")


def test_what_is_raised_with_retries_left_is_retried(redis_url: str, redis_client: RedisClient) -> None:
    """One retry is spent, whatever it was."""
    ids = [enqueue(redis_url, Task("raise", name.encode()))[0] for name in BAD_ERRORS]
    with Worker(redis_url, max_tasks=len(ids)) as worker:
        assert 0 == worker.end()
    assert set(ids) == {name.decode() for name in redis_client.zrange("asynq:{default}:retry", 0, -1)}
    messages = [decode_task_message(task_field(redis_client, task_id, "msg") or b"") for task_id in ids]
    assert {1} == {message.retried for message in messages}
    assert [str(len(ids)).encode()] * 2 == redis_client.mget(
        "asynq:{default}:processed", "asynq:{default}:failed"
    )
