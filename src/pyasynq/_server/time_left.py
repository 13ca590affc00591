"""The time limit that all steps of a shutdown share."""

from __future__ import annotations

import time

_LEAST_SECONDS = 0.1
"""What a step gets although the time is over: most steps take milliseconds."""


class TimeLeft:
    """Returns, when called, how many seconds are left until a limit; never less than 0.1 s.

    Args:
        seconds: from now to the limit.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def __call__(self) -> float:
        """Return the seconds that the next step may take."""
        return max(_LEAST_SECONDS, self._end - time.monotonic())
