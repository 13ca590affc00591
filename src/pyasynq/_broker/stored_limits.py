"""Limits stored in Redis for a queue; they override the limits that servers declare."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyasynq._broker.scripts import INSPECT_REPLACE_LIMITS, INSPECT_SET_LIMITS
from pyasynq._broker.stored import parse_number
from pyasynq._checks import check_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import InvalidOptionError, QueueLimitsChangedError
from pyasynq.limits import UNCHANGED, UNLIMITED, QueueLimits, Unchanged, check_max_run, check_rate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._redis.plan import Argument
    from pyasynq.options import Duration

LIMIT_FIELDS: Final = ("concurrency", "rate", "period", "burst", "ordered")


def set_limits(
    queue: str,
    max_run: int | Unchanged | None,
    rate: float | Unchanged | None,
    period: Duration | None,
    burst: int | None,
    *,
    ordered: bool | Unchanged | None = UNCHANGED,
    expected: QueueLimits | None = None,
) -> Plan[QueueLimits]:
    """Store limits of a queue, which need not exist yet; None removes a limit.

    Return what is stored afterwards. With `expected`, raise `QueueLimitsChangedError` and change nothing if
    other limits are stored.
    """
    check_name("queue", queue)
    if not isinstance(expected, QueueLimits | None):
        raise InvalidOptionError("expected", expected, "must be the QueueLimits that were read")
    changes: list[Argument] = []
    if max_run is not UNCHANGED:
        number = check_max_run(max_run)
        changes += ("concurrency", "" if number is None else number)
    if rate is not UNCHANGED:
        number_per_period, seconds, most = check_rate(rate, 1.0 if period is None else period, burst)
        if number_per_period is None:
            changes += ("rate", "", "period", "", "burst", "")
        else:
            changes += ("rate", repr(number_per_period), "period", repr(seconds), "burst", most)
    elif burst is not None:
        raise InvalidOptionError("burst", burst, "give the rate with it")
    elif period is not None:
        raise InvalidOptionError("period", period, "give the rate with it")
    if ordered is not UNCHANGED:
        if not isinstance(ordered, bool | None):
            raise InvalidOptionError(
                "ordered", ordered, "must be True, False, or None to leave it to the servers"
            )
        changes += ("ordered", "" if ordered is None else int(ordered))
    if expected is not None:
        return (yield from _replace_limits(queue, expected, changes))
    limits = queue_keys(queue).limits
    return read_limits((yield ScriptCall(INSPECT_SET_LIMITS, (limits,), tuple(changes), Replay.SAFE)))


def _replace_limits(queue: str, expected: QueueLimits, changes: Sequence[Argument]) -> Plan[QueueLimits]:
    """Store changes if the limits are still the expected ones (compare-and-set); return what is stored.

    The script compares the field values that were read once more, so no change between the two calls is lost.
    """
    limits = queue_keys(queue).limits
    stored = yield CommandCall(("HMGET", limits, *LIMIT_FIELDS), limits, Replay.SAFE)
    if read_limits(stored) != expected:
        raise QueueLimitsChangedError(queue)
    args = (*(b"" if one is None else one for one in stored), *changes)
    reply = yield ScriptCall(INSPECT_REPLACE_LIMITS, (limits,), args, Replay.NEVER)
    if reply is None:
        raise QueueLimitsChangedError(queue)
    return read_limits(reply)


def get_limits(queue: str) -> Plan[QueueLimits]:
    """Return the stored limits of a queue."""
    limits = queue_keys(queue).limits
    return read_limits((yield CommandCall(("HMGET", limits, *LIMIT_FIELDS), limits, Replay.SAFE)))


def read_limits(reply: Sequence[bytes | None]) -> QueueLimits:
    """Decode limits from their field values, in the order of `LIMIT_FIELDS`."""
    if reply.count(None) == len(reply):
        return UNLIMITED
    concurrency, rate, period, burst, stored_order = reply
    ordered = None if stored_order is None else stored_order == b"1"
    most = None if concurrency is None else parse_number(concurrency) or None
    speed, seconds, saved = _positive(rate), _positive(period), parse_number(burst)
    if speed is None or seconds is None or not saved:
        return QueueLimits(most, ordered=ordered)
    return QueueLimits(most, speed, seconds, saved, ordered)


def _positive(text: bytes | None) -> float | None:
    try:
        number = float(text or b"")
    except ValueError:
        return None
    return number if math.isfinite(number) and number > 0 else None
