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
NUMBERS = (500, 2_000)
TIMED = {"Processor._start_side", "Rest.wake"}
"""Functions whose numbers of calls depend on how long Redis takes; they are not counted."""
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


def for_each_task(few: Counter[str], many: Counter[str]) -> dict[str, int]:
    """Return how often each function was called for each task, from two runs with different numbers.

    Their difference leaves out calls that do not depend on the number of tasks, as those of a start.
    """
    more = NUMBERS[1] - NUMBERS[0]
    each = {name: round((count - few[name]) / more) for name, count in many.items() if name not in TIMED}
    return {name: count for name, count in each.items() if count}


@run_async
async def test_few_functions_are_called_for_each_task(redis_url: str) -> None:
    """Both for a drain and for `enqueue_many`; no hook, limit or subscriber is in use."""
    app = App(redis_url)

    @app.task("noop")
    async def noop() -> None:
        pass

    enqueues, drains = [], []
    for number in NUMBERS:
        tasks = [Task("noop", b"{}") for _ in range(number)]
        async with Client(redis_url) as client:
            with counting_calls() as calls:
                await client.enqueue_many(tasks)
        enqueues.append(calls)
        server = app.server(ServerConfig(burst=True, concurrency=100))
        with counting_calls() as calls:
            assert 0 == await server.run(app, signals=False)
        drains.append(calls)
    counts = for_each_task(*enqueues)
    assert sum(counts.values()) <= MOST_FOR_A_TASK_OF_ENQUEUE_MANY, counts
    counts = for_each_task(*drains)
    assert 1 == counts["Runner._run"]
    assert sum(counts.values()) <= MOST_FOR_A_DRAINED_TASK, counts
