"""Lists of entries for workers that only speak Redis: one for each task type and shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.scripts import LIST_PUSH, LIST_READ, LIST_RENEW, LIST_SWEEP, LIST_WITHDRAW
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import shard_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

LIST_SECONDS: Final = 86_400
"""Seconds for which the keys are kept after the last sweep."""
MAX_REPLIES: Final = 50
MAX_REPLY_BYTES: Final = 4_000_000
_MOST_READ: Final = 8_000_000
"""Total bytes of replies after which one call reads no further reply."""


class ListedLease(NamedTuple):
    """The lease of an entry in a worker list.

    Attributes:
        entry_token: token of the entry.
        lease_token: lease token of the entry's attempt, as stored.
        is_listed: whether the entry, or a reply to it, is still in a list.
    """

    entry_token: str
    lease_token: str
    is_listed: bool


class ListSweep(NamedTuple):
    """State of one shard of a worker list.

    Attributes:
        living: number of live workers.
        free: number of entries that they could take; negative if some have died.
        replies: number of replies that have not been read.
        silent: names of workers without a heartbeat.
        leases: leases of all entries.
    """

    living: int
    free: int
    replies: int
    silent: list[str]
    leases: list[ListedLease]


def push_entry(task_type: str, shard: int, token: str, entry: bytes, lease: str) -> Plan[bool]:
    """Append an entry, which begins with its token, if a worker is free for it; return whether one is.

    The call is not resent after a lost reply: a worker may have done the task meanwhile.
    """
    keys = shard_keys(task_type, shard)
    args = (token, entry, lease, keys.alive_prefix, keys.held_prefix, LIST_SECONDS)
    shown = (keys.entries, keys.workers, keys.leases)
    return bool((yield ScriptCall(LIST_PUSH, shown, args, Replay.NEVER)))


def sweep_list(task_type: str, shard: int, dead: Sequence[str] = ()) -> Plan[ListSweep]:
    """Forget dead workers with the entries that they hold; return the state of the shard.

    Args:
        task_type: name of the type.
        shard: number of the shard.
        dead: names of workers to forget, except those that have a heartbeat.
    """
    keys = shard_keys(task_type, shard)
    shown = (keys.entries, keys.workers, keys.leases, keys.replies)
    args: tuple[str | int, ...] = (keys.alive_prefix, keys.held_prefix, LIST_SECONDS, *dead)
    living, free, replies, silent, *found = yield ScriptCall(LIST_SWEEP, shown, args, Replay.SAFE)
    leases = [
        ListedLease(decode_name(token), decode_name(lease), is_listed == 1)
        for token, lease, is_listed in zip(found[::3], found[1::3], found[2::3], strict=True)
    ]
    return ListSweep(living, free, replies, [decode_name(name) for name in silent], leases)


def read_list_replies(task_type: str, shard: int) -> Plan[tuple[list[bytes], int]]:
    """Return the oldest replies, which stay in the list; remove overlong replies, and return their number."""
    args = (MAX_REPLIES, MAX_REPLY_BYTES, _MOST_READ)
    keys = (shard_keys(task_type, shard).replies,)
    removed, *found = yield ScriptCall(LIST_READ, keys, args, Replay.SAFE)
    return found, removed


def find_entry_lease(task_type: str, shard: int, token: str) -> Plan[str | None]:
    """Return the lease token of an entry's attempt; None if the entry has ended."""
    key = shard_keys(task_type, shard).leases
    found: bytes | None = yield CommandCall(("HGET", key, token), key, Replay.SAFE)
    return None if found is None else decode_name(found)


def renew_entry_lease(task_type: str, shard: int, token: str, lease: str) -> Plan[bool]:
    """Replace the lease token of an entry's attempt; return False if the entry has ended."""
    key = shard_keys(task_type, shard).leases
    return bool((yield ScriptCall(LIST_RENEW, (key,), (token, lease), Replay.SAFE)))


def withdraw_entry(task_type: str, shard: int, token: str, reply: bytes = b"") -> Plan[bool]:
    """Remove an entry with its lease and its reply; return True if no worker had taken the entry."""
    keys = shard_keys(task_type, shard)
    shown = (keys.entries, keys.leases, keys.replies)
    return bool((yield ScriptCall(LIST_WITHDRAW, shown, (token, reply), Replay.SAFE)))


def count_list_workers(task_type: str, shard: int) -> Plan[int]:
    """Return the number of live workers of a shard, at most 1,000."""
    keys = shard_keys(task_type, shard)
    names = yield CommandCall(("SRANDMEMBER", keys.workers, 1_000), keys.workers, Replay.SAFE)
    if not names:
        return 0
    heartbeats = [keys.alive_prefix + decode_name(name) for name in names]
    return int((yield CommandCall(("EXISTS", *heartbeats), heartbeats[0], Replay.SAFE)))
