"""Throttled execution of plans, with a pause after each round of calls."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

from pyasynq._broker.arguments import MAX_TASKS
from pyasynq._redis.exchange import advance
from pyasynq._redis.plan import ask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._redis.driver import AsyncDriver
    from pyasynq._redis.plan import Place, Plan

_T = TypeVar("_T")

_SHORTEST_REST: Final = 0.0005
_PLANS_AT_ONCE: Final = MAX_TASKS // 10


class Pace:
    """Throttle that pauses as long as each round of calls took, to use at most half of Redis' time."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver

    @property
    def places(self) -> list[Place]:
        """Routing targets for commands to every node: one for each known primary of a cluster."""
        return self._driver.places

    async def run(self, plan: Plan[_T]) -> _T:
        """Run a plan; when cancelled, it ends after the current call."""
        [result] = await self.run_all([plan])
        return result

    async def run_all(self, plans: Sequence[Plan[_T]]) -> list[_T]:
        """Run plans in parallel, a hundred at a time; the first error ends them."""
        results: list[_T] = []
        for first in range(0, len(plans), _PLANS_AT_ONCE):
            results += await self._run_some(plans[first : first + _PLANS_AT_ONCE])
        return results

    async def _run_some(self, plans: Sequence[Plan[_T]]) -> list[_T]:
        rounds = advance(plans)
        try:
            calls = next(rounds)
            while True:
                started = time.monotonic()
                replies = await self._driver.run_batch([ask(call) for call in calls])
                await asyncio.sleep(max(_SHORTEST_REST, time.monotonic() - started))
                calls = rounds.send(replies)
        except StopIteration as stop:
            return [_unwrap(result) for result in stop.value]


def _unwrap(result: _T | Exception) -> _T:
    if isinstance(result, Exception):
        raise result
    return result
