"""Facts about the Redis servers, as far as the ACL rules of the user allow to ask for them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyasynq._broker.slow_scripts import list_slow_scripts
from pyasynq._broker.stored import display_name
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._redis.replica_search import read_fields
from pyasynq.errors import RedisPermissionError, RedisReplyError
from pyasynq.info import RedisNode, SlowCall

if TYPE_CHECKING:
    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Place

SLOW_MILLISECONDS: Final = 10
"""Milliseconds above which a script in Redis' slow log is reported.

The log only has scripts above `slowlog-log-slower-than`.
"""
_SLOW_SECONDS: Final = 86_400
_MOST_CLIENTS: Final = 2_000
"""Number of connections above which they are not listed: 1,000 take Redis more than a millisecond."""


def describe_node(place: Place, address: str, *, now: Instant) -> Plan[tuple[RedisNode, list[str]]]:
    """Describe a Redis server; return also the rights that the user lacks, as ACL rules name them."""
    missing: list[str] = []
    info: dict[str, str] = {}
    clients: dict[str, int] | None = None
    slow: tuple[SlowCall, ...] | None = None
    try:
        info = read_fields((yield CommandCall(("INFO",), place, Replay.SAFE)))
    except RedisPermissionError:
        missing.append("+info")
    if _number(info.get("connected_clients", "")) <= _MOST_CLIENTS:
        try:
            clients = _count_clients((yield CommandCall(("CLIENT", "LIST"), place, Replay.SAFE)))
        except RedisPermissionError:
            missing.append("+client|list")
        except RedisReplyError:
            # Some managed services do not know the command.
            clients = None
    try:
        slow = yield from _list_slow_calls(place, now)
    except RedisPermissionError:
        missing.append("+slowlog|get")
    except RedisReplyError:
        slow = None
    return RedisNode(address, info, clients, slow), missing


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _count_clients(reply: bytes) -> dict[str, int]:
    names: Counter[str] = Counter()
    for line in reply.splitlines():
        words = dict(word.partition(b"=")[::2] for word in line.split(b" "))
        names[display_name(words.get(b"name", b""))] += 1
    return dict(names.most_common())


def _list_slow_calls(place: Place, now: Instant) -> Plan[tuple[SlowCall, ...]]:
    found = yield from list_slow_scripts(now, milliseconds=SLOW_MILLISECONDS, seconds=_SLOW_SECONDS, at=place)
    return tuple(
        SlowCall(one.name, datetime.fromtimestamp(one.at, UTC), timedelta(milliseconds=one.milliseconds))
        for one in found
    )
