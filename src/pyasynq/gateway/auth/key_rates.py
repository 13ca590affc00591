"""Rate limits of API keys at the task service, and the headers that report them to programs.

The fields `RateLimit-Policy` and `RateLimit` are those of draft-ietf-httpapi-ratelimit-headers-10.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyasynq.operations import spend_key_request
from pyasynq.web.api.problem import ProblemError

if TYPE_CHECKING:
    from starlette.types import Message, Scope, Send

    from pyasynq.operations import KeyAllowance, Operator, RequestRate

_FIELDS: Final = "pyasynq.rate_fields"
"""Key of the ASGI scope that holds the rate limit headers of the answer."""


async def admit_request(scope: Scope, operator: Operator, key_id: str, rate: RequestRate) -> None:
    """Take a token for a request from the token bucket of its API key.

    The headers of the answer report how many tokens are left, for any status.

    Raises:
        ProblemError: the bucket is empty (429).
        RedisError: Redis cannot be reached.
    """
    allowance = await spend_key_request(operator, key_id, rate)
    scope[_FIELDS] = make_rate_fields(rate, allowance)
    if not allowance.is_admitted:
        headers = {"Retry-After": str(max(1, math.ceil(allowance.wait)))}
        detail = f"This key may send {rate.text} requests."
        remedy = "Nothing was done: send it again after Retry-After."
        raise ProblemError(429, "rate_limited", detail, remedy, headers=headers)


def make_rate_fields(rate: RequestRate, allowance: KeyAllowance) -> list[tuple[bytes, bytes]]:
    """Return the headers about a rate limit: the policy, and the remaining tokens."""
    quota, seconds = rate.window
    policy = f'"key";q={quota};w={seconds}'
    state = f'"key";r={allowance.left};t={math.ceil(allowance.fill)}'
    return [(b"ratelimit-policy", policy.encode()), (b"ratelimit", state.encode())]


def get_rate_fields(scope: Scope) -> list[tuple[bytes, bytes]]:
    """Return the rate limit headers for a request's key; none if the key has no limit."""
    found: list[tuple[bytes, bytes]] = scope.get(_FIELDS, [])
    return found


def sending_rate_fields(scope: Scope, send: Send) -> Send:
    """Return a `send` that adds the rate limit headers of the request's key, if it has a limit."""

    async def send_with_fields(message: Message) -> None:
        if message["type"] == "http.response.start" and (fields := get_rate_fields(scope)):
            message = {**message, "headers": [*message.get("headers", ()), *fields]}
        await send(message)

    return send_with_fields
