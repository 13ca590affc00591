"""Tasks that wait for a throttled host: when each is tried again, and when it is archived as too old.

A header of the task contains the time since which the task waits. The header is written together with the
outcome, so it costs no additional call of Redis. The first attempt that is not put off removes the header.
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
    """Return the outcome of a task whose host is throttled: a retry that is not counted, or the archive.

    Args:
        attempt: attempt at the task. The first throttled attempt writes its time to the task's headers.
        throttled: pause that the host asks for.
        max_age: seconds after that time from which the task is archived.
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
    """Parse a header as a Unix second; None for any other text, which another program may have written."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else None
