"""Tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SECONDS = 60


def run_async(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own; nothing may be left running on it."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        async def limited() -> None:
            async with asyncio.timeout(SECONDS):
                await test(**fixtures)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"still running: {left}"

        asyncio.run(limited())

    return run
