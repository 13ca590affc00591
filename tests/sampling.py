"""Samples of slow tests: `make test` runs a few, drawn by a seed, and `make test-long` the others.

`@pytest.mark.sample(3)` on a parametrized test draws three of its cases. A run that names
neither paths nor tests draws a third of each file of end-to-end tests, which start interpreters,
and half of each file of contract tests. A run that records scripts takes all contract tests,
and all cases of `@pytest.mark.sample(3, by_script=True)`: the mutants need them.
Tests that are not drawn get the mark `left_out`; one with the mark `every_run` is always drawn.
PYASYNQ_TEST_SEED sets the seed, which every run prints.
PYASYNQ_TEST_SHARE=0.4 then draws two fifths of all tests that a run has selected.
"""

from __future__ import annotations

import math
import os
import random
from collections import defaultdict
from typing import Final

import pytest

SEED: Final = "PYASYNQ_TEST_SEED"
SHARE: Final = "PYASYNQ_TEST_SHARE"
_DRAWS_FILES: Final = "PYASYNQ_TEST_DRAWS_FILES"
_RECORDING: Final = "RECORD_SCRIPTS_TO"
_FILE_SHARES: Final = {"end_to_end": 1 / 3, "contract": 1 / 2}
"""Share of each file that is drawn, by tier; at least one test."""


def pytest_configure(config: pytest.Config) -> None:
    """Choose a seed; the processes that share the tests inherit it, and whether files are drawn from."""
    os.environ.setdefault(SEED, str(random.randrange(10_000)))
    if "PYTEST_XDIST_WORKER" not in os.environ:
        names_tests = config.args_source is pytest.Config.ArgsSource.ARGS
        is_whole = not names_tests and not config.option.keyword
        os.environ[_DRAWS_FILES] = str(int(is_whole))
    if SHARE in os.environ:
        config.pluginmanager.register(ShareOfAll(float(os.environ[SHARE])), "share_of_all")


def pytest_report_header() -> str:
    """Print the seed, and the share of the tests that runs."""
    share = f"; {SHARE}={os.environ[SHARE]} of all tests" if SHARE in os.environ else ""
    return f"cases drawn with {SEED}={os.environ[SEED]}{share}"


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
        _leave_out(cases, sample_size(mark, len(cases)), name)
    if os.environ.get(_DRAWS_FILES) == "1":
        _draw_from_files(items)


class ShareOfAll:
    """Plugin that draws from the tests that remain when all others have selected theirs."""

    def __init__(self, share: float) -> None:
        self._share = share

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Draw, and keep the order."""
        drawn_from = [item for item in items if not _is_in_every_run(item)]
        number = math.ceil(len(drawn_from) * self._share)
        missing = left_out(drawn_from, number, f"{os.environ[SEED]} all")
        if missing:
            config.hook.pytest_deselected(items=missing)
            gone = set(missing)
            items[:] = [item for item in items if item not in gone]


def _draw_from_files(items: list[pytest.Item]) -> None:
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not _is_left_out(item) and not _is_in_every_run(item):
            files[item.nodeid.partition("::")[0]].append(item)
    for name, tests in files.items():
        _leave_out(tests, math.ceil(len(tests) * file_share(name)), name)


def sample_size(mark: pytest.Mark, cases: int) -> int:
    """Return how many cases of a test with the mark `sample` are drawn."""
    takes_all = mark.kwargs.get("by_script", False) and _RECORDING in os.environ
    return cases if takes_all else int(mark.args[0])


def file_share(name: str) -> float:
    """Return the share of a file of tests that is drawn, by its path below the project's root."""
    tier = name.split("/")[1]
    if tier == "contract" and _RECORDING in os.environ:
        return 1
    return _FILE_SHARES.get(tier, 1)


def _is_left_out(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) is not None for mark in ("long", "left_out"))


def _is_in_every_run(item: pytest.Item) -> bool:
    return item.get_closest_marker("every_run") is not None


def _leave_out(items: list[pytest.Item], number: int, name: str) -> None:
    for item in left_out(items, number, f"{os.environ[SEED]} {name}"):
        item.add_marker("left_out")


def left_out(cases: list[pytest.Item], number: int, seed: str) -> list[pytest.Item]:
    """Return the cases that a sample of this size leaves out."""
    drawn = set(random.Random(seed).sample(range(len(cases)), min(number, len(cases))))
    return [case for place, case in enumerate(cases) if place not in drawn]
