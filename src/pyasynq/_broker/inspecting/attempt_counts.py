"""Time series of ended attempts by task type, read from the counts that workers keep for each queue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyasynq._broker.stored import decode_name, field_pairs
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.attempt_counts import (
    BUCKETS,
    COUNTERS,
    LEVELS,
    RUN_BUCKETS,
    RUN_MILLISECONDS,
    VECTOR_SIZE,
    WAIT_BUCKETS,
    WAIT_MILLISECONDS,
    Level,
    unpack_records,
)
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import InvalidOptionError
from pyasynq.telemetry import AttemptCounts, AttemptSeries, Histogram, SeriesPoint

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from typing import TypeAlias

    from pyasynq._redis.plan import Argument, Call

    Records: TypeAlias = dict[str, list[tuple[int, list[int]]]]
    """Counts by task type: pairs of the Unix second at which a time slot begins, and its vector of counts."""

_STEPS: Final = {level.slot: level for level in LEVELS}


def choose_level(since: int, now: int, step: int | None) -> Level:
    """Return the level (resolution) with this step in seconds, or the finest that reaches back to `since`.

    Raises:
        InvalidOptionError: for a step that is not kept.
    """
    if step is not None:
        if step not in _STEPS:
            raise InvalidOptionError("step", step, f"must be one of {', '.join(map(str, _STEPS))} seconds")
        return _STEPS[step]
    return next((level for level in LEVELS if now - since <= level.keep), LEVELS[-1])


def read_records(queue: str, level: Level, start: int, types: Collection[str] | None = None) -> Plan[Records]:
    """Return the counts in one chunk of a level (resolution).

    `start` is the Unix second at which the chunk begins. `types` None reads all task types.
    """
    key = queue_keys(queue).attempt_counts(level.name, start)
    if types is None:
        reply = yield _command("HGETALL", key)
        fields = field_pairs(reply)
    else:
        values = yield _command("HMGET", key, *types)
        fields = zip((one.encode("utf-8", "replace") for one in types), values, strict=True)
    records: Records = {}
    for name, value in fields:
        slots = [(start + slot * level.slot, vector) for slot, vector in unpack_records(value or b"", level)]
        if slots:
            records[decode_name(name)] = slots
    return records


def _command(name: str, key: str, *arguments: Argument) -> Call:
    return CommandCall((name, key, *arguments), key, Replay.SAFE)


def make_series(
    queue: str, level: Level, chunks: Iterable[Records], *, since: int, until: int
) -> list[AttemptSeries]:
    """Return the time series of a queue, one for each task type, from the chunks of a level, oldest first."""
    points: dict[str, list[SeriesPoint]] = {}
    for records in chunks:
        for task_type, slots in records.items():
            points.setdefault(task_type, []).extend(
                SeriesPoint(datetime.fromtimestamp(second, UTC), make_counts(vector))
                for second, vector in slots
                if since - level.slot < second < until
            )
    return [AttemptSeries(queue, name, level.slot, points[name]) for name in sorted(points) if points[name]]


def make_counts(vector: Sequence[int]) -> AttemptCounts:
    """Decode a vector of counts; if it has no histogram buckets, the histograms of the result are empty."""
    numbers = [*vector, *[0] * (VECTOR_SIZE - len(vector))]
    run = tuple(numbers[RUN_BUCKETS : RUN_BUCKETS + BUCKETS])
    wait = tuple(numbers[WAIT_BUCKETS : WAIT_BUCKETS + BUCKETS])
    return AttemptCounts(
        **dict(zip(COUNTERS, numbers, strict=False)),
        run=Histogram(run, numbers[RUN_MILLISECONDS] / 1_000),
        wait=Histogram(wait, numbers[WAIT_MILLISECONDS] / 1_000),
    )
