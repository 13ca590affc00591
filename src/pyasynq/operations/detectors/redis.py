"""Detector of Redis problems that endanger tasks: eviction, memory, replicas, missing persistence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._human_text import bytes_text, duration
from pyasynq._visible_text import visible
from pyasynq.operations.finding import AttentionFinding, FindingAction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyasynq._broker.inspecting.vitals import RedisHealth
    from pyasynq.operations.snapshot import Snapshot
    from pyasynq.operations.thresholds import Thresholds


def find_redis_dangers(
    snapshot: Snapshot, earlier: Snapshot | None, thresholds: Thresholds
) -> Iterator[AttentionFinding]:
    """Find settings and states of Redis that endanger tasks."""
    del earlier
    for number, health in enumerate(snapshot.redis, start=1):
        place = f"{number}" if len(snapshot.redis) > 1 else ""
        yield from _check_eviction(health, place)
        yield from _check_memory(health, place, thresholds)
        yield from _check_replicas(health, thresholds)
        if snapshot.wants_durability and not health.aof:
            yield _make_finding(
                f"aof{place}",
                4,
                "Task types are declared as durable, and Redis has no append-only file.",
                FindingAction("Turn on the append-only file", command="redis-cli CONFIG SET appendonly yes"),
            )


def _make_finding(subject: str, severity: int, sentence: str, action: FindingAction) -> AttentionFinding:
    return AttentionFinding("redis_danger", "", severity, sentence, action, subject=subject)


def _check_eviction(health: RedisHealth, place: str) -> Iterator[AttentionFinding]:
    if health.policy and health.policy != "noeviction" and health.maximum:
        yield _make_finding(
            f"eviction{place}",
            5,
            f"Redis deletes keys, tasks included, when its {bytes_text(health.maximum)} are full "
            f"(maxmemory-policy is {visible(health.policy)}).",
            FindingAction("Turn eviction off", command="redis-cli CONFIG SET maxmemory-policy noeviction"),
        )


def _check_memory(health: RedisHealth, place: str, thresholds: Thresholds) -> Iterator[AttentionFinding]:
    if health.maximum and health.used > thresholds.memory_share * health.maximum:
        yield _make_finding(
            f"memory{place}",
            4,
            f"Redis uses {bytes_text(health.used)} of {bytes_text(health.maximum)}, "
            f"{health.used / health.maximum:.0%}; when it is full, nothing can be enqueued.",
            FindingAction("Raise maxmemory", command="redis-cli CONFIG SET maxmemory BYTES"),
        )


def _check_replicas(health: RedisHealth, thresholds: Thresholds) -> Iterator[AttentionFinding]:
    for address, lag in health.replicas:
        if lag is not None and lag <= thresholds.replica_lag:
            continue
        state = "is not online" if lag is None else f"last acknowledged {duration(lag)} ago"
        yield _make_finding(
            f"replica {address}",
            3,
            f"The replica {visible(address)} {state}: what it lacks is lost if it is promoted.",
            FindingAction("Bring the replica back", command="redis-cli INFO replication"),
        )
