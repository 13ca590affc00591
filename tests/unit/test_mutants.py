from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tools.lua_mutator import Mutant
from tools.mutant_runner import Recorded, RunError, read_records
from tools.mutants import Candidate, ExcuseError, Place, judge, rank_tests, read_excuses

if TYPE_CHECKING:
    from pathlib import Path

WRITE = Candidate("task/done", Mutant(7, "redis.call('DEL', key)", "delete", "..."))
SAME_LINE_AGAIN = Candidate("task/done", Mutant(9, "redis.call('DEL', key)", "delete", "....."))
EXCUSE = {WRITE.place: "the key expires anyway"}


def test_a_survivor_that_is_not_listed_is_reported() -> None:
    """This is what the whole check is for."""
    assert [WRITE] == judge([WRITE], {WRITE: False}, {}).unlisted


def test_a_listed_survivor_is_excused() -> None:
    """It is reported with its reason, as a survivor."""
    verdict = judge([WRITE], {WRITE: False}, EXCUSE)

    assert ([WRITE], [], []) == verdict


def test_a_listed_survivor_does_not_lower_the_score() -> None:
    """A sample would otherwise fail by the luck of its draw."""
    verdict = judge([WRITE], {WRITE: False}, EXCUSE)

    assert (100.0, False) == (verdict.score(16), verdict.is_too_low(16))


@pytest.mark.parametrize(
    ("survivors", "tried", "is_too_low"), [(2, 16, False), (3, 16, True), (6, 60, False), (7, 60, True)]
)
def test_a_sample_fails_only_if_luck_does_not_explain_it(
    survivors: int, tried: int, is_too_low: bool
) -> None:
    """With a share of 95 %, two survivors of 16 are common, and three are not."""
    found = [Candidate("task/done", Mutant(line, f"line {line}", "delete", "")) for line in range(survivors)]
    verdict = judge(found, dict.fromkeys(found, False), {})

    assert is_too_low == verdict.is_too_low(tried)


def test_an_entry_whose_mutant_is_killed_is_stale() -> None:
    """A test that sees it has been written: the excuse must go."""
    assert [WRITE.place] == judge([WRITE], {WRITE: True}, EXCUSE).stale


def test_an_entry_without_a_mutant_is_stale() -> None:
    """The line has changed or gone; this is seen in a sample, too."""
    gone = Place("task/done", "redis.call('PERSIST', key)", "delete")

    assert [gone] == judge([WRITE], {}, {gone: "never"}).stale


def test_an_entry_outside_the_sample_is_not_stale() -> None:
    """Its mutant was not tried, so nothing is known."""
    assert [] == judge([WRITE], {}, EXCUSE).stale


def test_equal_lines_share_an_entry() -> None:
    """It is needed as long as one of them survives."""
    assert [] == judge([WRITE, SAME_LINE_AGAIN], {WRITE: True, SAME_LINE_AGAIN: False}, EXCUSE).stale


def test_the_most_telling_and_quickest_tests_come_first() -> None:
    """A test that runs one script says more about it than one that runs many."""
    records = {
        "journey": Recorded(frozenset({"task/done", "task/enqueue"}), 0.1),
        "slow": Recorded(frozenset({"task/done"}), 0.9),
        "quick": Recorded(frozenset({"task/done"}), 0.2),
        "elsewhere": Recorded(frozenset({"task/enqueue"}), 0.2),
    }

    assert ["quick", "slow", "journey"] == [
        test for test, _ in rank_tests({"task/done": ""}, records)["task/done"]
    ]


def test_a_fragment_is_run_by_the_tests_of_every_script_that_uses_it() -> None:
    """A fragment is never run by itself."""
    sources = {"shared/now": "", "task/done": "-- Done.\n-- Uses: counters, now\n\nreturn 1", "task/run": ""}
    records = {"a": Recorded(frozenset({"task/done"}), 0.1), "b": Recorded(frozenset({"task/run"}), 0.1)}

    assert [("a", 0.1)] == rank_tests(sources, records)["shared/now"]


def test_records_of_all_processes_are_read_and_other_tests_left_out(tmp_path: Path) -> None:
    """A run of all tests was recorded; the mutants are tried on one folder."""
    record = {"scripts": ["task/done"], "seconds": 0.5}
    (tmp_path / "1.json").write_text(json.dumps({"tests/contract/test_a.py::test": record}))
    (tmp_path / "2.json").write_text(
        json.dumps({"tests/contract/test_b.py::test": record, "tests/unit/test_c.py::test": record})
    )

    assert {
        f"tests/contract/test_{name}.py::test": Recorded(frozenset({"task/done"}), 0.5) for name in "ab"
    } == read_records(tmp_path, "tests/contract")


def test_a_record_without_the_tests_is_refused(tmp_path: Path) -> None:
    """Nothing would be killed, and it would look like the tests' fault."""
    with pytest.raises(RunError, match="no test of tests/contract is recorded there"):
        read_records(tmp_path, "tests/contract")


def test_the_list_of_survivors_is_read(tmp_path: Path) -> None:
    """Script, line and kind name a mutant."""
    path = tmp_path / "mutants.toml"
    path.write_text('[[survivor]]\nscript = "a/b"\nline = "x < y"\nkind = "boundary"\nreason = "equal"\n')

    assert {Place("a/b", "x < y", "boundary"): "equal"} == read_excuses(path)


@pytest.mark.parametrize("reason", ['reason = " "', "", 'reason = "r"\nwhy = "w"'])
def test_an_entry_without_a_reason_is_refused(tmp_path: Path, reason: str) -> None:
    """An excuse that gives no reason is none."""
    path = tmp_path / "mutants.toml"
    path.write_text(f'[[survivor]]\nscript = "a/b"\nline = "x < y"\nkind = "boundary"\n{reason}\n')

    with pytest.raises(ExcuseError, match="needs script, line, kind and a reason"):
        read_excuses(path)
