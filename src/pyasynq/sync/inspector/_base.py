# Generated from src/pyasynq/inspector/_base.py by tools/unasync.py; change that file and run `make sync`.
"""What all parts of the inspector share: its connection, and how it waits."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Self, TypeVar

from pyasynq._broker.inspecting.actions import ArchiveLimits
from pyasynq._broker.inspecting.group_counts import GroupCounts
from pyasynq._checks import check_whole, positive_seconds_of, seconds_of
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.exchange import advance
from pyasynq._redis.plan import ask
from pyasynq._redis.url import parse_redis_url
from pyasynq._wire.constants import ARCHIVE_DAYS, ARCHIVE_LIMIT

if TYPE_CHECKING:
    from types import TracebackType

    from pyasynq._clock import Clock, Instant
    from pyasynq._redis.clients import RedisSource
    from pyasynq._redis.plan import Plan
    from pyasynq.options import Duration

_T = TypeVar("_T")


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
    ) -> None:
        seconds = positive_seconds_of("timeout", timeout)
        check_whole("archive_max_size", archive_max_size, 1)
        self._archive_max_size = archive_max_size
        self._archive_max_age = int(seconds_of("archive_max_age", archive_max_age))
        target = parse_redis_url(url)
        self._clock = clock
        self._group_counts = GroupCounts()
        self._driver = BlockingDriver(target, client_name=client_name, timeout=seconds, clock=clock)

    def _run(self, plan: Plan[_T]) -> _T:
        return self._driver.run(plan)

    def _run_in_steps(self, plan: Plan[_T]) -> _T:
        """Run a long plan call by call; cancelled, it ends after the call that is under way."""
        rounds = advance([plan])
        try:
            calls = next(rounds)
            while True:
                calls = rounds.send(self._driver.run_batch([ask(call) for call in calls]))
        except StopIteration as stop:
            [result] = stop.value
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[no-any-return]

    def _now(self) -> Instant:
        return self._clock.now()

    def _limits(self) -> ArchiveLimits:
        return ArchiveLimits(self._archive_max_size, self._now().seconds - self._archive_max_age)

    def close(self) -> None:
        """Close the connections; further calls raise `ClientClosedError`. Closing twice is harmless."""
        self._driver.close()

    def __enter__(self) -> Self:
        """Return the inspector; the first call connects."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def __del__(self) -> None:
        """Warn about an inspector that has connections and was never closed."""
        driver = getattr(self, "_driver", None)
        if driver is not None and driver.abandon():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Inspector of Redis at {self._driver.target.address}>"
