"""Base of the inspector's classes: its connection to Redis, and the execution of plans."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self, TypeVar

from pyasynq._broker import inspecting
from pyasynq._broker.arguments import chunks
from pyasynq._broker.inspecting.group_counts import GroupCounts
from pyasynq._broker.inspecting.pace import ChunkPace
from pyasynq._broker.inspecting.queue_sweep import MemoryEstimates
from pyasynq._broker.inspecting.reading import guard_reads
from pyasynq._checks import check_whole, parse_positive_seconds, parse_seconds
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.driver import AsyncDriver
from pyasynq._redis.exchange import advance
from pyasynq._redis.plan import ask
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.constants import ARCHIVE_DAYS, ARCHIVE_LIMIT
from pyasynq.errors import InvalidOptionError, ReadFromReplicaError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Literal

    from pyasynq._broker.inspecting.actions import ArchiveLimits
    from pyasynq._broker.inspecting.walks import Starts
    from pyasynq._clock import Clock, Instant
    from pyasynq._redis.clients import RedisSource
    from pyasynq._redis.plan import Plan
    from pyasynq._redis.url import RedisTarget
    from pyasynq.options import Duration

_T = TypeVar("_T")

MOST_PLANS: Final = 200
"""Largest number of plans in one pipeline, so that Redis serves others in between."""


def _choose_target(target: RedisTarget, read_from: str) -> RedisTarget:
    """Return the target to connect to.

    Raises:
        InvalidOptionError: for anything but `"primary"` and `"replica"`, and for the replica of an embedded
            server, which has none.
    """
    if read_from not in {"primary", "replica"}:
        raise InvalidOptionError("read_from", read_from, "must be 'primary' or 'replica'")
    if read_from == "primary":
        return target
    if target.embedded is not None:
        raise InvalidOptionError("read_from", read_from, "an embedded server has no replicas")
    return replace(target, reads_replica=True)


class InspectorBase:
    """The inspector's connection; its methods are in the classes that derive from this one."""

    def __init__(
        self,
        url: RedisSource = "redis://localhost:6379/0",
        *,
        timeout: Duration = 5.0,
        clock: Clock = SYSTEM_CLOCK,
        client_name: str = "pyasynq-inspector",
        archive_max_size: int = ARCHIVE_LIMIT,
        archive_max_age: Duration = ARCHIVE_DAYS * 86_400.0,
        read_from: Literal["primary", "replica"] = "primary",
    ) -> None:
        seconds = parse_positive_seconds("timeout", timeout)
        check_whole("archive_max_size", archive_max_size, 1)
        self._archive_max_size = archive_max_size
        self._archive_max_age = int(parse_seconds("archive_max_age", archive_max_age))
        target = _choose_target(parse_redis_url(url), read_from)
        self._reads_replica = target.reads_replica
        self._clock = clock
        self._group_counts = GroupCounts()
        self._pace = ChunkPace()
        self._starts: tuple[float, Starts] = (-math.inf, {})
        self._memory_estimates = MemoryEstimates()
        self._driver = AsyncDriver(target, client_name=client_name, timeout=seconds, clock=clock)

    async def _run(self, plan: Plan[_T]) -> _T:
        return await self._driver.run(self._guard(plan))

    def _guard(self, plan: Plan[_T]) -> Plan[_T]:
        """Return the plan; on a replica, one that raises `ReadFromReplicaError` at its first write."""
        return guard_reads(plan) if self._reads_replica else plan

    def _require_primary(self) -> None:
        """Raise `ReadFromReplicaError` if this inspector reads from a replica, before anything is sent."""
        if self._reads_replica:
            raise ReadFromReplicaError

    async def _run_in_steps(self, plan: Plan[_T]) -> _T:
        """Run a long plan call by call; if cancelled, it ends after the current call."""
        [result] = await self._run_batch_in_steps([plan])
        if isinstance(result, Exception):
            raise result
        return result

    async def _run_batch_in_steps(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run long plans in lockstep, one call of each at a time; if cancelled, end after these calls."""
        rounds = advance([self._guard(plan) for plan in plans])
        try:
            calls = next(rounds)
            while True:
                calls = rounds.send(await self._driver.run_batch([ask(call) for call in calls]))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def _run_in_parts(self, plans: Sequence[Plan[_T]], most: int = MOST_PLANS) -> list[_T]:
        """Run many plans, up to `most` in one pipeline to each node; raise the first error."""
        results: list[_T] = []
        for part in chunks(plans, most=most):
            for result in await self._driver.run_batch([self._guard(plan) for plan in part]):
                if isinstance(result, Exception):
                    raise result
                results.append(result)
        return results

    def _now(self) -> Instant:
        return self._clock.now()

    def _limits(self) -> ArchiveLimits:
        return inspecting.actions.ArchiveLimits(
            self._archive_max_size, self._now().seconds - self._archive_max_age
        )

    @property
    def address(self) -> str:
        """Where Redis is, without the password."""
        return self._driver.target.address

    async def close(self) -> None:
        """Close the connections; further calls raise `ClientClosedError`. Closing twice is harmless."""
        await self._driver.close()

    async def __aenter__(self) -> Self:
        """Return the inspector; the first call connects."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()

    def __del__(self) -> None:
        """Warn about an inspector that has connections and was never closed."""
        driver = getattr(self, "_driver", None)
        if driver is not None and driver.abandon():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Inspector of Redis at {self._driver.target.address}>"
