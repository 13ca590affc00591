"""Interleaved run: each contestant once a round, in an order that changes with each round."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, TypeVar

import redis

from bench.results import Row, Table
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.measurements.shape import Entry, Measurement, Scene

T = TypeVar("T")
FAILURES_ALLOWED = 2


def rotated(items: Sequence[T], round_number: int) -> list[T]:
    """Return the items, rotated by one in each round, and reversed in every second round."""
    if not items:
        return []
    at = round_number % len(items)
    moved = [*items[at:], *items[:at]]
    return moved[::-1] if round_number % 2 else moved


def measure(
    measurement: Measurement,
    scene: Scene,
    rounds: int,
    tell: Callable[[str], None],
    failures: list[str],
) -> Table:
    """Carry out all rounds of a measurement. A failure is recorded; a contestant that fails twice is dropped.

    A bug of the harness ends the measurement. It is noted too, and what was measured before is kept.
    """
    table = Table(
        measurement.key, measurement.title, measurement.figures, measurement.compared, measurement.notes
    )
    try:
        _measure_rounds(measurement, scene, rounds, table, tell, failures)
    except Exception as error:  # noqa: BLE001 - it must not take the other measurements with it
        failures.append(f"{measurement.key}: {type(error).__name__}: {error}")
        tell(traceback.format_exc())
    scene.stage.dismiss_producers()
    return table


def _measure_rounds(
    measurement: Measurement,
    scene: Scene,
    rounds: int,
    table: Table,
    tell: Callable[[str], None],
    failures: list[str],
) -> None:
    failed: dict[str, int] = {}
    rounds = min(rounds, measurement.most_rounds or rounds)
    with measurement.open(scene) as entries:
        for entry in entries:
            table.rows[entry.key] = Row(entry.key, entry.title, entry.floor, entry.reference)
        for number in range(rounds):
            for entry in rotated(entries, number):
                if failed.get(entry.key, 0) >= FAILURES_ALLOWED:
                    continue
                begun = time.monotonic()
                error = _measure_once(entry, table.rows[entry.key], number)
                shown = error if error is not None else _shown(table, entry.key, number)
                seconds = time.monotonic() - begun
                tell(f"{measurement.key} {number + 1}/{rounds} {entry.key}: {shown} ({seconds:.1f} s)")
                if error is not None:
                    failed[entry.key] = failed.get(entry.key, 0) + 1
                    failures.append(f"{measurement.key}, round {number + 1}, {entry.key}: {error}")


def _measure_once(entry: Entry, row: Row, number: int) -> str | None:
    try:
        row.rounds[number] = entry.run()
    except (MeasurementError, redis.RedisError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _shown(table: Table, key: str, number: int) -> str:
    found = table.rows[key].rounds[number]
    parts = [
        f"{figure.name} {found[figure.name]:,.{figure.digits}f}"
        for figure in table.figures
        if figure.name in found
    ]
    return ", ".join(parts)
