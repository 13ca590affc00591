"""Back-off of a service for each queue: a queue that fails does not delay other queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pyasynq._backoff import Backoff
from pyasynq._broker.settle import count_active_and_leases, probe
from pyasynq.errors import RedisReplyError
from pyasynq.events import RoundFailed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyasynq._background.service import Service
    from pyasynq._clock import Clock
    from pyasynq._redis.driver import AsyncDriver

_R = TypeVar("_R")


class QueueFailures:
    """Back-off of each queue that a service failed on.

    Args:
        service: reports each failure as a `RoundFailed` of its own.
        clock: the source of monotonic time.
    """

    def __init__(self, service: Service, clock: Clock) -> None:
        self._service = service
        self._clock = clock
        self._backoffs: dict[str, Backoff] = {}
        self._until: dict[str, float] = {}

    def ready(self, queues: Sequence[str]) -> list[str]:
        """Return the queues that are not in a back-off, and forget the back-offs of queues not in `queues`.

        Args:
            queues: all queues that are served now.
        """
        if self._until:
            served = frozenset(queues)
            self._until = {queue: until for queue, until in self._until.items() if queue in served}
            self._backoffs = {queue: one for queue, one in self._backoffs.items() if queue in served}
        return self.ready_among(queues)

    def get_rest(self, longest: float) -> float:
        """Return the seconds until the next back-off ends, at most `longest`. Ended back-offs are ignored."""
        if not self._until:
            return longest
        now = self._clock.monotonic()
        return min([longest, *(until - now for until in self._until.values() if until > now)])

    def ready_among(self, queues: Iterable[str]) -> list[str]:
        """Return the given queues that are not in a back-off."""
        if not self._until:
            return list(queues)
        now = self._clock.monotonic()
        return [queue for queue in queues if self._until.get(queue, now) <= now]

    def answers(
        self, queues: Sequence[str], results: Sequence[_R | Exception], *, others_work: bool = False
    ) -> list[tuple[str, _R]]:
        """Return the queues that answered without an error, with their results.

        The back-offs of these queues end. For each queue with an error, a back-off starts.

        Args:
            queues: the queues that were asked.
            results: the result or exception of each queue, in the same order.
            others_work: whether other queues, which were not asked, can be read.

        Raises:
            Exception: the first error, if all results are errors and `others_work` is False: then the service
                itself has failed.
        """
        well: list[tuple[str, _R]] = []
        failed: list[tuple[str, Exception]] = []
        for queue, result in zip(queues, results, strict=True):
            if isinstance(result, Exception):
                failed.append((queue, result))
            else:
                well.append((queue, result))
        if failed and not well and not others_work:
            raise failed[0][1]
        for queue, error in failed:
            self.note(queue, error)
        for queue, _ in well:
            self.recover(queue)
        return well

    def recover(self, queue: str) -> None:
        """End the back-off of a queue that has answered without an error."""
        if self._backoffs and self._backoffs.pop(queue, None) is not None:
            del self._until[queue]

    def note(self, queue: str, error: Exception) -> float:
        """Start the back-off of a queue, and report the error; return the back-off in seconds."""
        rest = self._backoffs.setdefault(queue, Backoff()).next()
        self._until[queue] = self._clock.monotonic() + rest
        self._service.events.emit(RoundFailed(self._service.name, error, rest, self._service.node, queue))
        return rest


async def is_reachable(driver: AsyncDriver, queue: str) -> bool:
    """Return whether the server of a queue answers a small call: distinguishes a refusal from an outage."""
    try:
        await driver.run(probe(queue))
    except Exception:  # noqa: BLE001 - any error means that it is not reachable
        return False
    return True


async def lacks_attempts(driver: AsyncDriver, queue: str) -> bool:
    """Return whether the active tasks or leases of a queue are not readable: their key has the wrong type.

    Then Redis refuses every outcome of the queue, and no task can be taken from it.
    """
    results = await driver.run_batch(count_active_and_leases(queue))
    return any(isinstance(result, RedisReplyError) for result in results)
