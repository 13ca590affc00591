"""Whether Redis answers right now: to tell what it refuses from what cannot reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.settle import probe

if TYPE_CHECKING:
    from pyasynq._redis.driver import AsyncDriver


async def answers(driver: AsyncDriver, queue: str) -> bool:
    """Return whether the server of a queue answers a small call."""
    try:
        await driver.run(probe(queue))
    except Exception:  # noqa: BLE001 - any error means that nothing is known about the call that failed before
        return False
    return True
