"""Metrics of all queues, read from Redis at each scrape."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from pyasynq.errors import PermissionDeniedError, PyasynqError, RedisPermissionError
from pyasynq.metrics.families import FAMILIES
from pyasynq.metrics.store import MAX_QUEUES, OTHER
from pyasynq.metrics.text import Samples, render
from pyasynq.operations import Operator, User

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from pyasynq.info import QueueInfo, QueueInfos, SchedulerEntryInfo, ServerInfo
    from pyasynq.operations import Attention

    Values = dict[str, dict[tuple[str, ...], float]]

SHARE: Final = 50
"""Cache lifetime of a reading as a multiple of its duration: readings take at most 2 % of Redis' time."""
METRICS_USER: Final = User.with_role("metrics", "admin", login="metrics")
_STATES: Final = ("active", "pending", "scheduled", "retry", "archived", "completed")
_ALL_STATES: Final = (*_STATES, "aggregating")
_LATE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Reading:
    """State of all queues and servers, read from Redis at one time.

    Attributes:
        infos: all queues.
        servers: all live servers.
        entries: all periodic tasks of running schedulers.
        redis: fields of INFO; fields of CLUSTER INFO for a cluster.
        attention: attention findings and wait objectives of queues; None unless requested.
        seconds: duration of the reading, in seconds.
        at: monotonic time at which reading ended.
    """

    infos: QueueInfos
    servers: Sequence[ServerInfo]
    entries: Sequence[SchedulerEntryInfo]
    redis: Mapping[str, str]
    attention: Attention | None
    seconds: float
    at: float


class QueueMetrics:
    """Reader of the metrics of all queues, which are cached to limit the share of Redis' time.

        async with QueueMetrics("redis://localhost:6379/0") as metrics:
            content_type, body = await metrics.render()

    An object belongs to one event loop. Concurrent calls share one reading.

    Args:
        target: URL of Redis, as for `Client`; or an operator, which then chooses the queues and stays open.
        queues: patterns of the queues that are shown.
        max_queues: number of queues with a label value of their own; all others are summed under `_other`.
        memory: whether to estimate the memory of queues; each reading does so for 10 to 50 queues.
        attention: whether to add attention findings, for which all queues are read once more.
        share: lifetime of a cached reading, as a multiple of the duration of the reading.
        timeout: seconds that one call to Redis may take.
    """

    def __init__(
        self,
        target: str | Operator,
        *,
        queues: str | Sequence[str] = "*",
        max_queues: int = MAX_QUEUES,
        memory: bool = True,
        attention: bool = False,
        share: float = SHARE,
        timeout: float = 5.0,
    ) -> None:
        self._owns_operator = not isinstance(target, Operator)
        self._operator = (
            target
            if isinstance(target, Operator)
            else Operator(target, METRICS_USER, queues=queues, read_only=True, timeout=timeout)
        )
        self._max_queues = max_queues
        self._memory = memory
        self._attention = attention
        self._share = share
        self._reading: Reading | None = None
        self._under_way: asyncio.Task[Reading] | None = None
        self.error: PyasynqError | None = None
        """Error of the last reading; None if it succeeded."""

    async def read(self) -> Reading:
        """Return a cached or new reading. Cancelling one caller does not cancel the reading for others.

        Raises:
            RedisError: Redis cannot be read.
        """
        last = self._reading
        if last is not None and time.monotonic() - last.at < self._share * last.seconds:
            return last
        if self._under_way is None or self._under_way.done():
            self._under_way = asyncio.create_task(self._read(), name="pyasynq reading of queues")
        return await asyncio.shield(self._under_way)

    async def _read(self) -> Reading:
        began = time.monotonic()
        operator = self._operator
        infos = await operator.queue_infos(memory=self._memory)
        servers = await operator.servers(running=False)
        entries = await operator.schedules()
        redis = await self._read_info()
        attention = await operator.attention() if self._attention else None
        now = time.monotonic()
        self._reading = Reading(infos, servers, entries, redis, attention, now - began, now)
        return self._reading

    async def _read_info(self) -> Mapping[str, str]:
        try:
            return await self._operator.redis_info()
        except (RedisPermissionError, PermissionDeniedError):
            # The metrics of queues do not need INFO, which requires a right of the Redis user, and access to
            # all queues.
            return {}

    async def samples(self) -> list[Samples]:
        """Return the values of all queues; only `pyasynq_redis_up` if Redis cannot be read."""
        try:
            reading = await self.read()
        except PyasynqError as error:
            self.error = error
            return [Samples(FAMILIES["pyasynq_redis_up"], {(): 0})]
        self.error = None
        return make_samples(reading, self._max_queues)

    async def render(self, accept: str = "") -> tuple[str, bytes]:
        """Return content type and body for a header `Accept`."""
        return render(await self.samples(), accept)

    async def close(self) -> None:
        """Close the connections."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.wait({self._under_way})
        if self._owns_operator:
            await self._operator.close()

    async def __aenter__(self) -> Self:
        """Return the metrics; the first reading connects."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()


