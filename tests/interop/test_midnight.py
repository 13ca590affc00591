"""The day of UTC may change while two sides take a step."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import TYPE_CHECKING

import pytest

from tests.interop import lockstep
from tests.interop.drawing import View
from tests.interop.lockstep import Lockstep
from tests.interop.steps import Answer, Step

if TYPE_CHECKING:
    from tests.interop.database import Database

YESTERDAY, TODAY = date(2033, 5, 17), date(2033, 5, 18)
FAIL = Step("finish", {"slot": "one"})


class Clock:
    """Says which day it is: for each look the next of these, the last one for ever."""

    def __init__(self, *days: date) -> None:
        self._days = list(days)

    def __call__(self) -> date:
        return self._days.pop(0) if len(self._days) > 1 else self._days[0]


class Counting:
    """A side that only counts tasks that have failed, on a day of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.day = YESTERDAY

    def begin(self) -> None:
        """Nothing is remembered."""

    def do(self, step: Step) -> Answer:
        """Count a task, or tell of today."""
        if step.operation == "queue_info":
            return Answer({"failed": int(self._database.client.get(self._key("failed")) or 0)})
        for name in ("processed", "failed"):
            self._database.client.incr(self._key(name))
            self._database.client.expire(self._key(name), 1_000)
        return Answer()

    def _key(self, name: str) -> str:
        return f"asynq:{{default}}:{name}:{self.day}"


@pytest.fixture
def sides(databases: tuple[Database, Database]) -> tuple[Counting, Counting]:
    """Two sides on empty databases."""
    for one in databases:
        one.clear()
    return Counting(databases[0]), Counting(databases[1])


@pytest.fixture
def steps(sides: tuple[Counting, Counting], databases: tuple[Database, Database]) -> Lockstep:
    """Both sides, step by step."""
    return Lockstep(sides[0], databases[0], sides[1], databases[1])


def held() -> View:
    """Return a view in which each slot has a task to finish."""
    view = View()
    view.held = defaultdict(lambda: ("default", "a"), one=("default", "a"))
    return view


def test_a_step_over_midnight_may_be_counted_on_either_day(
    steps: Lockstep,
    sides: tuple[Counting, Counting],
    databases: tuple[Database, Database],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And both go on from the same counters; the next step is compared day by day again."""
    monkeypatch.setattr(lockstep, "utc_day", Clock(YESTERDAY))
    steps._step(FAIL, held())
    sides[1].day = TODAY
    monkeypatch.setattr(lockstep, "utc_day", Clock(YESTERDAY, TODAY))
    steps._step(FAIL, held())
    assert databases[0].read().keys() == databases[1].read().keys()
    sides[0].day = TODAY
    steps._step(FAIL, held())
    assert b"2" == databases[0].read()[f"asynq:{{default}}:failed:{TODAY}"].value


def test_what_is_told_of_today_is_not_compared_over_midnight(
    steps: Lockstep, sides: tuple[Counting, Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One side was asked yesterday."""
    monkeypatch.setattr(lockstep, "utc_day", Clock(YESTERDAY))
    steps._step(FAIL, held())
    sides[1].day = TODAY
    monkeypatch.setattr(lockstep, "utc_day", Clock(YESTERDAY, TODAY))
    steps._step(Step("queue_info", {}), held())


def test_a_count_that_is_missing_is_found_over_midnight_too(
    steps: Lockstep,
    sides: tuple[Counting, Counting],
    databases: tuple[Database, Database],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sum of all days is the same on both sides."""
    databases[0].client.incr(f"asynq:{{default}}:failed:{YESTERDAY}")
    sides[1].day = TODAY
    monkeypatch.setattr(lockstep, "utc_day", Clock(YESTERDAY, TODAY))
    with pytest.raises(AssertionError, match=r"failed:day value: Asynq 2, here 1"):
        steps._step(FAIL, held())


def test_other_days_on_the_same_day_are_a_difference(
    steps: Lockstep, sides: tuple[Counting, Counting], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no midnight has passed, the names of the counters must be the same."""
    sides[1].day = TODAY
    monkeypatch.setattr(lockstep, "utc_day", Clock(TODAY))
    with pytest.raises(AssertionError, match="leaves another Redis than Asynq"):
        steps._step(FAIL, held())
