"""Where hanging code stands: generators and threads."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from pyasynq._background.code_places import (
    THREAD_PLACE,
    find_executor_places,
    find_thread_place,
    find_waiting_place,
)
from pyasynq._background.time_limits import clear_loop, report_place
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@run_async
async def test_an_asynchronous_generator_that_closes_is_found_behind_its_step() -> None:
    """The coroutine of `aclose` has no frame of its own. (D14)"""
    closing, may_close = asyncio.Event(), asyncio.Event()

    async def generate() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            closing.set()
            await may_close.wait()

    generator = generate()
    await anext(generator)
    task = asyncio.ensure_future(generator.aclose())  # type: ignore[attr-defined]
    await closing.wait()
    assert "generate" in find_waiting_place(task)
    may_close.set()
    await task


@run_async
async def test_the_place_of_a_thread_is_the_innermost_line_of_the_user() -> None:
    """Idle threads of the executor have none; a thread that has ended is told so far as it is known. (D14)"""
    begun, end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> int:
        loop.call_soon_threadsafe(begun.set)
        end.wait()
        return threading.get_ident()

    assert [THREAD_PLACE] == find_executor_places(loop)
    working = asyncio.ensure_future(asyncio.to_thread(work))
    await begun.wait()
    places = find_executor_places(loop)
    end.set()
    ident = await working
    [place] = places
    assert place.endswith("<locals>.work")
    assert find_thread_place(ident).startswith("a place in the thread asyncio_")
    assert THREAD_PLACE == find_thread_place(-1)


@run_async
async def test_what_was_reported_is_not_reported_again_and_is_still_not_clear() -> None:
    """A second report of the same task would look like a second thing that hangs. (D14)"""
    end = asyncio.Event()

    async def hang() -> None:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    tasks = [asyncio.ensure_future(hang()) for _ in range(2)]
    await asyncio.sleep(0)
    report_place(tasks[0])
    is_clear, places = await clear_loop(0)
    assert not is_clear
    assert 1 == len(places)
    end.set()
    await asyncio.gather(*tasks)
    assert (True, []) == await clear_loop(5)
