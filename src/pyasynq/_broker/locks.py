"""Uniqueness locks of tasks while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyasynq._broker.arguments import chunks
from pyasynq._broker.scripts import LEASE_RENEW_LOCKS
from pyasynq._broker.stored import display_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.constants import LEASE_SECONDS
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Sequence


class HeldLock(NamedTuple):
    """A lock that a task's message names; only Redis knows whether the task owns it."""

    task_id: str
    unique_key: str


def find_holder(unique_key: str) -> Plan[str]:
    """Return the id of the task that holds a lock; empty if there is none."""
    holder = yield CommandCall(("GET", unique_key), unique_key, Replay.SAFE)
    return display_name(holder or b"")


def renew_locks(queue: str, locks: Sequence[HeldLock], *, lease_seconds: int = LEASE_SECONDS) -> Plan[int]:
    """Prolong uniqueness locks by their requested seconds; return the number of tasks that have a lease.

    The locks hold for at least two lease durations: if a worker dies, the lock of its task still exists when
    the task is recovered. A lock that its task does not own is left alone.
    """
    keys = queue_keys(queue)
    running = 0
    for chunk in chunks(locks, width=2):
        tail = [argument for lock in chunk for argument in lock]
        running += yield ScriptCall(
            LEASE_RENEW_LOCKS, (keys.lease,), (keys.task_prefix, 2 * lease_seconds, *tail), Replay.SAFE
        )
    return running
