"""Facts about the Redis or Valkey server (version, eviction policy, clock), and the warnings they cause."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._clock import Instant
from pyasynq._redis.plan import CommandCall, Place, Plan, Replay
from pyasynq.errors import RedisPermissionError, RedisReplyError, RedisVersionError
from pyasynq.events import RedisWarning

if TYPE_CHECKING:
    from pyasynq._clock import Clock
    from pyasynq.events import Events

_OLDEST: Final = (6, 2)
_VERSION_UNTOLD: Final = "7.0"


class RedisFacts(NamedTuple):
    """Name, version, eviction policy, uptime and clock of a Redis server, from INFO and TIME.

    Attributes:
        name: `"redis"` or `"valkey"`.
        version: version of the server, such as `(7, 0, 15)`; Valkey's own version, not that of the Redis
            it is compatible with.
        maxmemory_policy: eviction policy of the server; empty if unknown.
        uptime_seconds: seconds since its last start; 0 if unknown.
        redis_now: time of the server's clock.
    """

    name: str
    version: tuple[int, ...]
    maxmemory_policy: str
    uptime_seconds: int
    redis_now: Instant


def read_redis_facts(at: Place = None) -> Plan[RedisFacts]:
    """Read the facts of a server with INFO and TIME, which managed services allow.

    INFO is in Redis' ACL category @dangerous: strict ACLs may forbid it, and some proxies do not know it. The
    server is then treated as a Redis 7 of unknown policy; the driver has warned about that.
    """
    try:
        info = _parse_info((yield CommandCall(("INFO",), at, Replay.SAFE)))
    except (RedisPermissionError, RedisReplyError):  # not allowed, or not known
        info = {"redis_version": _VERSION_UNTOLD}
    seconds, microseconds = yield CommandCall(("TIME",), at, Replay.SAFE)
    valkey = info.get("valkey_version")
    return RedisFacts(
        name="valkey" if valkey else "redis",
        version=_version(valkey or info.get("redis_version", "")),
        maxmemory_policy=info.get("maxmemory_policy", ""),
        uptime_seconds=_whole_number(info.get("uptime_in_seconds", "")),
        redis_now=Instant(int(seconds), int(microseconds)),
    )


def require_supported(facts: RedisFacts) -> None:
    """Raise `RedisVersionError` for a server that is older than Redis 6.2."""
    if facts.version < _OLDEST:
        raise RedisVersionError(".".join(map(str, facts.version)) or "of an unknown version")


def check_eviction(facts: RedisFacts, events: Events) -> bool:
    """Warn if Redis evicts keys; return whether it does."""
    policy = facts.maxmemory_policy
    if not policy or policy == "noeviction":
        return False
    events.emit(
        RedisWarning(
            "eviction",
            f"Redis evicts keys, tasks included, when it is full (maxmemory-policy is {policy}): "
            "set maxmemory-policy to noeviction",
        ),
    )
    return True


def check_clock(facts: RedisFacts, clock: Clock, max_skew: float, events: Events) -> None:
    """Warn if this host's clock differs from that of Redis by more than `max_skew` seconds."""
    skew = clock.now().timestamp - facts.redis_now.timestamp
    if abs(skew) > max_skew:
        direction = "ahead of" if skew > 0 else "behind"
        events.emit(
            RedisWarning(
                "clock-skew",
                f"the clock of this host is {abs(skew):.1f} s {direction} that of Redis: tasks "
                "scheduled from here will run at the wrong time; synchronise the clocks",
            ),
        )


def check_health() -> Plan[None]:
    """Send PING: check that Redis answers and accepts our login."""
    yield CommandCall(("PING",), None, Replay.SAFE)


def _parse_info(reply: bytes) -> dict[str, str]:
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines())
    return {name: value for name, colon, value in lines if colon}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _whole_number(text: str) -> int:
    """Parse a number of at most 18 digits; return 0 for any other text, since a proxy may answer anything."""
    return int(text) if re.fullmatch("[0-9]{1,18}", text) else 0
