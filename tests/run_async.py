"""Runner of tests that are coroutines."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    AsyncTest = Callable[..., Coroutine[Any, Any, None]]

SECONDS = 110
"""How long a test may take: less than the limit of pytest, which cannot tell where a coroutine waits."""


def run_async(test: AsyncTest) -> Callable[..., None]:
    """Run a test in an event loop of its own; nothing may be left running on it."""
    return run_async_within(SECONDS)(test)


def run_async_within(seconds: float) -> Callable[[AsyncTest], Callable[..., None]]:
    """Run a test as `run_async` does, with a limit of its own."""

    def decorate(test: AsyncTest) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            async def limited() -> None:
                async with asyncio.timeout(seconds):
                    await test(**fixtures)
                left = asyncio.all_tasks() - {asyncio.current_task()}
                assert not left, f"still running: {left}"

            asyncio.run(limited())

        return run

    return decorate
