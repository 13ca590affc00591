"""Search for an attempt by its token, from any process: its task, or how it ended."""

from __future__ import annotations

from typing import NamedTuple

from pyasynq._broker.arguments import time_arguments
from pyasynq._broker.scripts import LEASE_FIND_ATTEMPT
from pyasynq._broker.stored import whole_second
from pyasynq._broker.verdicts import Verdict, is_leased
from pyasynq._clock import Instant
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.constants import LEASE_GRACE_SECONDS
from pyasynq._wire.keys import queue_keys


class FoundAttempt(NamedTuple):
    """A task whose attempt holds a valid lease.

    Attributes:
        message: the bytes of its message, not decoded.
        crashes: number of workers that have died with it so far.
        lease_score: Unix time at which the lease ends.
        redis_now: Redis' time of the call.
    """

    message: bytes
    crashes: int
    lease_score: int
    redis_now: Instant


def find_attempt(
    queue: str, task_id: str, *, token: str, lease_end: int, now: Instant | None = None
) -> Plan[FoundAttempt | Verdict | None]:
    """Return the task of the attempt with this token, or its verdict; None if Redis has neither.

    `lease_end` is the last lease end that the holder knows, in Unix time. The token alone proves nothing: a
    Go worker that takes the task over leaves our token in its hash. But a Go worker does so only after a
    grace period from `lease_end` on. Before that, a later lease end in Redis belongs to this attempt.
    """
    keys = queue_keys(queue)
    verdicts = tuple(Verdict) if is_leased(token) else ()
    reply = yield ScriptCall(
        LEASE_FIND_ATTEMPT,
        (keys.task(task_id), keys.lease, keys.verdicts),
        (task_id, token, lease_end, LEASE_GRACE_SECONDS, *time_arguments(now), *verdicts),
        Replay.SAFE,
    )
    if not reply:
        return None
    if len(reply) == 1:
        return Verdict(reply[0].decode())
    message, crashes, score, seconds, microseconds = reply
    lease_score = whole_second(score)
    # No worker asks for an infinite lease; treat it as missing.
    if lease_score is None:
        return None
    return FoundAttempt(message, crashes, lease_score, Instant(seconds, microseconds))


def find_verdict(queue: str, task_id: str, token: str, *, now: Instant | None = None) -> Plan[Verdict | None]:
    """Return the outcome of an attempt that no longer owns its task (lost lease); None if it is unknown."""
    found = yield from find_attempt(queue, task_id, token=token, lease_end=0, now=now)
    return found if isinstance(found, Verdict) else None
