"""The command `pyasynq stats`."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._face_records.fields import Field, Kind, View
from pyasynq._face_records.queues import LISTED_QUEUES, describe_listed_queue, error_rate
from pyasynq._human_text import counted, duration
from pyasynq._visible_text import visible
from pyasynq.cli.nouns import OperatorCommand
from pyasynq.cli.operator_command import operator_command
from pyasynq.cli.output.printer import format_pairs
from pyasynq.cli.queue import read_queues_and_limits, tell_unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq._face_records.fields import Record
    from pyasynq.cli.operator_command import Session
    from pyasynq.info import QueueInfo, QueueInfos
    from pyasynq.operations import Operator

_STATES: Final = ("active", "pending", "aggregating", "scheduled", "retry", "archived", "completed")
_QUEUES_AT_ONCE: Final = 100


TOTALS_HISTORY: Final = View(
    "totals-history",
    "day",
    (
        Field("day", Kind.TEXT, "Day in UTC, `YYYY-MM-DD`.", "DAY (UTC)"),
        Field("processed", Kind.COUNT, "Attempts that ended in all queues, failed ones too.", "PROCESSED"),
        Field(
            "failed",
            Kind.COUNT,
            "Attempts that failed.",
            "FAILED",
            color=lambda failed: "red" if failed else None,
        ),
        Field("error_rate", Kind.SHARE, "Failed attempts of those that ended.", "ERRORS", is_optional=True),
    ),
    "Nothing was processed.",
)


@click.command(
    cls=OperatorCommand,
    examples=(
        "pyasynq stats",
        "pyasynq stats --watch",
        "pyasynq stats --history --days 30",
        "pyasynq stats --json --format asynq",
    ),
)
@click.option(
    "--format",
    "shape",
    type=click.Choice(["pyasynq", "asynq"]),
    default="pyasynq",
    help="With asynq: the JSON of Asynq's command.",
)
@click.option("--history", is_flag=True, help="Show what all queues processed on each of the last days.")
@click.option(
    "-x", "--days", type=click.IntRange(1, 90), default=10, show_default=True, help="With --history: days."
)
@operator_command
async def stats(session: Session, shape: str, days: int, *, history: bool) -> int | None:
    """Show all queues, the tasks processed today, and the state of Redis."""
    operator, printer = session.operator, session.printer
    if history:
        await session.show(TOTALS_HISTORY, lambda: add_up_days(operator, days))
        return None
    if shape == "asynq":
        infos = await operator.queue_infos(memory=True)
        redis = {name: visible(value) for name, value in (await operator.redis_info()).items()}
        printer.value(asynq_shape(infos, redis, datetime.now(UTC)))
        return tell_unreadable(infos)
    infos, declared = await read_queues_and_limits(operator)
    if printer.is_for_people and session.watch is None:
        click.echo(describe_totals(infos, await operator.redis_info(), operator.address))
    is_first = True

    async def gather() -> list[Record]:
        nonlocal infos, declared, is_first
        if not is_first:
            infos, declared = await read_queues_and_limits(operator)
        is_first = False
        return [describe_listed_queue(info, declared) for info in infos]

    await session.show(LISTED_QUEUES, gather)
    return tell_unreadable(infos)


async def add_up_days(operator: Operator, days: int) -> list[Record]:
    """Sum the daily statistics of all queues; return a record for each day, the newest first."""
    processed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    names = await operator.queues()
    for first in range(0, len(names), _QUEUES_AT_ONCE):
        some = names[first : first + _QUEUES_AT_ONCE]
        for found in await asyncio.gather(*(operator.history(name, days) for name in some)):
            for one in found:
                processed[one.day.isoformat()] += one.processed
                failed[one.day.isoformat()] += one.failed
    return [
        {
            "day": day,
            "processed": processed[day],
            "failed": failed[day],
            "error_rate": error_rate(processed[day], failed[day]),
        }
        for day in sorted(processed, reverse=True)
    ]


def describe_totals(infos: QueueInfos, redis: Mapping[str, str], address: str) -> str:
    """Format totals over all queues, and the state of Redis, as lines of text."""
    totals = [(state, sum(getattr(info, state) for info in infos)) for state in _STATES]
    processed, failed = sum(info.processed for info in infos), sum(info.failed for info in infos)
    rate = error_rate(processed, failed)
    today = f"{processed:,} processed" + (f", {failed:,} failed ({rate:.2%})" if rate is not None else "")
    waits = [info.latency.total_seconds() for info in infos if info.pending]
    pairs = [
        ("Redis", f"{visible(address)}: {describe_redis(redis)}"),
        ("Queues", f"{len(infos):,}, {sum(info.paused for info in infos):,} paused"),
        ("Tasks", ", ".join(f"{number:,} {state}" for state, number in totals if number) or "none"),
        ("Today (UTC)", today),
    ]
    if waits:
        pairs.append(("Oldest wait", duration(max(waits))))
    return format_pairs(pairs)


def describe_redis(redis: Mapping[str, str]) -> str:
    """Return a description of a server (version, uptime, memory) or of a cluster (state, size)."""
    if "cluster_state" in redis:
        size, known = redis.get("cluster_size", "?"), redis.get("cluster_known_nodes", "?")
        return visible(f"cluster {redis['cluster_state']}, {size} primaries, {known} nodes")
    version = redis.get("valkey_version") or redis.get("redis_version", "?")
    name = "Valkey" if "valkey_version" in redis else "Redis"
    return visible(
        f"{name} {version}, up {_uptime(redis)}, "
        f"{_count(redis, 'connected_clients', 'connection')}, "
        f"{redis.get('used_memory_human', '?')} of memory (peak {redis.get('used_memory_peak_human', '?')})"
    )


def _uptime(redis: Mapping[str, str]) -> str:
    """Return the uptime of a server: in days, or on its first day in hours and minutes."""
    if redis.get("uptime_in_days") == "0" and redis.get("uptime_in_seconds", "").isdecimal():
        return duration(int(redis["uptime_in_seconds"]))
    return _count(redis, "uptime_in_days", "day")


def asynq_shape(infos: QueueInfos, redis: Mapping[str, str], now: datetime) -> dict[str, Any]:
    """Return the JSON object of `asynq stats --json`, with its field names; latencies in nanoseconds."""
    aggregate: dict[str, Any] = {state: sum(getattr(info, state) for info in infos) for state in _STATES}
    aggregate["processed"] = sum(info.processed for info in infos)
    aggregate["failed"] = sum(info.failed for info in infos)
    aggregate["timestamp"] = now.isoformat()
    return {"aggregate": aggregate, "queues": [_asynq_queue(info) for info in infos], "redis": dict(redis)}


def _asynq_queue(info: QueueInfo) -> dict[str, Any]:
    return {
        "Queue": info.queue,
        "MemoryUsage": info.memory_usage or 0,
        "Paused": info.paused,
        "Size": info.size,
        "Groups": info.groups,
        "Pending": info.pending,
        "Active": info.active,
        "Scheduled": info.scheduled,
        "Retry": info.retry,
        "Archived": info.archived,
        "Completed": info.completed,
        "Aggregating": info.aggregating,
        "Processed": info.processed,
        "Failed": info.failed,
        "ProcessedTotal": info.processed_total,
        "FailedTotal": info.failed_total,
        "Latency": round(info.latency.total_seconds() * 1e9),
        "Timestamp": info.timestamp.isoformat(),
    }


def _count(redis: Mapping[str, str], name: str, unit: str) -> str:
    """Return a count from Redis' INFO with its unit; `?` if INFO lacks it."""
    told = redis.get(name, "")
    return counted(int(told), unit) if told.isdecimal() else f"? {unit}s"
