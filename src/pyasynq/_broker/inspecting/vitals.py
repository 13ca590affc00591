"""Input of the attention detectors: signs of stuck tasks, last ticks, servers, and the health of Redis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.arguments import time_arguments
from pyasynq._broker.scripts import INSPECT_POISON, INSPECT_VITALS
from pyasynq._broker.servers import list_record_keys, read_server
from pyasynq._broker.stored import decode_name, parse_number
from pyasynq._error_signature import POISON_PREFIX, is_poison_error
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import SERVERS_KEY, queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.errors import RedisPermissionError, UndecodableMessageError

from .servers import describe_record
from .walk_reader import MAX_READ

if TYPE_CHECKING:
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Place
    from pyasynq.info import ServerInfo

LATE_SECONDS: Final = 60
"""Seconds after which something that is due counts as late: servers need at most about 40 s."""
GROUP_LATE_SECONDS: Final = 900
"""Seconds after its newest member joined from which a group counts as late."""
_TICKS: Final = 500


class QueueVitals(NamedTuple):
    """Signs of stuck tasks in a queue; times are Unix seconds.

    Attributes:
        active: number of active tasks.
        leases: number of leases.
        lapsed: number of leases that lapsed more than a minute ago.
        late_scheduled: number of scheduled tasks that have been due for more than a minute.
        first_scheduled: when the first scheduled task is due; None for none.
        late_retry: number of retry tasks that have been due for more than a minute.
        first_retry: when the first retry task is due; None for none.
        paused_since: when the queue was paused; None if it is not, or if that is unknown.
        seen_groups: number of groups that were looked at.
        late_groups: number of these whose newest member joined more than 15 minutes ago.
        grouped: number of tasks in the late groups.
        late_sets: number of aggregation sets that became stale more than a minute ago.
        wait_objective: seconds that tasks may wait; None if the queue has no objective.
    """

    active: int
    leases: int
    lapsed: int
    late_scheduled: int
    first_scheduled: int | None
    late_retry: int
    first_retry: int | None
    paused_since: int | None
    seen_groups: int
    late_groups: int
    grouped: int
    late_sets: int
    wait_objective: float | None


class RedisHealth(NamedTuple):
    """Health of one primary, from its INFO.

    Attributes:
        policy: its eviction policy; empty if unknown.
        used: bytes of memory in use.
        maximum: bytes of `maxmemory`; 0 for no limit.
        aof: whether the append-only file is on.
        replicas: address of each replica, and the seconds since it acknowledged last; None if it is not
            online.
    """

    policy: str
    used: int
    maximum: int
    aof: bool
    replicas: tuple[tuple[str, int | None], ...]


def read_vitals(queue: str, *, groups: int, now: Instant | None) -> Plan[QueueVitals]:
    """Read the signs of stuck tasks in a queue with one script call, which looks at up to `groups` groups."""
    keys = queue_keys(queue)
    reply = yield ScriptCall(
        INSPECT_VITALS,
        (
            keys.active,
            keys.lease,
            keys.scheduled,
            keys.retry,
            keys.paused,
            keys.groups,
            keys.aggregation_sets,
            keys.objectives,
        ),
        (keys.group_prefix, *time_arguments(now), LATE_SECONDS, GROUP_LATE_SECONDS, groups),
        Replay.SAFE,
    )
    active, leases, lapsed, late_scheduled, first_scheduled, late_retry, first_retry, *others = reply
    paused, seen_groups, late_groups, grouped, late_sets, objective = others
    return QueueVitals(
        active,
        leases,
        lapsed,
        late_scheduled,
        _parse_second(first_scheduled),
        late_retry,
        _parse_second(first_retry),
        _parse_second(paused),
        seen_groups,
        late_groups,
        grouped,
        late_sets,
        _parse_objective(objective),
    )


def _parse_second(data: bytes) -> int | None:
    try:
        second = float(data)
    except ValueError:
        return None
    return math.ceil(second) if math.isfinite(second) and abs(second) < 1e12 else None


def _parse_objective(data: bytes) -> float | None:
    try:
        seconds = float(data)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None


def count_poison(queue: str, *, scan: int, most: int) -> Plan[int]:
    """Count up to `most` poison tasks among the newest `scan` archived tasks of a queue."""
    keys = queue_keys(queue)
    looked_at = count = 0
    while True:
        args = (keys.task_prefix, looked_at, scan - looked_at, most - count, MAX_READ, POISON_PREFIX)
        number, is_cut, *messages = yield ScriptCall(INSPECT_POISON, (keys.archived,), args, Replay.SAFE)
        looked_at += number
        count += sum(map(_is_poison, messages))
        if not is_cut or count >= most:
            return count


def _is_poison(message: bytes) -> bool:
    """Return whether the error of a message is a poison error. Redis only found its text somewhere in it."""
    try:
        return is_poison_error(decode_task_message(message).error_msg)
    except UndecodableMessageError:
        return False


def read_last_ticks(queue: str) -> Plan[dict[str, int]]:
    """Return the last tick (Unix time) of each schedule entry of a queue, for about 500 entries at most."""
    key = queue_keys(queue).ticks
    _, reply = yield CommandCall(("HSCAN", key, "0", "COUNT", _TICKS), key, Replay.SAFE)
    found = {}
    for name, value in zip(reply[::2], reply[1::2], strict=True):
        if not name.endswith((b":since", b":paused")) and (tick := parse_number(value)):
            found[decode_name(name)] = tick
    return found


def find_server_records(now: Instant | None) -> Plan[list[Plan[ServerInfo | None]]]:
    """Return one plan for each live server; the plan returns its description without running tasks."""
    return [_read_record(key) for key in (yield from list_record_keys(SERVERS_KEY, now))]


def _read_record(key: str) -> Plan[ServerInfo | None]:
    record = yield from read_server(key)
    return None if record is None else describe_record(record)


def read_redis_health(place: Place) -> Plan[RedisHealth | None]:
    """Return the health of the Redis server at a routing target; None if the user may not call INFO."""
    try:
        reply = yield CommandCall(("INFO",), place, Replay.SAFE)
    except RedisPermissionError:
        return None
    lines = (line.partition(":") for line in reply.decode("utf-8", "replace").splitlines())
    fields = {name: value for name, separator, value in lines if separator}
    return RedisHealth(
        fields.get("maxmemory_policy", ""),
        _parse_count(fields.get("used_memory", "")),
        _parse_count(fields.get("maxmemory", "")),
        fields.get("aof_enabled", "0") == "1",
        tuple(
            _read_replica(value)
            for name, value in fields.items()
            if name.startswith("slave") and name.removeprefix("slave").isdigit()
        ),
    )


def _parse_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


def _read_replica(text: str) -> tuple[str, int | None]:
    """Return address and lag of a replica in INFO: `ip=10.0.0.2,port=6379,state=online,offset=9,lag=1`."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    lag = parts.get("lag", "")
    is_online = parts.get("state") == "online" and lag.isascii() and lag.isdigit()
    return f"{parts.get('ip', '')}:{parts.get('port', '')}", int(lag[:9]) if is_online else None
