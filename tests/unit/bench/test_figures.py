from __future__ import annotations

import pytest

from bench.figures import percentile, ratio, summary


def test_a_summary_has_the_median_and_the_ends() -> None:
    """An outlier moves an end and leaves the median."""
    found = summary([3.0, 900.0, 1.0, 2.0, 4.0])

    assert (3.0, 1.0, 900.0, 5) == (found.median, found.least, found.most, found.count)


def test_nothing_cannot_be_summed_up() -> None:
    """A contestant of which every round failed must not show a figure."""
    with pytest.raises(ValueError, match="no round was measured"):
        summary([])


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)])
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    """Nearest rank: of 100 values the 99th is not exceeded by 99 %."""
    assert expected == percentile(range(100, 0, -1), share)


def test_a_percentile_of_one_value_is_that_value() -> None:
    """Every share gives the same value."""
    assert [7.0, 7.0, 7.0] == [percentile([7.0], share) for share in (0.0, 0.5, 1.0)]


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 1.5), ([1.0], -0.1)])
def test_a_percentile_that_cannot_be_is_refused(values: list[float], share: float) -> None:
    """An empty list has no percentile, nor do shares below 0 or above 1."""
    with pytest.raises(ValueError, match="cannot be"):
        percentile(values, share)


def test_a_ratio_compares_within_rounds() -> None:
    """The machine was half as fast in the second round, for both: the ratio does not notice."""
    found = ratio({0: 60.0, 1: 30.0, 2: 66.0}, {0: 10.0, 1: 5.0, 2: 11.0})

    assert found is not None
    assert (6.0, 6.0, 6.0) == (found.median, found.least, found.most)


def test_a_ratio_leaves_out_rounds_that_only_one_has() -> None:
    """A round in which the other failed has nothing to compare with."""
    found = ratio({0: 60.0, 1: 30.0}, {1: 5.0, 2: 11.0})

    assert found is not None
    assert (6.0, 1) == (found.median, found.count)


@pytest.mark.parametrize("others", [{}, {1: 5.0}, {0: 0.0}])
def test_without_a_common_round_there_is_no_ratio(others: dict[int, float]) -> None:
    """None, and no division by zero."""
    assert ratio({0: 60.0}, others) is None
