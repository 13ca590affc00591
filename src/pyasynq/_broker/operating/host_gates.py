"""Gates of hosts that the task service calls: distributed limiters of rate and concurrency, and throttling.

The gate of a host is a hash with its token bucket and the time until which the host is throttled.
Its slots are a semaphore of requests, whose tokens are leases: tokens of a killed instance expire.
Both have the hash tag `{HOST}`, so that one script decides on all three limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import time_arguments
from pyasynq._broker.scripts import GATE_CLOSE, GATE_ENTER, GATE_RENEW
from pyasynq._broker.semaphore import release_token
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.keys import host_gate_key, host_slots_scope, semaphore_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant

LONGEST_THROTTLING: Final = 3_600
"""Maximum seconds for which a host is throttled, so that a wrong `Retry-After` has no effect for longer."""
_SLOT_SECONDS: Final = 30
"""Seconds for which a request holds its slot unless it is renewed: as long as the lease of its task."""


def enter_gate(
    host: str,
    ids: Sequence[str],
    *,
    limits: tuple[float, float, int] | None = None,
    concurrency: int | None = None,
    now: Instant | None = None,
) -> Plan[tuple[int, int, int, int]]:
    """Take tokens and slots for requests to a host; the first requests of `ids` get them.

    Return four numbers: the requests that may begin; the milliseconds for which the host is throttled, or 0;
    the microseconds until the next token, or 0 if there is one; and the tokens left.
    A call that is resent after a lost reply may take further tokens, but no further slots.

    Args:
        host: name of the host.
        ids: unique ids of the requests, 1,000 at most.
        limits: requests per period, period in seconds, and burst; None for no rate limit.
        concurrency: maximum number of simultaneous requests; None for no limit.
        now: the current time in tests; None uses Redis' clock.
    """
    rate, period, burst = ("", "", "") if limits is None else (repr(limits[0]), repr(limits[1]), limits[2])
    at_once = "" if concurrency is None else concurrency
    args = (
        *time_arguments(now),
        rate,
        period,
        burst,
        at_once,
        _SLOT_SECONDS,
        LONGEST_THROTTLING * 1_000,
        *ids,
    )
    keys = (host_gate_key(host), semaphore_key(host_slots_scope(host)))
    admitted, throttled, wait, left = yield ScriptCall(GATE_ENTER, keys, args, Replay.SAFE)
    return admitted, throttled, wait, left


def close_gate(host: str, pause: int, now: Instant | None = None) -> Plan[int]:
    """Throttle a host for `pause` milliseconds, unless it is throttled for longer already.

    Return the milliseconds until requests to it may begin again.
    """
    pause = max(0, min(pause, LONGEST_THROTTLING * 1_000))
    args = (*time_arguments(now), pause, LONGEST_THROTTLING * 1_000)
    throttled: int = yield ScriptCall(GATE_CLOSE, (host_gate_key(host),), args, Replay.SAFE)
    return throttled


def renew_slots(host: str, ids: Sequence[str], now: Instant | None = None) -> Plan[int]:
    """Renew the slots of requests, 1,000 at most; return the number of requests that still hold one."""
    args = (*time_arguments(now), _SLOT_SECONDS, *ids)
    keys = (semaphore_key(host_slots_scope(host)),)
    held: int = yield ScriptCall(GATE_RENEW, keys, args, Replay.SAFE)
    return held


def release_slot(host: str, request_id: str) -> Plan[bool]:
    """Release the slot of a request; return whether the request still held it."""
    return release_token(host_slots_scope(host), request_id)
