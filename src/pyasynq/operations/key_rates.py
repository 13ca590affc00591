"""Rate limits of API keys: how many requests a program may send, over all instances of the task service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasynq._broker.operating import api_keys as plans

if TYPE_CHECKING:
    from pyasynq.operations.operator import Operator
    from pyasynq.operations.request_rate import RequestRate


@dataclass(frozen=True, slots=True)
class KeyAllowance:
    """Answer of a key's token bucket to one request."""

    is_admitted: bool
    left: int
    """Number of further requests that the bucket would admit now."""
    wait: float
    """Seconds until a request is admitted again; 0 if this request was admitted."""
    fill: float
    """Seconds until the bucket is full."""


async def spend_key_request(operator: Operator, key_id: str, rate: RequestRate) -> KeyAllowance:
    """Take a token for one request from the token bucket of an API key, unless the bucket is empty.

    This is not a verb of an operator: the service calls it for each request, without an audit entry.

    Args:
        operator: operator with which the instance reaches Redis.
        key_id: id of the key.
        rate: rate of the key.

    Raises:
        RedisError: Redis cannot be reached.
    """
    inspector = operator._inspector  # noqa: SLF001 - of this package
    limits = (rate.requests, rate.period, rate.burst)
    taken, left, wait, fill = await inspector.run(plans.spend_request(key_id, limits, inspector.redis_now()))
    return KeyAllowance(taken == 1, left, wait / 1e6, fill / 1e6)