def make_samples(reading: Reading, max_queues: int = MAX_QUEUES) -> list[Samples]:
    """Return the values of a reading, in the order of the table."""
    values: Values = {}
    serving = _count_servers(reading.servers)
    for position, info in enumerate(reading.infos):
        name = info.queue if position < max_queues else OTHER
        _add_queue(values, name, info, serving.get(info.queue, (0, 0)))
    _set(values, "pyasynq_redis_up", 1)
    _set(values, "pyasynq_sweep_seconds", reading.seconds)
    _set(values, "pyasynq_sweep_age_seconds", time.monotonic() - reading.at)
    _set(values, "pyasynq_unreadable_queues", len(reading.infos.unreadable))
    _set(values, "pyasynq_schedules", len(reading.entries))
    _set(values, "pyasynq_schedules_overdue", _count_overdue(reading.entries))
    if reading.attention is not None:
        _add_attention(values, reading.attention, {info.queue for info in reading.infos[:max_queues]})
    values["pyasynq_servers"] = {("asynq",): 0, ("pyasynq",): 0}
    for server in reading.servers:
        _add(values, "pyasynq_servers", (server.engine or "asynq",), 1)
    _add_redis(values, reading.redis)
    return [Samples(family, values[name]) for name, family in FAMILIES.items() if name in values]


def _set(values: Values, name: str, value: float) -> None:
    values[name] = {(): value}


def _add(values: Values, name: str, labels: tuple[str, ...], value: float) -> None:
    of_name = values.setdefault(name, {})
    of_name[labels] = of_name.get(labels, 0) + value


def _count_servers(servers: Iterable[ServerInfo]) -> dict[str, tuple[int, int]]:
    """Return by queue the number of active servers (not quieted), and the number of their slots."""
    found: dict[str, tuple[int, int]] = {}
    for server in servers:
        if server.status != "active":
            continue
        for queue in server.queues:
            consumers, slots = found.get(queue, (0, 0))
            found[queue] = (consumers + 1, slots + server.concurrency)
    return found


def _add_queue(values: Values, name: str, info: QueueInfo, serving: tuple[int, int]) -> None:
    key = (name,)
    for state in _STATES:
        _add(values, "asynq_tasks_enqueued_total", (name, state), getattr(info, state))
    _add(values, "asynq_queue_size", key, info.size)
    # The latency of queues under one name is the longest one.
    latency = max(
        info.latency.total_seconds(), values.setdefault("asynq_queue_latency_seconds", {}).get(key, 0)
    )
    values["asynq_queue_latency_seconds"][key] = latency
    if info.memory_usage is not None:
        _add(values, "asynq_queue_memory_usage_approx_bytes", key, info.memory_usage)
    _add(values, "asynq_tasks_processed_total", key, info.processed_total)
    _add(values, "asynq_tasks_failed_total", key, info.failed_total)
    _add(values, "asynq_queue_paused_total", key, int(info.paused))
    for state in _ALL_STATES:
        _add(values, "pyasynq_queue_tasks", (name, state), getattr(info, state))
    _add(values, "pyasynq_queue_due_tasks", key, info.due)
    _add(values, "pyasynq_queue_groups", key, info.groups)
    consumers, slots = serving
    _add(values, "pyasynq_queue_consumers", key, consumers)
    _add(values, "pyasynq_queue_slots", key, slots)
    load = (info.active + info.pending + info.due) / (slots or 1)
    _add(values, "pyasynq_queue_load", key, load)
    if info.limits.max_run is not None:
        _add(values, "pyasynq_queue_max_run", key, info.limits.max_run)


def _add_attention(values: Values, attention: Attention, named: Container[str]) -> None:
    """Add findings, and the wait objectives of queues that have their own label."""
    found = values.setdefault("pyasynq_attention", {})
    for finding in attention.findings:
        key = (finding.detector, finding.queue)
        found[key] = max(found.get(key, 0), finding.severity)
    for queue, seconds in attention.wait_objectives.items():
        if queue in named:
            _add(values, "pyasynq_queue_wait_objective_seconds", (queue,), seconds)


def _count_overdue(entries: Iterable[SchedulerEntryInfo]) -> int:
    late = datetime.now(UTC) - _LATE
    return sum(
        entry.paused_since is None and entry.next_enqueue_at is not None and entry.next_enqueue_at < late
        for entry in entries
    )


def _add_redis(values: Values, redis: Mapping[str, str]) -> None:
    """Add the memory figures of a single server; for cluster nodes, use a Redis exporter."""
    for name, field in (
        ("pyasynq_redis_memory_used_bytes", "used_memory"),
        ("pyasynq_redis_memory_max_bytes", "maxmemory"),
        ("pyasynq_redis_evicted_keys_total", "evicted_keys"),
    ):
        if redis.get(field, "").isdigit():
            _set(values, name, int(redis[field]))
    policy = redis.get("maxmemory_policy")
    if policy is not None:
        _set(values, "pyasynq_redis_may_evict", int(policy != "noeviction" and redis.get("maxmemory") != "0"))
