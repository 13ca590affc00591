"""Which slow tests `make test` draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.sampling import _draw_from_files, file_share, left_out, sample_size

if TYPE_CHECKING:
    from collections.abc import Sequence

CASES = cast("Any", [f"case {number}" for number in range(10)])


def drawn(cases: Sequence[Any], number: int, seed: str) -> list[Any]:
    """Return the cases that a sample keeps."""
    missing = left_out(list(cases), number, seed)
    return [case for case in cases if case not in missing]


@pytest.mark.parametrize("number", [1, 3, 10, 12])
def test_a_sample_has_its_size(number: int) -> None:
    """At most all cases are drawn."""
    assert min(number, 10) == len(drawn(CASES, number, "7 name"))


def test_a_seed_draws_the_same_again_and_others_draw_all_in_the_end() -> None:
    """Else some case would run in no run at all."""
    assert drawn(CASES, 3, "7 name") == drawn(CASES, 3, "7 name")
    seen = {case for seed in range(50) for case in drawn(CASES, 3, f"{seed} name")}
    assert set(CASES) == seen


def test_each_name_draws_for_itself() -> None:
    """Else the same place of every file would be drawn."""
    assert 1 < len({tuple(drawn(CASES, 3, f"7 file {number}")) for number in range(5)})


@pytest.mark.parametrize(
    ("name", "recording", "share"),
    [
        ("tests/unit/test_sampling.py", False, 1),
        ("tests/contract/web/test_pages.py", False, 1 / 2),
        ("tests/contract/web/test_pages.py", True, 1),
        ("tests/end_to_end/test_processes.py", True, 1 / 3),
    ],
)
def test_a_share_of_each_file_is_drawn_by_its_tier(
    name: str, recording: bool, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that records scripts takes all contract tests, since the mutants need them."""
    monkeypatch.delenv("RECORD_SCRIPTS_TO", raising=False)
    if recording:
        monkeypatch.setenv("RECORD_SCRIPTS_TO", "folder")
    assert share == file_share(name)


@pytest.mark.parametrize(
    ("by_script", "recording", "size"), [(True, True, 9), (True, False, 2), (False, True, 2)]
)
def test_a_run_for_the_mutants_takes_all_cases_that_differ_by_script(
    by_script: bool, recording: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script whose only killing case is left out would have a mutant that nothing kills."""
    monkeypatch.delenv("RECORD_SCRIPTS_TO", raising=False)
    if recording:
        monkeypatch.setenv("RECORD_SCRIPTS_TO", "folder")
    assert size == sample_size(pytest.mark.sample(2, by_script=by_script).mark, 9)


class Item:
    """A test as pytest collects it."""

    def __init__(self, nodeid: str, *marks: str) -> None:
        self.nodeid = nodeid
        self.marks = set(marks)

    def get_closest_marker(self, name: str) -> str | None:
        """Return the mark of this name."""
        return name if name in self.marks else None

    def add_marker(self, name: str) -> None:
        """Add a mark."""
        self.marks.add(name)


def test_a_test_for_every_run_is_not_drawn_from() -> None:
    """It runs whatever the seed, and takes no place of another test."""
    tests = [Item(f"tests/end_to_end/test_x.py::test_{number}") for number in range(9)]
    kept = Item("tests/end_to_end/test_x.py::test_kept", "every_run")
    _draw_from_files(cast("Any", [*tests, kept]))
    assert {"every_run"} == kept.marks
    assert 3 == sum("left_out" not in one.marks for one in tests)
