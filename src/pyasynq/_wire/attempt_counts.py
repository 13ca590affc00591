"""Counts of ended attempts, as they are kept in the hashes `x:stats:…`: a vector of numbers, packed.

A *level* is a resolution: minutes, ten minutes, days. A key holds one *chunk* of a level, such as six hours
of ten minutes, and has a field for each task type. The value of a field is a record for each *slot* of the
chunk in which attempts ended. All records but the last are closed: nothing is added to them any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq.telemetry import ATTEMPT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

COUNTERS: Final = (
    "succeeded",
    "retried",
    "archived",
    "snoozed",
    "revoked",
    "timed_out",
    "recovered",
    "poisoned",
)
"""Names of the first counts of a vector, in their order; a later version may only append to the vector."""
RUN_MILLISECONDS: Final = len(COUNTERS)
WAIT_MILLISECONDS: Final = RUN_MILLISECONDS + 1
SUMMARY_SIZE: Final = WAIT_MILLISECONDS + 1
"""Length of a vector without histograms; records of minutes keep only this part."""
BUCKETS: Final = len(ATTEMPT_SECONDS) + 1
RUN_BUCKETS: Final = SUMMARY_SIZE
"""Position in a vector at which the histogram of run times begins."""
WAIT_BUCKETS: Final = RUN_BUCKETS + BUCKETS
"""Position in a vector at which the histogram of waits begins."""
VECTOR_SIZE: Final = WAIT_BUCKETS + BUCKETS

OTHER_TYPES: Final = "_other"
"""Field for the counts of all types beyond `MAX_COUNTED_TYPES`."""
MAX_COUNTED_TYPES: Final = 50
LONGEST_TYPE: Final = 200
"""Maximum bytes of a type's name; a type with a longer name is counted under `OTHER_TYPES`."""

_HEAD: Final = 2
_EXACT: Final = 16
_LARGEST: Final = 1 << 53
_LONGEST_NUMBER: Final = 8
"""Maximum bytes of a varint of a number below 2^53."""


class Level(NamedTuple):
    """A resolution in which counts are kept.

    Attributes:
        name: its name in keys.
        slot: seconds that one record covers.
        chunk: seconds that one key covers.
        keep: seconds that a record is kept after the end of its chunk.
        size: length of the vectors in the records.
    """

    name: str
    slot: int
    chunk: int
    keep: int
    size: int

    def start(self, second: int) -> int:
        """Return the Unix second at which the chunk of a time begins."""
        return second - second % self.chunk

    def slot_number(self, second: int) -> int:
        """Return the number of a time's slot within its chunk."""
        return second % self.chunk // self.slot

    def lifetime(self, second: int) -> int:
        """Return the seconds from this Unix second to the deletion of the chunk that contains it."""
        return self.start(second) + self.chunk + self.keep - second

    def starts(self, since: int, until: int) -> range:
        """Return the Unix seconds at which the chunks with times from `since` to before `until` begin."""
        return range(self.start(since), until, self.chunk)


MINUTES: Final = Level("minutes", 60, 3_600, 2 * 3_600, SUMMARY_SIZE)
TEN_MINUTES: Final = Level("ten_minutes", 600, 6 * 3_600, 72 * 3_600, VECTOR_SIZE)
DAYS: Final = Level("days", 86_400, 10 * 86_400, 90 * 86_400, VECTOR_SIZE)
LEVELS: Final = (MINUTES, TEN_MINUTES, DAYS)


def new_vector() -> list[int]:
    """Return a vector of zeros."""
    return [0] * VECTOR_SIZE


def pack_numbers(numbers: Sequence[int], size: int) -> bytes:
    """Pack a vector: a mask of `size` bits shows the numbers above 0; these follow as varints (LEB128)."""
    mask = 0
    body = bytearray()
    for at, number in enumerate(numbers):
        if number > 0:
            mask |= 1 << at
            left = number
            while left > 127:
                body.append(left & 127 | 128)
                left >>= 7
            body.append(left)
    return mask.to_bytes((size + 7) // 8, "little") + bytes(body)


def unpack_numbers(data: bytes, size: int, *, coarse: bool) -> list[int] | None:
    """Return the vector in a packed record; None for data that is not a record.

    Args:
        data: bit mask and varints, as from `pack_numbers`.
        size: length of the vector.
        coarse: whether the histograms are closed, with one byte for each bucket.
    """
    width = (size + 7) // 8
    mask = int.from_bytes(data[:width], "little")
    numbers = [0] * size
    at = width
    for index in range(size):
        if not mask >> index & 1:
            continue
        if coarse and index >= SUMMARY_SIZE:
            if at >= len(data):
                return None
            numbers[index] = expand_count(data[at])
            at += 1
            continue
        number = shift = 0
        while True:
            if at >= len(data) or shift >= 7 * _LONGEST_NUMBER:
                return None
            byte = data[at]
            at += 1
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        numbers[index] = min(number, _LARGEST)
    return numbers if at == len(data) else None


def expand_count(code: int) -> int:
    """Return the count that one byte of a closed histogram encodes.

    Up to 15 it is exact. Above that the byte is a floating-point number with a mantissa of three bits: the
    count is in the middle of what it may have been, at most 6 % away.
    """
    if code < _EXACT:
        return code
    exponent = (code - 8) // 8
    mantissa = code - 8 * exponent
    return (2 * mantissa + 1 << exponent) >> 1


def unpack_records(value: bytes, level: Level) -> Iterator[tuple[int, list[int]]]:
    """Yield slot and numbers of each record of a field, oldest first; stop at the first invalid record."""
    if len(value) <= _HEAD:
        return
    opened = int.from_bytes(value[:_HEAD], "big") - 1
    slots = level.chunk // level.slot
    at = _HEAD
    while at + 2 <= opened < len(value):
        slot, length = value[at], value[at + 1]
        numbers = unpack_numbers(value[at + 2 : at + 2 + length], level.size, coarse=True)
        if numbers is None or slot >= slots:
            return
        yield slot, numbers
        at += 2 + length
    if at == opened and at < len(value):
        numbers = unpack_numbers(value[at + 1 :], level.size, coarse=False)
        if numbers is not None and value[at] < slots:
            yield value[at], numbers


def add_vectors(total: list[int], numbers: Iterable[int]) -> None:
    """Add a vector to another in place, position by position; `numbers` may be the shorter one."""
    for at, number in enumerate(numbers):
        total[at] += number
