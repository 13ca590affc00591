"""Rate and concurrency limits of requests to hosts, shared by all instances of the task service."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasynq._broker.operating import host_gates as plans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.operations.operator import Operator
    from pyasynq.operations.request_rate import RequestRate


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """Answer of the limiter of a host: number of admitted requests, and seconds to wait."""

    admitted: int
    """Number of admitted requests, which are the first of the requests that were given to `enter`."""
    throttled: float
    """Seconds until requests may continue after the host's answer 429 or 503; 0 if it is not throttled."""
    wait: float
    """Seconds until the bucket has a token; 0 if there is a token now, or if the host has no rate limit."""
    left: int
    """Number of tokens in the bucket after this answer; 0 if the host has no rate."""


class HostGate:
    """Distributed limiter of requests to a host: one Redis call of an instance admits several requests.

    It always honours the host's throttling, and limits rate and concurrency if they are configured. The
    methods are not verbs of an operator: the service calls them without audit entries.

    Args:
        operator: operator with which the instance reaches Redis.
        host: name of the host.
        rate: rate of requests; None for no limit.
        concurrency: maximum number of concurrent requests; None for no limit.
    """

    def __init__(
        self,
        operator: Operator,
        host: str,
        *,
        rate: RequestRate | None = None,
        concurrency: int | None = None,
    ) -> None:
        self.host = host
        self.rate = rate
        self.concurrency = concurrency
        self._inspector = operator._inspector  # noqa: SLF001 - of this package

    async def enter(self, ids: Sequence[str]) -> GateAnswer:
        """Admit the first of these requests, as many as the limits allow: each takes a token and a slot.

        Each request needs a unique id. An admitted request holds a slot for 30 s; `renew` extends that, and
        `release` ends it. If the call is cancelled, slots and tokens may have been taken.

        Raises:
            RedisError: Redis cannot be reached, or refuses.
        """
        rate = self.rate
        plan = plans.enter_gate(
            self.host,
            ids,
            limits=None if rate is None else (rate.requests, rate.period, rate.burst),
            concurrency=self.concurrency,
            now=self._inspector.redis_now(),
        )
        admitted, throttled, wait, left = await self._inspector.run(plan)
        return GateAnswer(admitted, throttled / 1e3, wait / 1e6, left)

    async def close_for(self, seconds: float) -> float:
        """Throttle the host: admit no request for some seconds, an hour at most.

        Return the seconds until requests are admitted again; an earlier, longer throttling stays in force.

        Raises:
            RedisError: Redis cannot be reached, or refuses.
        """
        plan = plans.close_gate(self.host, math.ceil(seconds * 1_000), self._inspector.redis_now())
        return await self._inspector.run(plan) / 1e3

    async def renew(self, ids: Sequence[str]) -> int:
        """Renew the slots of running requests; return how many of them still had a slot.

        Raises:
            RedisError: Redis cannot be reached, or refuses.
        """
        return await self._inspector.run(plans.renew_slots(self.host, ids, self._inspector.redis_now()))

    async def release(self, request_id: str) -> None:
        """Release the slot of a request.

        Raises:
            RedisError: Redis cannot be reached, or refuses.
        """
        await self._inspector.run(plans.release_slot(self.host, request_id))
