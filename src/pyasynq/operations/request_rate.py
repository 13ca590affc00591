"""Rate limits of requests, for API keys and for hosts that the task service calls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from pyasynq.errors import InvalidOptionError
from pyasynq.limits import check_rate, read_rate

LONGEST_FILL: Final = 31 * 86_400
"""Maximum seconds until an empty bucket is full again; a rate with a larger burst is refused."""
_LONGEST_TEXT: Final = 40


@dataclass(frozen=True, slots=True)
class RequestRate:
    """Rate limit of requests (token bucket): each request takes a token."""

    text: str
    """The rate as it was given: `50/s+10`."""
    requests: float
    """Number of requests per period in the long run."""
    period: float
    """Length of the period in seconds."""
    burst: int
    """Number of requests that may come in a burst after an idle time (size of the bucket)."""

    @property
    def window(self) -> tuple[int, int]:
        """Quota (requests, at least the burst) and window (whole seconds), for the rate limit headers."""
        quota, seconds = self.requests, self.period
        if self.burst > quota:
            quota, seconds = self.burst, self.burst * self.period / self.requests
        whole = math.ceil(seconds)
        return max(self.burst, math.floor(quota * whole / seconds)), whole


def parse_request_rate(option: str, text: object) -> RequestRate:
    """Parse a rate, such as `50/s`, `100/m` or `50/s+10`.

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
        # Drop the second half of the remedy, which names options of queues, such as a pause.
        remedy = f"{error.option} {error.remedy.partition(';')[0]}"
        raise InvalidOptionError(option, text, remedy) from None
    assert requests is not None  # noqa: S101 - for the type checker
    if burst * period > LONGEST_FILL * requests:
        remedy = "the whole burst must come again within 31 days: raise the rate, or lower the burst"
        raise InvalidOptionError(option, text, remedy)
    return RequestRate(text, requests, period, burst)
