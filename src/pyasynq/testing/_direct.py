"""Clients and drivers of a test: asyncio on the outside, blocking within.

The server is a process on this machine that answers in microseconds. Nothing stays open in an event loop, so
nothing has to be closed there, and coroutines meet no other order than the one in which they call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pyasynq import sync
from pyasynq._redis.driver import AsyncDriver, BlockingDriver
from pyasynq.client import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Clock
    from pyasynq._redis.plan import Plan
    from pyasynq._redis.url import RedisTarget

_T = TypeVar("_T")


class DirectDriver(AsyncDriver):
    """Runs plans for asyncio over a blocking driver; its arguments are those of all drivers."""

    stays_open = False

    def __init__(self, target: RedisTarget, **settings: Any) -> None:
        super().__init__(target, **settings)
        self._blocking = BlockingDriver(target, **settings)

    async def run_unshielded(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run plans, and let nothing else of the event loop run meanwhile."""
        return self._blocking.run_batch(plans)

    async def close(self) -> None:
        """Wait for what is under way, then close the connections."""
        await super().close()
        self._blocking.close()

    def abandon(self) -> bool:
        """Close the connections at once. There are none that would have to be warned about."""
        super().abandon()
        self._blocking.abandon()
        return False


class DirectClient(Client):
    """The asyncio client of a test."""

    def _connect(self, target: RedisTarget, **settings: Any) -> AsyncDriver:
        return DirectDriver(target, **settings)


class QueuePlace:
    """Where and when an app works while it is under test."""

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock

    def open_client(self, **settings: Any) -> Client:
        """Make an asyncio client."""
        return DirectClient(self.url, clock=self.clock, client_name="pyasynq-testing", **settings)

    def open_blocking_client(self, **settings: Any) -> sync.Client:
        """Make a blocking client."""
        return sync.Client(self.url, clock=self.clock, client_name="pyasynq-testing", **settings)
