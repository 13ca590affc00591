from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pyasynq._broker.enqueueing.chunks import chunks_async, chunks_blocking
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MANY = ([Task("t")] * 1200, [500, 500, 200])
EXACT = ([Task("t")] * 1000, [500, 500])
LARGE = ([Task("t", b"x" * 1_000_000)] * 10, [4, 4, 2])
NONE: tuple[list[Task], list[int]] = ([], [])

CASES = pytest.mark.parametrize(("tasks", "sizes"), [MANY, EXACT, LARGE, NONE])


@CASES
def test_chunks_end_at_500_tasks_or_four_megabytes(tasks: list[Task], sizes: list[int]) -> None:
    """No chunk is empty, none is larger."""
    assert sizes == [len(chunk) for chunk in chunks_blocking(iter(tasks))]


@CASES
def test_async_iterables_are_cut_alike(tasks: list[Task], sizes: list[int]) -> None:
    """The asyncio client cuts plain iterables in the same way."""

    async def yielded() -> AsyncIterator[Task]:
        for task in tasks:
            yield task

    async def cut() -> None:
        assert sizes == [len(chunk) async for chunk in chunks_async(yielded())]
        assert sizes == [len(chunk) async for chunk in chunks_async(tasks)]

    asyncio.run(cut())
