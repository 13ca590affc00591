"""The command line of the chaos runs, and what it prints."""

from __future__ import annotations

import io
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from tests.chaos import run
from tests.chaos.checker import Verdict
from tests.chaos.scenario import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

WELL = Result("Redis killed", Verdict(1_000, 1_000, faults=Counter({"SIGKILL of Redis": 2})), 3.0)
LOST = Result("Redis killed", Verdict(1_000, 999, lost=["task a is lost"]), 3.0)
WRONG = Result("Redis killed", Verdict(1_000, 1_000, problems=["task b ran again"]), 3.0)


def test_an_unknown_scenario_is_wrong_usage(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names all that there are."""
    monkeypatch.setattr("sys.argv", ["run", "Redis sad"])
    with pytest.raises(SystemExit) as ended:
        run.main()
    assert 2 == ended.value.code
    error = capsys.readouterr().err
    assert "'Redis sad'" in error
    assert all(name in " ".join(error.split()) for name in run.SCENARIOS)


@pytest.mark.parametrize(
    ("result", "code", "said"),
    [(WELL, 0, "lost: 0"), (LOST, 1, "lost: 1"), (WRONG, 1, "task b ran again")],
    ids=["well", "lost", "wrong"],
)
def test_the_exit_code_says_whether_all_was_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], result: Result, code: int, said: str
) -> None:
    """And the seed is printed, so that the run can be repeated."""

    def run_all(names: list[str], seed: int, profile: str, lanes: int) -> Iterator[Result]:
        yield result

    monkeypatch.setattr(run, "run_all", run_all)
    monkeypatch.setattr("sys.argv", ["run", "Redis killed", "--seed", "7"])
    assert code == run.main()
    output = capsys.readouterr().out
    assert said in output
    assert "seed 7" in output


def test_the_table_tells_what_ran_again_and_why() -> None:
    """The row `all` has the sums of the other rows."""
    verdict = Verdict(500, 500, again=Counter({"SIGKILL": 12}), twice=Counter({"SIGKILL": 3}))
    text = io.StringIO()
    Console(file=text, width=150).print(run.table_of([WELL, Result("worker killed", verdict, 4.0)]))
    lines = text.getvalue().splitlines()
    assert any("12 by SIGKILL (3 had ended)" in line for line in lines)
    assert any(line.startswith("| all") and "1,500" in line for line in lines)


def test_a_scenario_that_cannot_be_run_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on."""

    def fail(*_: object) -> None:
        message = "no server program"
        raise RuntimeError(message)

    monkeypatch.setattr(run, "run_scenario", fail)
    result = run.run_one("Redis killed", 1, "short", {})
    assert not result.is_well
    assert "no server program" in result.verdict.problems[0]
