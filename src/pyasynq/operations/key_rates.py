"""Rate limits of API keys: how many requests a program may send, over all instances of the task service."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._broker.operating import api_keys as plans
from pyasynq._queue_texts import read_rate
from pyasynq.errors import InvalidOptionError
from pyasynq.limits import check_rate

if TYPE_CHECKING:
    from pyasynq.operations.operator import Operator

LONGEST_FILL: Final = 31 * 86_400
"""Maximum seconds until a key's empty bucket is full again: a longer burst is a quota, not a rate."""
_LONGEST_TEXT: Final = 40


@dataclass(frozen=True, slots=True)
class KeyRate:
    """Rate limit of an API key (token bucket): each request takes a token."""

    text: str
    """The rate as it was given: `50/s+10`."""
    requests: float
    """Number of requests per period in the long run."""
    period: float
    """Length of the period in seconds."""
    burst: int
    """Number of requests that may come at once after an idle time (size of the bucket)."""

    @property
    def window(self) -> tuple[int, int]:
        """Quota and window in whole seconds for rate limit headers; the quota is at least the burst."""
        quota, seconds = self.requests, self.period
        if self.burst > quota:
            quota, seconds = self.burst, self.burst * self.period / self.requests
        whole = math.ceil(seconds)
        return max(self.burst, math.floor(quota * whole / seconds)), whole


@dataclass(frozen=True, slots=True)
class KeyAllowance:
    """Answer of a key's token bucket to one request."""

    is_admitted: bool
    left: int
    """Number of further requests that would be admitted at once."""
    wait: float
    """Seconds until the next request is admitted, if this one is not."""
    fill: float
    """Seconds until the bucket is full."""


def parse_key_rate(option: str, text: object) -> KeyRate:
    """Return the rate of a key, such as `50/s`, `100/m` or `50/s+10`.

    Raises:
        InvalidOptionError: for anything else.
    """
    if not isinstance(text, str):
        raise InvalidOptionError(option, text, 'must be text, such as "50/s" or "100/m+10"')
    text = text.strip()
    if len(text) > _LONGEST_TEXT:
        raise InvalidOptionError(option, text, f"must have at most {_LONGEST_TEXT} characters")
    fields = read_rate(option, text)
    try:
        requests, period, burst = check_rate(fields["rate"], fields["period"], fields.get("burst"))
    except InvalidOptionError as error:
        # The remedies of a queue's rate tell of pausing it, which a key cannot be.
        remedy = f"{error.option} {error.remedy.partition(';')[0]}"
        raise InvalidOptionError(option, text, remedy) from None
    assert requests is not None  # noqa: S101 - for the type checker
    if burst * period > LONGEST_FILL * requests:
        remedy = "the whole burst must come again within 31 days: raise the rate, or lower the burst"
        raise InvalidOptionError(option, text, remedy)
    return KeyRate(text, requests, period, burst)


async def spend_key_request(operator: Operator, key_id: str, rate: KeyRate) -> KeyAllowance:
    """Take a token for one request from the bucket of a key, if it has one.

    This is not a verb of an operator: the service calls it for each request, without an audit entry.

    Args:
        operator: with which the instance reaches Redis.
        key_id: id of the key.
        rate: of the key.

    Raises:
        RedisError: Redis cannot be reached.
    """
    door = operator._inspector  # noqa: SLF001 - of this package
    limits = (rate.requests, rate.period, rate.burst)
    taken, left, wait, fill = await door.run(plans.spend_request(key_id, limits, door.redis_now()))
    return KeyAllowance(taken == 1, left, wait / 1e6, fill / 1e6)
