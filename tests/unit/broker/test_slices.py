"""Slices of what one call or pipeline takes: where they end."""

from __future__ import annotations

import pytest

from pyasynq._broker.arguments import chunks


@pytest.mark.parametrize(
    ("sizes", "slices"),
    [
        ([], []),
        ([10, 10], [2]),
        ([10, 10, 1], [2, 1]),
        ([1, 1, 1, 1], [3, 1]),
        ([0, 0, 0, 0, 0, 0], [3, 3]),
        ([5, 21, 5], [1, 1, 1]),
        ([21], [1]),
    ],
)
def test_a_slice_ends_at_the_number_or_the_sum_of_sizes(sizes: list[int], slices: list[int]) -> None:
    """It takes three items here, or a sum of 20; none is empty, and a larger item is alone."""
    items = list(enumerate(sizes))
    found = list(chunks(items, most=3, size_of=lambda item: item[1], most_size=20))

    assert slices == [len(part) for part in found]
    assert items == [item for part in found for item in part]
