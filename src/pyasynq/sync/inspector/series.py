# Generated from src/pyasynq/inspector/series.py by tools/unasync.py; change that file and run `make sync`.
"""The inspector's methods about statistics and marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker import inspecting
from pyasynq._checks import check_name, parse_instant

from ._base import InspectorBase

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from pyasynq.telemetry import AttemptSeries, Mark


class StatisticsInspector(InspectorBase):
    """Reads the workers' statistics, and adds and removes marks."""

    def attempt_series(
        self,
        *queues: str,
        since: datetime,
        until: datetime | None = None,
        step: int | None = None,
        types: Collection[str] | None = None,
    ) -> list[AttemptSeries]:
        """Return how attempts ended over time: a time series for each queue and task type, in that order.

        Only pyasynq servers with `statistics` count attempts; they write the counts every 5 seconds. An
        attempt belongs to the step in which it was written. The counts are read by plain commands, 200 in one
        pipeline.

        Args:
            queues: names of queues; a missing queue has no series.
            since: aware; minutes are kept for 2 hours, ten minutes for 72 hours, days for 90 days.
            until: aware; now unless given.
            step: 60, 600 or 86,400 seconds; the finest that goes back as far as `since` unless given.
            types: task types; all unless given.

        Raises:
            InvalidOptionError: for a time without a zone, or another step.
        """
        now = self._now().seconds
        first = parse_instant("since", since).seconds
        # Keys of future times are not read.
        last = now + 1 if until is None else min(now + 1, parse_instant("until", until).ceiling)
        counts = inspecting.attempt_counts
        level = counts.choose_level(first, now, step)
        # Expired keys are not read.
        starts = level.starts(max(first, now - level.keep - level.chunk), last)
        names = [check_name("queues", queue) for queue in dict.fromkeys(queues)]
        if types is not None and not types:
            return []
        plans = [counts.read_records(name, level, start, types) for name in names for start in starts]
        found = self._run_in_parts(plans)
        series = []
        for number, name in enumerate(names):
            chunks = found[number * len(starts) : (number + 1) * len(starts)]
            series += counts.make_series(name, level, chunks, since=first, until=last)
        return series

    def marks(self, since: datetime, until: datetime | None = None) -> list[Mark]:
        """Return the marks between two times, oldest first; up to now unless `until` is given.

        Raises:
            InvalidOptionError: for a time without a zone.
        """
        last = self._now() if until is None else parse_instant("until", until)
        first = parse_instant("since", since).seconds
        return self._run(inspecting.marks.list_marks(first, last.ceiling))

    def add_mark(self, text: str, *, at: datetime | None = None, by: str = "", key: str = "") -> Mark:
        """Add a mark (annotation), such as a deployment, to all charts.

        The newest 1,000 marks are kept, for 90 days after the last one.

        Args:
            text: what happened.
            at: when, aware; now unless given.
            by: who sets the mark.
            key: idempotency key: the first call with this key, text and author adds a mark, and later calls
                return it.

        Raises:
            InvalidOptionError: for a blank text, one longer than 200 characters, or a time without a zone.
        """
        self._require_primary()
        moment = self._now() if at is None else parse_instant("at", at)
        return self._run(inspecting.marks.add_mark(text, at=moment, by=by, key=key))

    def remove_mark(self, mark_id: str) -> bool:
        """Remove the mark with this id; return whether it existed."""
        self._require_primary()
        return self._run(inspecting.marks.remove_mark(mark_id))
