"""Sample of the cases of a test: `make test` runs a few, drawn by a seed, and `make test-long` the others.

`@pytest.mark.sample(3)` on a parametrized test draws three of its cases. The others get the mark `left_out`.
PYASYNQ_TEST_SEED sets the seed, which every run prints.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from typing import Final

import pytest

SEED: Final = "PYASYNQ_TEST_SEED"


def pytest_configure() -> None:
    """Choose a seed; the processes that share the tests inherit it."""
    os.environ.setdefault(SEED, str(random.randrange(10_000)))


def pytest_report_header() -> str:
    """Print the seed."""
    return f"cases drawn with {SEED}={os.environ[SEED]}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that are not drawn, before they are selected by marks."""
    tests: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sample") is not None:
            tests[item.nodeid.partition("[")[0]].append(item)
    for name, cases in tests.items():
        mark = cases[0].get_closest_marker("sample")
        assert mark is not None
        for item in left_out(cases, mark.args[0], f"{os.environ[SEED]} {name}"):
            item.add_marker("left_out")


def left_out(cases: list[pytest.Item], number: int, seed: str) -> list[pytest.Item]:
    """Return the cases that a sample of this size leaves out."""
    drawn = set(random.Random(seed).sample(range(len(cases)), min(number, len(cases))))
    return [case for place, case in enumerate(cases) if place not in drawn]
