"""Renewing the leases of all attempts, from the heartbeat's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.leases import renew
from pyasynq._broker.settle import Claim
from pyasynq._server.attempt import Attempt, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyasynq._broker.driver import BlockingDriver
    from pyasynq._broker.leases import Renewed
    from pyasynq._clock import Clock
    from pyasynq._server.redis_time import RedisTime
    from pyasynq._server.settings import EngineSettings


class Renewal:
    """One renewal moves the leases of all attempts forward and finds those that are lost.

    An attempt whose lease has lapsed is renewed only when it waits to be settled: nothing of it runs any
    more, so if nobody has taken the task meanwhile, its outcome may still be written.
    """

    def __init__(
        self,
        driver: BlockingDriver,
        settings: EngineSettings,
        clock: Clock,
        redis_time: RedisTime,
    ) -> None:
        self._driver = driver
        self._settings = settings
        self._clock = clock
        self._redis_time = redis_time

    def renew(self, attempts: Iterable[Attempt]) -> tuple[list[Attempt], Exception | None]:
        """Return the attempts that are lost, and the first error of a queue that could not be renewed."""
        asked_at = self._clock.monotonic()
        queues: dict[str, list[Attempt]] = {}
        for attempt in attempts:
            if attempt.has_lease(asked_at) or attempt.phase is Phase.SETTLING:
                queues.setdefault(attempt.queue, []).append(attempt)
        if not queues:
            return [], None
        plans = [
            renew(
                queue,
                self._claims(group),
                lease_seconds=self._settings.lease,
                now=self._clock.redis_now(),
            )
            for queue, group in queues.items()
        ]
        lost: list[Attempt] = []
        first: Exception | None = None
        for group, result in zip(queues.values(), self._driver.run_batch(plans), strict=True):
            if isinstance(result, Exception):
                first = first or result
            else:
                lost += self._renewed(group, result, asked_at)
        return lost, first

    def _claims(self, attempts: Sequence[Attempt]) -> list[Claim]:
        claims = [Claim(attempt.id, attempt.token, attempt.lease_score) for attempt in attempts]
        # A settle may overtake the reply of this renewal: it must then know the score that Redis has by now.
        now = self._redis_time.now().ceiling
        for attempt in attempts:
            attempt.expect_renewals(now, self._settings.lease)
        return claims

    def _renewed(self, attempts: Sequence[Attempt], result: Renewed, asked_at: float) -> list[Attempt]:
        self._redis_time.learn(result.redis_now)
        lost_ids = set(result.lost)
        lost = []
        for attempt in attempts:
            if attempt.id in lost_ids:
                lost.append(attempt)
            else:
                attempt.lease_until = asked_at + self._settings.lease
        return lost
