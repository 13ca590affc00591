"""Resting between two looks at Redis, for asyncio and for threads."""

from __future__ import annotations

import time


async def sleep_async(seconds: float) -> None:
    """Rest without keeping the event loop from its work."""
    import asyncio  # noqa: PLC0415 - the blocking inspector needs none of it

    await asyncio.sleep(seconds)


def sleep_blocking(seconds: float) -> None:
    """Rest in this thread."""
    time.sleep(seconds)
