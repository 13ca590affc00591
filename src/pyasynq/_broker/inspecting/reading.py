"""Plans for inspectors that read from a replica: read-only guard, and measurement of the lag."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pyasynq import info
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._redis.replica_search import ROLE, read_fields
from pyasynq.errors import ReadFromReplicaError, RedisPermissionError

if TYPE_CHECKING:
    from typing import TypeVar

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Call, Place, Reply
    from pyasynq.info import ReplicaState

    _T = TypeVar("_T")

_READING: Final = frozenset(
    "CLIENT CLUSTER DBSIZE EXISTS GET HEXISTS HGET HGETALL HLEN HMGET HSCAN HVALS INFO LINDEX LLEN LRANGE "  # noqa: SIM905 - shorter
    "MGET PING PTTL SCAN SCARD SISMEMBER SLOWLOG SMEMBERS SMISMEMBER SSCAN STRLEN TIME TTL TYPE XLEN XRANGE "
    "XREVRANGE ZCARD ZCOUNT ZMSCORE ZRANGE ZRANGEBYSCORE ZREVRANGE ZREVRANK ZSCAN ZSCORE".split()
)


def only_reads(call: Call) -> bool:
    """Return whether a call changes nothing."""
    if isinstance(call, ScriptCall):
        return call.script.only_reads
    return isinstance(call, CommandCall) and call.command[0] in _READING


def guard_reads(plan: Plan[_T]) -> Plan[_T]:
    """Perform a plan and return its result; end it before its first call that may change something.

    Raises:
        ReadFromReplicaError: instead of that call.
    """
    reply: Reply = None
    failure: Exception | None = None
    while True:
        try:
            call = plan.send(reply) if failure is None else plan.throw(failure)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        if not only_reads(call):
            plan.close()
            raise ReadFromReplicaError
        failure = None
        try:
            reply = yield call
        except Exception as error:  # noqa: BLE001 - thrown on into the plan
            failure = error


def find_missing_info() -> Plan[tuple[str, ...]]:
    """Return `+info`, as ACL rules name the right to INFO, if the user lacks it; else an empty tuple."""
    try:
        yield CommandCall(ROLE, None, Replay.SAFE)
    except RedisPermissionError:
        return ("+info",)
    return ()


def replica_state(place: Place, *, now: Instant) -> Plan[ReplicaState | None]:
    """Return the replication lag of the replica at a routing target.

    None for a primary, and if the user may not call INFO.
    """
    try:
        reply = yield CommandCall(ROLE, place, Replay.SAFE)
    except RedisPermissionError:
        return None
    fields = read_fields(reply)
    if fields.get("role") != "slave":
        return None
    is_connected = fields.get("master_link_status") == "up"
    silence = fields.get(
        "master_last_io_seconds_ago" if is_connected else "master_link_down_since_seconds", ""
    )
    behind = timedelta(seconds=int(silence)) if silence.isdigit() else None
    return info.ReplicaState(
        primary=f"{fields.get('master_host', '')}:{fields.get('master_port', '')}",
        is_connected=is_connected,
        behind=behind,
        as_of=None if behind is None else now.to_datetime() - behind,
    )
