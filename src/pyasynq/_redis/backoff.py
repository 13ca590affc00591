"""How long to wait before a failed attempt is repeated."""

from __future__ import annotations

import random
from typing import Final

_DOUBLINGS: Final = 30


def jittered_pause(failures: int, *, shortest: float, longest: float) -> float:
    """Return seconds: `shortest` at first, doubled with each failure up to `longest`, less up to a half.

    The part that chance takes off keeps those apart who lost the same server at the same moment.
    """
    # An outage may last for thousands of failures, and a float does not reach beyond 2 to the power of 1023.
    pause = min(longest, shortest * 2.0 ** min(failures, _DOUBLINGS))
    return pause * random.uniform(0.5, 1.0)  # noqa: S311 - spreads clients, guards nothing
