from __future__ import annotations

import pytest

from bench.bars import Bars


def test_figures_at_their_bounds_miss_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """Both bounds are inclusive."""
    bars = Bars()
    bars.tell("wait", 50.0, "ms", most=50.0)
    bars.tell("rate", 90.0, "%", least=90.0)

    assert (0, []) == (bars.exit_code, bars.missed)
    assert "MISSED" not in capsys.readouterr().out


@pytest.mark.parametrize("bounds", [{"most": 1.0}, {"least": 2.0}])
def test_a_missed_bar_is_printed_and_sets_the_exit_code(
    bounds: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names the figure, its value and its bound."""
    bars = Bars()
    bars.tell("share", 1.5, "%", **bounds)
    [line] = capsys.readouterr().out.splitlines()

    assert (1, ["share"]) == (bars.exit_code, bars.missed)
    assert line.startswith("share ")
    assert line.endswith("MISSED")
    assert "1.50 %" in line


def test_a_figure_that_is_not_a_number_misses_its_bar() -> None:
    """A share of nothing must not pass."""
    assert "MISSED" == Bars().check("share", float("nan"), least=0.9)
