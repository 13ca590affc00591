"""Ended sessions of dashboards in Redis, until their cookies would have lapsed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import SIGNED_OUT_KEY

if TYPE_CHECKING:
    from pyasynq._clock import Instant

MAX_SIGNED_OUT_SECONDS: Final = 7 * 86_400
"""Maximum number of seconds for which an ended session is kept: the longest life of a cookie."""


def add_signed_out(digest: str, *, until: int, now: Instant) -> Plan[None]:
    """Record that a session has ended, and remove sessions whose cookies have lapsed.

    Args:
        digest: digest of the session's id.
        until: Unix second at which the session's cookie lapses; a week from now at most.
        now: the present.
    """
    second = min(until, now.seconds + MAX_SIGNED_OUT_SECONDS)
    for command in (
        ("ZREMRANGEBYSCORE", SIGNED_OUT_KEY, "-inf", f"({now.seconds}"),
        ("ZADD", SIGNED_OUT_KEY, second, digest),
        ("EXPIRE", SIGNED_OUT_KEY, MAX_SIGNED_OUT_SECONDS + 1),
    ):
        yield CommandCall(command, SIGNED_OUT_KEY, Replay.SAFE)


def has_signed_out(digest: str) -> Plan[bool]:
    """Return whether a session has ended."""
    score = yield CommandCall(("ZSCORE", SIGNED_OUT_KEY, digest), SIGNED_OUT_KEY, Replay.SAFE)
    return score is not None
