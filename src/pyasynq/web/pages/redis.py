"""The page about Redis: version, memory, persistence, replication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.web import formats
from pyasynq.web.page import Page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.web.page import PageRequest


@dataclass(frozen=True, slots=True)
class InfoFact:
    """A fact about Redis, such as its memory, with a warning if the value is dangerous."""

    label: str
    text: str
    warning: str = ""


@dataclass(frozen=True, slots=True)
class RedisView:
    """View model of the page about Redis."""

    summary: str
    groups: tuple[tuple[str, tuple[InfoFact, ...]], ...]
    raw: tuple[tuple[str, str], ...]


async def redis_page(ask: PageRequest) -> Page:
    """Return the page `/redis`."""
    info = await ask.target.recent(ask.user, "redis", ask.operator.redis_info, 5.0)
    ask.target.summary = _summary(info)
    groups = (
        ("Memory", _memory(info)),
        ("Keeping", _persistence(info)),
        ("Work", _work(info)),
        ("Replicas", _replicas(info)),
    )
    raw = tuple((visible(name), visible(value)) for name, value in sorted(info.items()))
    view = RedisView(_summary(info), tuple((name, facts) for name, facts in groups if facts), raw)
    return Page("redis.html", "Redis", "redis", view)


def _summary(info: Mapping[str, str]) -> str:
    name = "Valkey" if "valkey_version" in info else "Redis"
    version = info.get("valkey_version") or info.get("redis_version", "")
    most, used = _read_number(info, "maxmemory"), _read_number(info, "used_memory")
    memory = f", {formats.share(used / most)} of {formats.size(most)}" if most and used is not None else ""
    return f"{name} {visible(version)}{memory}" if version else "a cluster"


def _read_number(info: Mapping[str, str], name: str) -> int | None:
    text = info.get(name, "")
    return int(text) if text.isdecimal() else None


def _memory(info: Mapping[str, str]) -> tuple[InfoFact, ...]:
    if "used_memory" not in info:
        return ()
    most, used = _read_number(info, "maxmemory") or 0, _read_number(info, "used_memory") or 0
    policy = info.get("maxmemory_policy", "")
    full = "more than 80 % is used" if most and used > 0.8 * most else ""
    evicts = "" if policy in {"", "noeviction"} else "Redis may delete tasks when it is full; use noeviction"
    return (
        InfoFact("Used", formats.size(used), full),
        InfoFact("Most", formats.size(most) if most else "no limit"),
        InfoFact("Peak", formats.size(_read_number(info, "used_memory_peak"))),
        InfoFact("Fragmentation", visible(info.get("mem_fragmentation_ratio", formats.NOT_KNOWN))),
        InfoFact("When full", visible(policy or formats.NOT_KNOWN), evicts),
    )


def _persistence(info: Mapping[str, str]) -> tuple[InfoFact, ...]:
    if "aof_enabled" not in info:
        return ()
    is_aof = info.get("aof_enabled") == "1"
    return (
        InfoFact(
            "Append-only file",
            "on" if is_aof else "off",
            "" if is_aof else "a crash loses what came after the last snapshot",
        ),
        InfoFact(
            "Changes since the last snapshot",
            formats.number(_read_number(info, "rdb_changes_since_last_save")),
        ),
        InfoFact("Last snapshot", visible(info.get("rdb_last_bgsave_status", formats.NOT_KNOWN))),
    )


def _work(info: Mapping[str, str]) -> tuple[InfoFact, ...]:
    if "uptime_in_seconds" not in info:
        return ()
    return (
        InfoFact("Up", formats.span(float(_read_number(info, "uptime_in_seconds") or 0))),
        InfoFact("Clients", formats.number(_read_number(info, "connected_clients"))),
        InfoFact("Blocked clients", formats.number(_read_number(info, "blocked_clients"))),
        InfoFact("Commands a second", formats.number(_read_number(info, "instantaneous_ops_per_sec"))),
        InfoFact("Evicted keys", formats.number(_read_number(info, "evicted_keys"))),
    )


_MOST_REPLICAS: Final = 16


def _replicas(info: Mapping[str, str]) -> tuple[InfoFact, ...]:
    count = _read_number(info, "connected_slaves")
    if count is None:
        return ()
    replicas = [
        InfoFact(f"Replica {at}", visible(info[f"slave{at}"]))
        for at in range(min(count, _MOST_REPLICAS))
        if f"slave{at}" in info
    ]
    return (
        InfoFact("Role", visible(info.get("role", ""))),
        InfoFact("Replicas", counted(count, "replica")),
        *replicas,
    )
