from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from bench.contestants import DRAINING, MAIN, Length, choose
from bench.environments import ALL_PEERS, OURS
from bench.figures import RATE
from bench.measurements.pickup import PICK_UP
from bench.measurements.shape import Entry, Measurement, Scene
from bench.rounds import measure, rotated
from bench.stage import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Stage:
    """A stage without servers."""

    dismissed = False
    scale = 1.0

    def dismiss_producers(self) -> None:
        self.dismissed = True


def _scene() -> Scene:
    return Scene(cast("Any", Stage()), (), (), cast("Any", None))


def _measurement(
    runs: dict[str, Callable[[], dict[str, float]]], most_rounds: int | None = None
) -> Measurement:
    @contextmanager
    def open_them(_: Scene) -> Iterator[list[Entry]]:
        yield [Entry(key, f"title of {key}", run) for key, run in runs.items()]

    return Measurement("made-up", "Made up", (RATE,), open_them, most_rounds=most_rounds)


def _recorder(order: list[str], key: str) -> Callable[[], dict[str, float]]:
    def run() -> dict[str, float]:
        order.append(key)
        return {RATE.name: float(len(order))}

    return run


def _failing() -> dict[str, float]:
    raise MeasurementError("it broke")


def test_each_round_begins_with_another_one() -> None:
    """Every second round is reversed, so that no contestant always follows the same one."""
    assert [["a", "b", "c"], ["a", "c", "b"], ["c", "a", "b"]] == [
        rotated(["a", "b", "c"], number) for number in range(3)
    ]


def test_nothing_is_rotated_to_nothing() -> None:
    """Without contestants there is no division by zero."""
    assert [] == rotated([], 1)


def test_each_contestant_is_measured_once_a_round() -> None:
    """That is what makes ratios of a round mean something."""
    order: list[str] = []
    runs = {key: _recorder(order, key) for key in "abc"}

    table = measure(_measurement(runs), _scene(), 4, lambda _: None, [])

    assert [["a", "b", "c"]] * 4 == [sorted(order[at : at + 3]) for at in range(0, 12, 3)]
    assert {0, 1, 2, 3} == set(table.rows["a"].rounds)


def test_a_failure_is_noted_and_the_others_go_on() -> None:
    """A failed contestant has no figures; after the second time it is skipped."""
    failures: list[str] = []
    runs = {"good": _recorder([], "good"), "bad": _failing}

    table = measure(_measurement(runs), _scene(), 4, lambda _: None, failures)

    assert {} == table.rows["bad"].rounds
    assert 4 == len(table.rows["good"].rounds)
    assert [
        "made-up, round 1, bad: MeasurementError: it broke",
        "made-up, round 2, bad: MeasurementError: it broke",
    ] == failures


def test_a_bug_of_the_harness_ends_its_measurement_and_keeps_what_was_measured() -> None:
    """The run goes on with the next measurement; the failure says what broke, and the traceback where.

    Defect D42.
    """
    lines: list[str] = []
    failures: list[str] = []
    servers: dict[str, float] = {}
    runs = {"good": _recorder([], "good"), "bad": lambda: {"rate": servers["valkey"]}}

    table = measure(_measurement(runs), _scene(), 4, lines.append, failures)

    assert ["made-up: KeyError: 'valkey'"] == failures
    assert {0} == set(table.rows["good"].rounds)
    assert "test_rounds.py" in lines[-1]


def test_a_measurement_that_cannot_begin_is_an_empty_table_and_a_failure() -> None:
    """Such as one that starts a server of a kind that is not there. (D42)"""

    @contextmanager
    def open_nothing(_: Scene) -> Iterator[list[Entry]]:
        raise KeyError("valkey")
        yield []  # type: ignore[unreachable] # makes it a generator

    failures: list[str] = []
    stage = Stage()
    scene = Scene(cast("Any", stage), (), (), cast("Any", None))

    table = measure(
        Measurement("made-up", "Made up", (RATE,), open_nothing), scene, 1, lambda _: None, failures
    )

    assert ({}, ["made-up: KeyError: 'valkey'"], True) == (table.rows, failures, stage.dismissed)


@pytest.mark.parametrize("length", Length)
def test_nothing_is_measured_on_a_server_that_is_not_there(length: Length) -> None:
    """Without an installed Redis the embedded server is the main one, and there is no other. (D42)"""
    peers = (OURS, *ALL_PEERS)
    scene = Scene(cast("Any", Stage()), peers, (MAIN,), length)

    with PICK_UP.open(scene) as entries:
        keys = {entry.key for entry in entries}

    assert "pyasynq" in keys
    assert "pyasynq-valkey" not in keys
    assert {MAIN} == {one.server for one in choose(DRAINING, peers=peers, servers=(MAIN,), length=length)}


def test_a_slow_measurement_has_fewer_rounds() -> None:
    """Recovery takes minutes a round."""
    table = measure(_measurement({"a": _recorder([], "a")}, most_rounds=2), _scene(), 5, lambda _: None, [])

    assert 2 == len(table.rows["a"].rounds)


def test_progress_names_round_contestant_and_figures() -> None:
    """A line for each."""
    lines: list[str] = []

    measure(_measurement({"a": _recorder([], "a")}), _scene(), 1, lines.append, [])

    assert ["made-up 1/1 a: rate 1 (0.0 s)"] == lines
