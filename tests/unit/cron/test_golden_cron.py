"""What robfig/cron 3.0.1 accepts and when it ticks (see tests/interop/cron_vectors), against ours."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from pyasynq._cron import Schedule, parse_cron
from pyasynq.errors import CronError

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "cron-robfig-3.0.1.json").read_text(encoding="utf-8")
)
TICKS_OF_A_CASE = 6


def chain(schedule: Schedule, after: datetime) -> list[int]:
    """Return ticks, each sought from the one before, as Unix times."""
    ticks: list[int] = []
    tick = schedule.next_after(after)
    while tick is not None and len(ticks) < TICKS_OF_A_CASE:
        ticks.append(int(tick.timestamp()))
        tick = schedule.next_after(tick)
    return ticks


@pytest.mark.parametrize("text", GOLDEN["accepted"])
def test_what_go_accepts_is_accepted(text: str) -> None:
    """Else an expression that a peer publishes could not be shown or taken over."""
    assert isinstance(parse_cron(text), Schedule)


@pytest.mark.parametrize("text", GOLDEN["rejected"])
def test_what_go_refuses_is_refused(text: str) -> None:
    """Else an expression could not go back to Go."""
    with pytest.raises(CronError):
        parse_cron(text)


@pytest.mark.sample(4)
@pytest.mark.parametrize("zone", sorted({case["zone"] for case in GOLDEN["ticks"]}))
def test_ticks_are_those_of_go_around_changes_of_the_clock(zone: str) -> None:
    """And around leap days, ends of months and five years without a tick."""
    cases = [case for case in GOLDEN["ticks"] if zone == case["zone"]]

    found = [
        chain(parse_cron(case["spec"], location=ZoneInfo(zone)), datetime.fromtimestamp(case["after"], UTC))
        for case in cases
    ]

    assert [] == [(case, ticks) for case, ticks in zip(cases, found, strict=True) if case["ticks"] != ticks]


def test_there_are_hundreds_of_ticks_to_compare() -> None:
    """A file that was cut short would prove nothing."""
    assert 4_000 < sum(len(case["ticks"]) for case in GOLDEN["ticks"])
