# Generated from src/pyasynq/operations/operator/series.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about statistics and marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._base import OperatorBase

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from pyasynq.telemetry import AttemptSeries, Mark


class StatisticsOperator(OperatorBase):
    """Time series of attempts that workers have counted, and marks such as deployments."""

    def attempt_series(
        self,
        queues: Sequence[str] | None = None,
        *,
        since: datetime,
        until: datetime | None = None,
        step: int | None = None,
        types: Collection[str] | None = None,
    ) -> list[AttemptSeries]:
        """Return how attempts ended over time, by queue and type, as `Inspector.attempt_series`."""
        names = self._inspector.queues() if queues is None else queues
        return self._inspector.attempt_series(*names, since=since, until=until, step=step, types=types)

    def marks(self, since: datetime, until: datetime | None = None) -> list[Mark]:
        """Return the marks between two times, oldest first; up to now unless `until` is given."""
        return self._inspector.marks(since, until)

    def add_mark(self, text: str, *, at: datetime | None = None, key: str = "") -> Mark:
        """Add a mark (annotation), such as a deployment, to all charts; the time is now unless given.

        With a `key` (idempotency key), a second call of the user with the same key and text returns the first
        mark.
        """
        return self._inspector.add_mark(text, at=at, by=self.user.name, key=key)

    def remove_mark(self, mark_id: str) -> bool:
        """Remove a mark; return whether there was one."""
        return self._inspector.remove_mark(mark_id)
