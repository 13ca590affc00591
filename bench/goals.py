"""Performance goals of pyasynq for the figures of a run: ratios, and a few absolute ones that users feel."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.contestants import GO, PEERS_IN_PYTHON, Length
from bench.figures import PEAK_MEMORY, RATE, REDIS_CPU, WORKER_CPU
from bench.measurements.idle import CALLS as IDLE_COMMANDS
from bench.measurements.idle import SHARE as IDLE_SHARE
from bench.measurements.pickup import P50, P99
from bench.measurements.slots import SHARE as IDEAL_SHARE
from bench.measurements.wakes import COST, FLEETS, WOKEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.figures import Figure
    from bench.results import Results


@dataclass(frozen=True)
class Goal:
    """One figure with a lower or upper bound; without a bound it is only reported."""

    text: str
    value: Callable[[Results], float | None]
    least: float | None = None
    most: float | None = None

    def is_reached(self, found: float) -> bool:
        """Return whether the figure is within its bound."""
        return (self.least is None or found >= self.least) and (self.most is None or found <= self.most)

    @property
    def wanted(self) -> str:
        """The bound in words."""
        if self.least is not None:
            return f"at least {self.least:g}"
        return "-" if self.most is None else f"at most {self.most:g}"


def _times(table: str, figure: Figure, row: str, other: str) -> Callable[[Results], float | None]:
    """Compare two rows round by round."""

    def value(results: Results) -> float | None:
        found = results.tables[table].ratio(figure.name, row, other) if table in results.tables else None
        return found.median if found else None

    return value


def _median(table: str, row: str, figure: Figure) -> Callable[[Results], float | None]:
    def value(results: Results) -> float | None:
        rows = results.tables[table].rows if table in results.tables else {}
        found = rows[row].summary(figure.name) if row in rows else None
        return found.median if found else None

    return value


def _times_fastest_peer(results: Results) -> float | None:
    """Compare with the fastest Python peer that runs the tasks of a killed worker again."""
    safe = [peer.key for peer in PEERS_IN_PYTHON if results.peers.get(peer.peer, {}).get("at_least_once")]
    found = [_times("drain", RATE, "pyasynq", key)(results) for key in safe]
    # The fastest peer is the one with the smallest ratio.
    return min((ratio for ratio in found if ratio is not None), default=None)


def _per_wake(results: Results) -> float | None:
    """Return Redis' processor time for waking a worker that finds no task."""
    return _of_each_wake(results, "idle")


def _per_bare_wake(results: Results) -> float | None:
    """Return Redis' processor time for notifying a bare socket that then reads the key again."""
    return _of_each_wake(results, "bare")


def _of_each_wake(results: Results, kind: str) -> float | None:
    one, some, *_ = _of_fleets(results, COST, kind)
    own, wakes, *_ = _of_fleets(results, WOKEN, kind)
    if one is None or some is None or own is None or wakes is None or wakes <= own:
        return None
    return (some - one) / (wakes - own)


def _woken(results: Results) -> float | None:
    """Return the number of workers, of 200 idle ones, that one task wakes."""
    one, _, many = _of_fleets(results, WOKEN)
    return 1 + many - one if one is not None and many is not None else None


def _of_fleets(results: Results, figure: Figure, kind: str = "idle") -> list[float | None]:
    return [_median("wakes", f"{number}-{kind}", figure)(results) for number in FLEETS]


def _drain(text: str, row: str, other: str, least: float | None) -> Goal:
    return Goal(f"drain, {text}", _times("drain", RATE, row, other), least=least)


def _enqueue(text: str, mode: str, other: str, least: float) -> Goal:
    return Goal(
        f"enqueue, {text}", _times("enqueue", RATE, f"pyasynq {mode}", f"{GO.key} {other}"), least=least
    )


def _pick_up(text: str, row: str) -> list[Goal]:
    return [
        Goal(f"pick-up p50, {text}, ms", _median("pickup", row, P50), most=1.5),
        Goal(f"pick-up p99, {text}, ms", _median("pickup", row, P99), most=2.5),
    ]


def _no_dearer(table: str, text: str, row: str, other: str, most: float) -> list[Goal]:
    return [
        Goal(f"{text}, {figure.name}, times", _times(table, figure, row, other), most=most)
        for figure in (WORKER_CPU, REDIS_CPU)
    ]


# A second process helps if it has a processor besides those of the first process and of Redis.
_ENOUGH_PROCESSORS: Final = (os.cpu_count() or 1) >= 3

