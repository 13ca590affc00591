"""Fake clock that a test sets."""

from __future__ import annotations

from pyasynq._clock import Instant


class FakeClock:
    """Clock that stands still until a test moves it; Redis has the same time unless set apart."""

    def __init__(self, start: int = 1_700_000_000) -> None:
        self.seconds = float(start)
        self.monotonic_seconds = 1_000.0
        self.redis: Instant | None = None

    def now(self) -> Instant:
        return Instant.from_timestamp(self.seconds)

    def redis_now(self) -> Instant | None:
        return self.redis

    def monotonic(self) -> float:
        return self.monotonic_seconds

    def move(self, seconds: float) -> None:
        """Advance the clock by this much time."""
        self.seconds += seconds
        self.monotonic_seconds += seconds
