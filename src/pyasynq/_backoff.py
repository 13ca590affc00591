"""Jittered exponential back-off: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/."""

from __future__ import annotations

import random
from typing import Final

_DOUBLINGS: Final = 30


def jittered_pause(failures: int, *, shortest: float, longest: float) -> float:
    """Return the seconds to wait before a failed operation is repeated.

    The pause is at most `shortest` at first. This maximum doubles with each failure, up to `longest`. Up to
    half of it is subtracted at random (jitter), so that clients that lost the same server at the same moment
    do not all reconnect at once (thundering herd).
    """
    # An outage may cause thousands of failures, and a float does not reach beyond 2 to the power of 1023.
    pause = min(longest, shortest * 2.0 ** min(failures, _DOUBLINGS))
    return pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


class Backoff:
    """Jittered exponential back-off: the pauses after consecutive failures, in seconds."""

    __slots__ = ("_failures", "_longest", "_shortest")

    def __init__(self, shortest: float = 0.1, longest: float = 5.0) -> None:
        self._shortest = shortest
        self._longest = longest
        self._failures = 0

    def next(self) -> float:
        """Count one more failure, and return the seconds to wait before the next try."""
        pause = jittered_pause(self._failures, shortest=self._shortest, longest=self._longest)
        self._failures += 1
        return pause

    def reset(self) -> None:
        """Begin with the shortest pause again, after a success."""
        self._failures = 0
