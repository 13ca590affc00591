"""How many functions of this package are called for each task. The number decides the cost of a drain.

A function called once more for each task costs about 0.3 % of a drain. It needs a reason, such as a feature
that every task uses. Work for fewer tasks belongs into the code that only those tasks reach, and work for a
batch, a queue or a handler is done once for it.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyasynq
from pyasynq import App, Client, Task
from pyasynq.config import ServerConfig
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

PACKAGE = f"{Path(pyasynq.__file__).parent}{os.sep}"
NUMBER = 1_000
MOST_FOR_A_DRAINED_TASK = 24
MOST_FOR_A_TASK_OF_ENQUEUE_MANY = 10


@contextmanager
def counting_calls() -> Iterator[Counter[str]]:
    """Count the calls of each Python function of the package in this thread."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def for_each_task(calls: Counter[str]) -> dict[str, int]:
    """Return how often each function was called for each task; functions with fewer calls are left out."""
    return {name: count // NUMBER for name, count in calls.items() if count >= NUMBER}


@run_async
async def test_few_functions_are_called_for_each_task(redis_url: str) -> None:
    """Both for a drain and for `enqueue_many`; no hook, limit or subscriber is in use."""
    app = App(redis_url)

    @app.task("noop")
    async def noop() -> None:
        pass

    tasks = [Task("noop", b"{}") for _ in range(NUMBER)]
    async with Client(redis_url) as client:
        with counting_calls() as calls:
            await client.enqueue_many(tasks)
    counts = for_each_task(calls)
    assert sum(counts.values()) <= MOST_FOR_A_TASK_OF_ENQUEUE_MANY, counts
    server = app.server(ServerConfig(burst=True, concurrency=100))
    with counting_calls() as calls:
        assert 0 == await server.run(app, signals=False)
    counts = for_each_task(calls)
    assert 1 == counts["Runner._run"]
    assert sum(counts.values()) <= MOST_FOR_A_DRAINED_TASK, counts
