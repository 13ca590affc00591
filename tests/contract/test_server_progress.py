"""What handlers say of their progress, on a real Redis."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import Retry, context
from pyasynq.errors import InvalidOptionError
from pyasynq.events import Outcome, RoundFinished
from pyasynq.inspector import Inspector
from tests.fix_engine import QUICK, serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq.task import Task, TaskProgress


async def progress_of(url: str) -> TaskProgress | None:
    """Return what the inspector says of the progress of `a`."""
    async with Inspector(url) as inspector:
        return (await inspector.task_info("default", "a")).progress


def writes(events: list[RoundFinished]) -> int:
    """Return how often progress was written."""
    return sum(event.service == "progress writer" and event.rest < math.inf for event in events)


@run_async
async def test_progress_can_be_seen_while_the_handler_runs(redis_url: str) -> None:
    """The first report at once."""
    go_on = asyncio.Event()

    async def handle(task: Task) -> None:
        del task
        context().progress(3, 10, "rows")
        await go_on.wait()

    begun = time.time()
    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        await running.recorder.wait(
            RoundFinished, lambda event: event.service == "progress writer" and event.rest < math.inf
        )
        found = await progress_of(redis_url)
        go_on.set()
        await running.finished("a")
        await running.settled()
    assert found is not None
    assert (3, 10, "rows") == (found.done, found.total, found.note)
    assert int(begun) <= found.at.timestamp() <= time.time()


@pytest.mark.parametrize("plain", [False, True])
@run_async
async def test_a_few_of_ten_thousand_reports_are_written_and_the_last_one_is(
    redis_url: str, plain: bool
) -> None:
    """Two a second at most, and the last with the outcome, from coroutines and from threads."""

    def work() -> None:
        for number in range(10_000):
            context().progress(number + 1, 10_000)

    async def work_on_the_loop(task: Task) -> None:
        del task
        work()

    handle: Any = work_on_the_loop if not plain else lambda task: work()
    begun = time.monotonic()
    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a", retention=60)
        await running.finished("a")
        await running.settled()
        seconds = time.monotonic() - begun
        assert writes(running.recorder.of(RoundFinished)) <= 1 + seconds / QUICK.progress_interval
    found = await progress_of(redis_url)
    assert found is not None
    assert (10_000, 10_000) == (found.done, found.total)


@run_async
async def test_progress_stays_until_the_next_attempt_says_something(redis_url: str) -> None:
    """Where a failed attempt had come to is worth knowing until then."""
    seen: list[TaskProgress | None] = []

    async def handle(task: Task) -> Retry | None:
        del task
        seen.append(await progress_of(redis_url))
        context().progress(len(seen))
        return Retry(after=0) if len(seen) == 1 else None

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a", retention=60)
        await running.finished("a", retried=1)
        await running.settled()
    assert [None, 1, 2] == [one and one.done for one in (*seen, await progress_of(redis_url))]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("half",), "done=<str>: must be a finite number that is not negative"),
        ((True,), "done=True"),
        ((-1,), "done=-1"),
        ((float("nan"),), "done=nan"),
        ((1, float("inf")), "total=inf"),
        ((1, "10"), "total=<str>"),
        ((1, None, 5), "note=5: must be text"),
    ],
)
@run_async
async def test_an_invalid_progress_value_fails_the_task_with_an_error_that_says_so(
    redis_url: str, arguments: tuple[Any, ...], text: str
) -> None:
    """Half a report would show nonsense for hours."""

    async def handle(task: Task) -> None:
        del task
        with pytest.raises(InvalidOptionError) as caught:
            context().progress(*arguments)
        assert text in str(caught.value)
        context().progress(1, 0, "n" * 1_000)

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a", retention=60)
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()
    found = await progress_of(redis_url)
    assert found is not None
    assert (0, "n" * 200) == (found.total, found.note)
