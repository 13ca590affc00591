"""Tests that the values in a query (the text after the colon) stand for; a task's value passes or fails."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from decimal import Decimal

MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Anything:
    """Test `*`: the value exists and is not empty."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Test for equality with a text; in JSON also with the number or literal it spells, unless quoted."""

    text: str
    number: Decimal | None = None
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Glob:
    """Test for a glob pattern: the parts in this order, with any text between them."""

    parts: tuple[str, ...]
    """Text before, between and after the stars; at least two."""

    def matches(self, text: str) -> bool:
        """Return whether the whole text matches the pattern, in linear time."""
        first, *middle, last = self.parts
        if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
            return False
        at, end = len(first), len(text) - len(last)
        for part in middle:
            at = text.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True


@dataclass(frozen=True, slots=True)
class Contains:
    """Test for a substring of the value; case-sensitive."""

    text: str
    data: bytes
    """The text as UTF-8, for payloads and results."""


@dataclass(frozen=True, slots=True)
class Signature:
    """Test for the beginning of an error signature's id."""

    prefix: str


@dataclass(frozen=True, slots=True)
class NumberRange:
    """Range of numbers, with or without its bounds; None for no lower or no upper bound."""

    low: Decimal | None
    high: Decimal | None
    low_is_open: bool = False
    high_is_open: bool = False

    def holds(self, number: Decimal | int) -> bool:
        """Return whether a number is in the range; compared exactly."""
        if self.low is not None and (number < self.low or (self.low_is_open and number == self.low)):
            return False
        return self.high is None or not (number > self.high or (self.high_is_open and number == self.high))


@dataclass(frozen=True, slots=True)
class TimePoint:
    """A Unix time in microseconds, or a duration relative to the present time."""

    microseconds: int
    is_relative: bool

    def resolve(self, now: int) -> int:
        """Return the Unix time in microseconds."""
        return now + self.microseconds if self.is_relative else self.microseconds

    def shifted(self, microseconds: int) -> TimePoint:
        """Return the point in time that is later by these microseconds."""
        return TimePoint(self.microseconds + microseconds, self.is_relative)


@dataclass(frozen=True, slots=True)
class TimePeriod:
    """Period between two times, both included; None for no begin or no end."""

    low: TimePoint | None
    high: TimePoint | None

    def bounds(self, now: int) -> tuple[int | None, int | None]:
        """Return the first and the last Unix time of the period in microseconds; `now` is the present."""
        low = None if self.low is None else self.low.resolve(now)
        return low, None if self.high is None else self.high.resolve(now)

    def holds(self, moment: int, now: int) -> bool:
        """Return whether a Unix time in microseconds is in the period; `now` is the present."""
        low, high = self.bounds(now)
        return (low is None or low <= moment) and (high is None or moment <= high)


ValueTest: TypeAlias = Anything | Exact | Glob | Contains | Signature | NumberRange | TimePeriod


def name_matches(test: ValueTest, text: str) -> bool:
    """Return whether a name passes a test: `Exact`, `Glob` or `Anything`; False for any other test."""
    if isinstance(test, Exact):
        return text == test.text
    if isinstance(test, Glob):
        return test.matches(text)
    return isinstance(test, Anything) and bool(text)