GOALS: Final = (
    _drain("100 slots (the default), times Asynq in Go", "pyasynq", GO.key, 6),
    Goal("drain, 100 slots, times the fastest at-least-once peer in Python", _times_fastest_peer, least=10),
    _drain("1,000 slots, times Asynq in Go", "pyasynq-1000", GO.key, 7),
    _drain("on Valkey, times Asynq in Go on Valkey", "pyasynq-valkey", "asynq-valkey", 5),
    _drain("one call in flight, no prefetch, times Asynq in Go", "pyasynq-one-call", GO.key, 4),
    _drain("10 slots, times Asynq in Go", "pyasynq-10", GO.key, 2.5),
    _drain("five queues, times one queue", "pyasynq-5-queues", "pyasynq", 0.75),
    _drain(
        "two processes, times one" + ("" if _ENOUGH_PROCESSORS else " (only two processors: reported)"),
        "pyasynq-2-processes",
        "pyasynq",
        1.6 if _ENOUGH_PROCESSORS else None,
    ),
    _enqueue("enqueue_many, times 100 goroutines", "bulk", "concurrent", 1.4),
    _enqueue("100 concurrent awaits, times 100 goroutines", "concurrent", "concurrent", 1.0),
    _enqueue("await one by one, times one goroutine", "one", "one", 0.4),
    _enqueue("blocking one by one, times one goroutine", "blocking one", "one", 0.5),
    *_pick_up("one queue", "pyasynq"),
    *_pick_up("tasks from Go", "pyasynq-from-go"),
    *_pick_up("five queues", "pyasynq-5-queues"),
    *_pick_up("five queues, tasks from Go", "pyasynq-5-queues-from-go"),
    Goal("idle worker, commands a second", _median("idle", "pyasynq", IDLE_COMMANDS), most=3),
    Goal("idle worker, % of a core", _median("idle", "pyasynq", IDLE_SHARE), most=0.5),
    Goal("Redis CPU for an idle worker that is woken, µs", _per_wake, most=25),
    Goal("Redis CPU for a bare socket that is woken, µs", _per_bare_wake),
    Goal("how many of 200 idle workers a task wakes", _woken, most=100),
    Goal("Redis CPU a task drained, µs", _median("drain", "pyasynq", REDIS_CPU), most=9),
    Goal("Redis CPU a task drained, on Valkey, µs", _median("drain", "pyasynq-valkey", REDIS_CPU), most=11),
    Goal("worker CPU a task drained, µs", _median("drain", "pyasynq", WORKER_CPU), most=15),
    Goal("peak memory of a worker, MiB", _median("drain", "pyasynq", PEAK_MEMORY), most=50),
    *_no_dearer("depth", "1,000,000 pending over 1,000", "1000000-pending", "1000-pending", 1.2),
    *_no_dearer("elsewhere", "9,990 long tasks elsewhere over none", "9990-elsewhere", "0-elsewhere", 1.5),
    Goal(
        "100 ms of sleep, 1,000 slots, % of the ideal", _median("slots", "100ms-1000", IDEAL_SHARE), least=90
    ),
    Goal("10 ms of sleep, 100 slots, % of the ideal", _median("slots", "10ms-100", IDEAL_SHARE), least=85),
    Goal("10,000 slots, random ends, worker CPU µs", _median("slots", "random-10000", WORKER_CPU)),
    Goal("10,000 slots, random ends, Redis CPU µs", _median("slots", "random-10000", REDIS_CPU)),
)


def judged(results: Results) -> list[tuple[Goal, float]]:
    """Return the goals whose figures were measured, with the figures; none for a smoke run."""
    if results.facts.get("length") == Length.SMOKE.name.lower():
        return []
    found = ((goal, goal.value(results)) for goal in GOALS)
    return [(goal, value) for goal, value in found if value is not None]


def as_markdown(results: Results) -> str:
    """Return the goals as a table; nothing if none was measured."""
    rows = judged(results)
    if not rows:
        return ""
    lines = ["## Goals", "", "| | wanted | found | |", "| --- | --- | --: | --- |"]
    for goal, value in rows:
        verdict = "" if goal.wanted == "-" else "reached" if goal.is_reached(value) else "**missed**"
        lines.append(f"| {goal.text} | {goal.wanted} | {value:,.2f} | {verdict} |")
    return "\n".join(lines)
