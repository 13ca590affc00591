"""Renewal of leases and locks, which also reads cancel requests; used by the heartbeat's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyasynq._broker.cancellation import read_requests
from pyasynq._broker.leases import renew
from pyasynq._broker.locks import HeldLock, renew_locks
from pyasynq._broker.settle import Claim
from pyasynq._engine.run.attempt import Attempt, Phase, expect_renewals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyasynq._background.redis_time import RedisTime
    from pyasynq._broker.cancellation import CancelRequest
    from pyasynq._broker.leases import Renewed
    from pyasynq._clock import Clock
    from pyasynq._engine.settings import EngineSettings
    from pyasynq._redis.driver import BlockingDriver
    from pyasynq._redis.plan import Plan


class RenewalResult(NamedTuple):
    """Result of a renewal.

    Attributes:
        lost: attempts whose tasks belong to other workers now.
        canceled: attempts to cancel, each with the requested outcome of its task.
        error: the first error of a queue that could not be renewed or read.
    """

    lost: list[Attempt]
    canceled: list[tuple[Attempt, str]]
    error: Exception | None


class Renewal:
    """Extends the leases of all attempts, and finds the attempts whose leases are lost.

    A lapsed lease is renewed only while the attempt waits to be settled: its handler has ended, so its
    outcome may still be written if no worker has taken the task. A lease that its holder renews (a consumer's
    `lease`) is also renewed here only while the attempt waits to be settled.
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

    def renew(self, attempts: Iterable[Attempt]) -> RenewalResult:
        """Renew leases and locks, and read stored cancel requests, whose Pub/Sub message may be lost."""
        asked_at = self._clock.monotonic()
        ours = [one for one in attempts if one.phase is Phase.SETTLING or one.has_lease(asked_at)]
        held = _group_by_queue(ours)
        due = _group_by_queue([one for one in ours if one.phase is Phase.SETTLING or one.renewed])
        if not held:
            return RenewalResult([], [], None)
        plans: list[Plan[Any]] = [
            renew(
                queue,
                self._make_claims(group),
                lease_seconds=self._settings.lease,
                now=self._clock.redis_now(),
            )
            for queue, group in due.items()
        ]
        plans += [read_requests(queue, [one.id for one in group]) for queue, group in held.items()]
        plans += self._lock_plans(held)
        results = self._driver.run_batch(plans)
        lost: list[Attempt] = []
        canceled: list[tuple[Attempt, str]] = []
        for group, renewed in zip(due.values(), results[: len(due)], strict=True):
            if not isinstance(renewed, Exception):
                lost += self._apply_renewal(group, renewed, asked_at)
        for group, requests in zip(held.values(), results[len(due) : len(due) + len(held)], strict=True):
            if not isinstance(requests, Exception):
                canceled += _match_requests(group, requests)
        errors = (result for result in results if isinstance(result, Exception))
        return RenewalResult(lost, canceled, next(errors, None))

    def _lock_plans(self, queues: Mapping[str, Sequence[Attempt]]) -> list[Plan[int]]:
        plans = []
        for queue, group in queues.items():
            locks = [HeldLock(one.id, one.message.unique_key) for one in group if one.message.unique_key]
            if locks:
                plans.append(renew_locks(queue, locks, lease_seconds=self._settings.lease))
        return plans

    def _make_claims(self, attempts: Sequence[Attempt]) -> list[Claim]:
        claims = [Claim(attempt.id, attempt.token, attempt.lease_score) for attempt in attempts]
        # A settle may reach Redis before the reply of this renewal arrives: its claim must name the new
        # score.
        expect_renewals(attempts, self._redis_time.now().ceiling, self._settings.lease)
        return claims

    def _apply_renewal(self, attempts: Sequence[Attempt], result: Renewed, asked_at: float) -> list[Attempt]:
        self._redis_time.learn(result.redis_now)
        lost_ids = set(result.lost)
        lost = []
        for attempt in attempts:
            if attempt.id in lost_ids:
                lost.append(attempt)
            else:
                attempt.lease_end = result.lease_score
                attempt.lease_until = asked_at + self._settings.lease
        return lost


def _group_by_queue(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    queues: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        queues.setdefault(attempt.queue, []).append(attempt)
    return queues


def _match_requests(
    attempts: Iterable[Attempt], requests: Mapping[str, CancelRequest]
) -> Iterator[tuple[Attempt, str]]:
    """Yield the attempts that cancel requests name by token, each with the requested outcome."""
    for attempt in attempts:
        request = requests.get(attempt.id)
        if request is not None and request.token == attempt.token:
            yield attempt, request.outcome
