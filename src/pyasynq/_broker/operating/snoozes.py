"""Snoozes of attention findings, and wait objectives of queues (service level objectives, SLO)."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import SNOOZED_KEY, queue_keys

if TYPE_CHECKING:
    from pyasynq._clock import Instant

MAX_SNOOZES: Final = 1_000
"""Largest number of snoozes; beyond it, the snoozes that end first are removed."""
LONGEST_SNOOZE: Final = 30 * 86_400
"""Longest duration of a snooze, in seconds."""
LONGEST_REASON: Final = 200
"""Longest reason of a snooze, in characters."""


class FindingSnooze(NamedTuple):
    """Snooze of one finding.

    Attributes:
        finding: id of the finding.
        until: when it ends.
        reason: why the finding needs no attention until then.
        by: name of the user who snoozed it.
    """

    finding: str
    until: datetime
    reason: str
    by: str


def add_snooze(finding: str, *, until: Instant, reason: str, by: str, now: Instant) -> Plan[FindingSnooze]:
    """Snooze a finding, in place of an earlier snooze of it. The key expires with the last snooze."""
    yield from remove_snooze(finding)
    second = until.ceiling
    facts = {"finding": finding, "until": second, "reason": reason, "by": by}
    data = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    yield CommandCall(("ZADD", SNOOZED_KEY, second, data), SNOOZED_KEY, Replay.SAFE)
    yield CommandCall(("ZREMRANGEBYSCORE", SNOOZED_KEY, "-inf", now.seconds), SNOOZED_KEY, Replay.SAFE)
    yield CommandCall(("ZREMRANGEBYRANK", SNOOZED_KEY, 0, -MAX_SNOOZES - 1), SNOOZED_KEY, Replay.SAFE)
    yield CommandCall(("EXPIRE", SNOOZED_KEY, LONGEST_SNOOZE + 1), SNOOZED_KEY, Replay.SAFE)
    return FindingSnooze(finding, datetime.fromtimestamp(second, UTC), reason, by)


def remove_snooze(finding: str) -> Plan[bool]:
    """End the snooze of a finding; return whether it was snoozed."""
    removed = 0
    for data in (yield CommandCall(("ZRANGE", SNOOZED_KEY, 0, -1), SNOOZED_KEY, Replay.SAFE)):
        snooze = decode_snooze(data)
        if snooze is not None and snooze.finding == finding:
            removed += yield CommandCall(("ZREM", SNOOZED_KEY, data), SNOOZED_KEY, Replay.SAFE)
    return removed > 0


def list_snoozes(now: Instant) -> Plan[list[FindingSnooze]]:
    """Return the snoozes that have not ended."""
    command = ("ZRANGE", SNOOZED_KEY, f"({now.seconds}", "+inf", "BYSCORE", "LIMIT", 0, MAX_SNOOZES)
    found = [decode_snooze(data) for data in (yield CommandCall(command, SNOOZED_KEY, Replay.SAFE))]
    return [snooze for snooze in found if snooze is not None]


def set_wait_objective(queue: str, seconds: float | None) -> Plan[None]:
    """Store the wait objective of a queue: seconds that its next task may be pending; None removes it."""
    key = queue_keys(queue).objectives
    if seconds is None:
        yield CommandCall(("HDEL", key, "wait"), key, Replay.SAFE)
    else:
        yield CommandCall(("HSET", key, "wait", repr(seconds)), key, Replay.SAFE)


def read_wait_objective(queue: str) -> Plan[float | None]:
    """Return the wait objective of a queue in seconds; None for none."""
    key = queue_keys(queue).objectives
    data = yield CommandCall(("HGET", key, "wait"), key, Replay.SAFE)
    try:
        seconds = float(data or b"")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def decode_snooze(data: bytes) -> FindingSnooze | None:
    """Decode a snooze; None if it cannot be parsed."""
    try:
        facts = json.loads(data)
        until = facts["until"]
        if isinstance(until, bool) or not isinstance(until, int):
            return None
        moment = datetime.fromtimestamp(until, UTC)
        return FindingSnooze(
            str(facts["finding"]),
            moment,
            str(facts["reason"])[:LONGEST_REASON],
            str(facts["by"])[:LONGEST_REASON],
        )
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, OSError, RecursionError):
        return None
