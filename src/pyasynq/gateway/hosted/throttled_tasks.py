"""Tasks that wait for a throttled host: how long, and their end when they have waited too long.

A header of the task holds since when it waits. The outcome writes the task anyway, so this costs no call of
Redis. The header goes with the first attempt that is not put off.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import duration
from pyasynq.control import Archive

from .admission import put_off
from .outcome import WAITS_SINCE_HEADER

if TYPE_CHECKING:
    from pyasynq.consumer import Attempt

    from .outcome import HostedOutcome, Throttled

DEFAULT_MAX_AGE: Final = 86_400.0
"""Seconds for which a task waits for a throttled host, unless its type has a `max_age`."""
_MOST_DIGITS: Final = 12


def put_off_task(
    attempt: Attempt, throttled: Throttled, max_age: float, now: float | None = None
) -> HostedOutcome:
    """Return the outcome of a task whose host is throttled: later for no retry, or archived as too old.

    Args:
        attempt: attempt at the task; a first one is noted in its headers.
        throttled: what the host asks for.
        max_age: seconds from the first such attempt after which the task is archived.
        now: the present as Unix time, for tests.
    """
    now = time.time() if now is None else now
    since = _read_second(attempt.task.headers.get(WAITS_SINCE_HEADER, ""))
    if since is None or since > now + 1:
        attempt.set_header(WAITS_SINCE_HEADER, str(int(now)))
    elif now - since >= max_age:
        waited = f"it has waited for {duration(now - since)}, and max_age is {duration(max_age)}"
        return Archive(f"{throttled.reason}: {waited}")
    return put_off(throttled.seconds, throttled.reason)


def _read_second(text: str) -> int | None:
    """Return the Unix second of a header; None for anything else, which another program may have written."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else None
