"""Pairs of reads that run at the same time."""

from __future__ import annotations

import asyncio

import pytest

from pyasynq._redis.read_pairs import read_both_async, read_both_blocking
from tests.run_async import run_async


@run_async
async def test_two_reads_run_at_the_same_time() -> None:
    """Each waits for the other one."""
    first_began, second_began = asyncio.Event(), asyncio.Event()

    async def read(begun: asyncio.Event, awaited: asyncio.Event, result: int) -> int:
        begun.set()
        await awaited.wait()
        return result

    reads = read(first_began, second_began, 1), read(second_began, first_began, 2)
    assert (1, 2) == await read_both_async(*reads)
    assert (1, 2) == read_both_blocking(1, 2)


@pytest.mark.parametrize("fails", [0, 1])
@run_async
async def test_an_error_is_raised_when_both_reads_have_ended(fails: int) -> None:
    """No read goes on behind the caller's back."""
    ended: list[int] = []

    async def read(number: int) -> None:
        if number == fails:
            raise ValueError(number)
        await asyncio.sleep(0)
        ended.append(number)

    with pytest.raises(ValueError, match=str(fails)):
        await read_both_async(read(0), read(1))
    assert [1 - fails] == ended
