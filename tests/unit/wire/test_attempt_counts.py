"""Counts of attempts as packed numbers."""

from __future__ import annotations

import random

import pytest

from pyasynq._wire.attempt_counts import (
    DAYS,
    LEVELS,
    MINUTES,
    SUMMARY_SIZE,
    TEN_MINUTES,
    VECTOR_SIZE,
    expand_count,
    pack_numbers,
    unpack_numbers,
    unpack_records,
)

DRAWN = random.Random(7)


@pytest.mark.parametrize("size", [SUMMARY_SIZE, VECTOR_SIZE])
@pytest.mark.parametrize("largest", [0, 1, 127, 128, 2**31, 2**53])
def test_numbers_are_unpacked_as_they_were_packed(size: int, largest: int) -> None:
    """Whichever of them are 0."""
    numbers = [DRAWN.choice((0, DRAWN.randint(0, largest), largest)) for _ in range(size)]
    assert numbers == unpack_numbers(pack_numbers(numbers, size), size, coarse=False)


def test_what_is_zero_takes_one_bit() -> None:
    """58 numbers of nothing are eight bytes; what is missing at the end is nothing too."""
    assert bytes(8) == pack_numbers([0] * VECTOR_SIZE, VECTOR_SIZE)
    assert b"\x02\x00\x05" == pack_numbers([0, 5], SUMMARY_SIZE)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x00",
        b"\x01\x00\x80",
        b"\x01\x00" + b"\xff" * 9,
        b"\x01\x00\x05\x05",
        b"\x00\x00x",
    ],
)
def test_what_is_not_a_record_is_told_from_one(data: bytes) -> None:
    """Numbers that are missing, that do not end, and bytes that are too many."""
    assert unpack_numbers(data, SUMMARY_SIZE, coarse=False) is None


def test_a_byte_of_a_closed_histogram_is_exact_up_to_15_and_near_beyond() -> None:
    """Each code stands for more than the one before, and is at most 1/16 away from what it may have been."""
    expanded = [expand_count(code) for code in range(256)]
    assert list(range(16)) == expanded[:16]
    assert sorted(set(expanded)) == expanded
    for code in range(16, 255):
        assert expanded[code + 1] - expanded[code] <= expanded[code] / 8 + 1
    assert expanded[-1] > 10**10


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\xff\xff\x00",
        b"\x00\x03",
        b"\x00\x05\x01\xff",
        b"\x00\x04\x01\x00",
        b"\x00\x03\xff",
    ],
)
def test_a_value_that_is_damaged_has_no_records(value: bytes) -> None:
    """Nothing is raised."""
    assert [] == list(unpack_records(value, MINUTES))


def test_any_bytes_are_read_without_an_error() -> None:
    """Each value that is drawn gives slots of the chunk and vectors of the level, or nothing."""
    for _ in range(2_000):
        level = DRAWN.choice(LEVELS)
        value = bytes([0, DRAWN.randint(0, 9)]) + DRAWN.randbytes(DRAWN.randint(0, 30))
        for slot, numbers in unpack_records(value, level):
            assert slot < level.chunk // level.slot
            assert level.size == len(numbers)


def test_a_level_knows_the_chunk_and_the_slot_of_a_time() -> None:
    """The level also tells for how long a chunk is kept."""
    second = 2_000_000_000
    assert (1_999_998_000, 33, 3_600 + 7_200 - 2_000) == (
        MINUTES.start(second),
        MINUTES.slot_number(second),
        MINUTES.lifetime(second),
    )
    assert [TEN_MINUTES.start(second)] == list(TEN_MINUTES.starts(second, second + 1))
    assert [DAYS.start(second), DAYS.start(second) + 864_000] == [*DAYS.starts(second, second + 864_000)]
