"""How many sequences are drawn, from which seed, and what is told of them."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.interop.coverage import Coverage
from tests.interop.drawing import SEQUENCES, Pick

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container

SEED = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
COUNT = int(os.environ.get("SEQUENCES") or 500)
"""How many each test draws."""

NIGHTLY = 5_000
"""From this many sequences on, each entry of a list of exceptions must have been needed."""

PHASES = (Phase.generate, Phase.shrink) if os.environ.get("SHRINK", "1") != "0" else (Phase.generate,)
"""A failure is made as short as it can be, unless SHRINK is 0."""

patient = pytest.mark.timeout(600 + 2 * COUNT)


def run_sequences(run: Callable[[Pick, Coverage], None], tell: Callable[[str, object], None]) -> None:
    """Run sequences that Hypothesis draws; more, up to twice as many, until everything is reached."""
    coverage = Coverage()
    try:
        _draw(run, coverage, SEED, COUNT)
        for more in range(1, 6):
            if coverage.shortfalls():
                _draw(run, coverage, SEED + more, COUNT // 5)
    finally:
        tell("sequences", f"SEED={SEED} SEQUENCES={COUNT}\n{coverage.report()}")
    assert [] == coverage.shortfalls(), "this was not done often enough"


def _draw(run: Callable[[Pick, Coverage], None], coverage: Coverage, start: int, count: int) -> None:
    @seed(start)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        print_blob=False,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    @given(SEQUENCES)
    def sequences(numbers: list[list[int]]) -> None:
        run(Pick(numbers), coverage)

    sequences()


def check_needed(entries: Collection[object], seen: Container[object]) -> None:
    """Fail for exceptions that nothing needs, where all of them are bound to be met."""
    unneeded = [one for one in entries if one not in seen]
    assert COUNT < NIGHTLY or not unneeded, unneeded
