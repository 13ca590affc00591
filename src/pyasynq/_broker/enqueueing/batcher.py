"""Common base of the batchers for asyncio and for threads: write batching, or group commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pyasynq._broker.enqueueing.chunks import RunBatch
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import RedisUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._clock import Clock
    from pyasynq._redis.driver import AsyncDriver, BlockingDriver

D = TypeVar("D", bound="AsyncDriver | BlockingDriver")

MAX_CALLS: Final = 10_000
MAX_BATCH_BYTES: Final = 16_000_000


class Batcher(Generic[D]):
    """Base of batchers: collects the enqueue calls of one driver into batches, and limits how many may wait.

    Each cluster node has batches of its own, so that the calls for one do not wait for another.
    """

    def __init__(
        self,
        driver: D,
        clock: Clock,
        *,
        max_calls: int = MAX_CALLS,
        max_bytes: int = MAX_BATCH_BYTES,
        events_kept: int = 0,
        durable: bool = False,
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._max_calls = max_calls
        self._max_bytes = max_bytes
        self._events_kept = events_kept
        self._durable = durable
        self._is_cluster = driver.target.is_cluster

    def _find_node(self, composed: Composed) -> str:
        """Return the cluster node that gets a call; empty if it is not known yet."""
        return self._driver.find_node(queue_keys(composed.settings.queue).pending)

    def _batch(self, composed: Sequence[Composed]) -> RunBatch:
        return RunBatch(
            composed,
            now=self._clock.now(),
            events_kept=self._events_kept,
            durable=self._durable,
        )

    def _no_room(self, calls: int, size: int) -> RedisUnavailableError:
        """Return the error for a call that was not admitted within the timeout (back-pressure)."""
        seconds = self._driver.timeout
        waiting = f"{calls:,} call{'s' * (calls != 1)} with {size:,} bytes"
        cause = f"{waiting} {'were' if calls != 1 else 'was'} waiting for it during {seconds:g} s"
        return RedisUnavailableError(self._driver.target.address, cause)
