"""Partial evaluation of a query for one collection, and predicate pushdown: its filters in Redis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pyasynq._clock import LAST_SECOND
from pyasynq.info import ScanFilter, ScanNumber, ScanText
from pyasynq.task import TaskState

from ._fields import Kind
from ._tree import FALSE, TRUE, All, Clause, Either, Not, QueryNode
from ._values import (
    MICROSECONDS,
    Contains,
    Exact,
    Glob,
    NumberRange,
    TimePeriod,
    ValueTest,
    name_matches,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from decimal import Decimal

    from pyasynq._clock import Instant

_Groups = list[tuple[ScanText | ScanNumber, ...]]
"""Tests in conjunctive normal form: a task must pass at least one test of each tuple."""

_SCORED: Final = {
    (TaskState.SCHEDULED, "due"): (True, True),
    (TaskState.RETRY, "due"): (True, True),
    (TaskState.ARCHIVED, "archived"): (True, True),
    (TaskState.AGGREGATING, "waiting"): (True, True),
    (TaskState.COMPLETED, "expires"): (True, True),
    # The score is the end of the retention, so the time of completion is at most the score.
    (TaskState.COMPLETED, "completed"): (True, False),
}
"""Fields that limit the scores of a collection: by state and field, whether from below and from above."""
_SOURCES: Final[dict[str, Literal["message", "id", "result"]]] = {
    "result": "result",
    "id": "id",
    "": "id",
    "public": "id",
}
"""Part of a stored task that Redis searches for the text of a field; for all other fields, the message."""
_NUMBERED: Final = {"max_retry": 5, "retried": 6, "size": 2, "failed": 11, "completed": 13}
"""Protobuf field numbers of the fields of a task's message that Redis tests."""
_MASK_GROWTH: Final = 8
"""Maximum factor by which masks lengthen a payload, as a name and its secret have at least two bytes."""


@dataclass(frozen=True, slots=True)
class Place:
    """A collection of tasks, named by state, queue and group; None means any queue or group."""

    state: TaskState
    queue: str | None = None
    group: str | None = None


class ScoreBounds(NamedTuple):
    """Lowest and highest score that a match can have, in Unix seconds; None for no bound."""

    low: int | None
    high: int | None

    @property
    def is_bounded(self) -> bool:
        """Whether at least one side is bounded."""
        return self.low is not None or self.high is not None


_UNBOUNDED: Final = ScoreBounds(None, None)
_EMPTY: Final = ScoreBounds(1, 0)


def reduce_to(node: QueryNode, place: Place) -> QueryNode:
    """Reduce a query by partial evaluation for one collection: `TRUE`, `FALSE`, or the remaining tree."""
    if isinstance(node, Clause):
        decided = _decide(node, place)
        return node if decided is None else TRUE if decided else FALSE
    if isinstance(node, Not):
        part = reduce_to(node.part, place)
        return FALSE if part == TRUE else TRUE if part == FALSE else Not(part)
    neutral, decisive = (TRUE, FALSE) if isinstance(node, All) else (FALSE, TRUE)
    parts = [reduce_to(part, place) for part in node.parts]
    if decisive in parts:
        return decisive
    left = tuple(part for part in parts if part != neutral)
    return left[0] if len(left) == 1 else type(node)(left)


def _decide(clause: Clause, place: Place) -> bool | None:
    name = clause.field.name
    if place.state not in clause.field.states:
        return False
    if name == "state":
        return any(name_matches(test, place.state.value) for test in clause.tests)
    if name == "queue" and place.queue is not None:
        return any(name_matches(test, place.queue) for test in clause.tests)
    if name == "group" and place.group is not None and place.state is TaskState.AGGREGATING:
        return any(name_matches(test, place.group) for test in clause.tests)
    return None


def names_of(node: QueryNode, field: str) -> frozenset[str] | None:
    """Return the values of a field, such as `id`, that limit the matches; None if any value may match."""
    if isinstance(node, Clause):
        if node.field.name != field:
            return None
        exact = [test.text for test in node.tests if isinstance(test, Exact)]
        return frozenset(exact) if len(exact) == len(node.tests) else None
    if isinstance(node, Not):
        return None
    found = [names_of(part, field) for part in node.parts]
    known = [names for names in found if names is not None]
    if isinstance(node, All):
        return frozenset.intersection(*known) if known else None
    return frozenset().union(*known) if len(known) == len(found) else None


def scan_filter(node: QueryNode, place: Place, now: Instant, masks: Sequence[str] | None) -> ScanFilter:
    """Return a filter with which Redis skips tasks that cannot match: bounds of the score, and texts.

    `masks` are the texts that replace secrets in redacted tasks, against which the query is tested. None
    means that these texts are unknown.
    """
    low, high = _bounds(node, place.state, now.to_microseconds())
    return ScanFilter(low, high, tuple(_texts(node, masks, now.to_microseconds())))


def _may_be_masked(text: str, masks: Sequence[str] | None) -> bool:
    """Return whether a searched text may overlap a mask; the stored message has a secret in its place."""
    if masks is None:
        return True
    return any(text in mask or mask[:1] in text or mask[-1:] in text for mask in masks)


def _bounds(node: QueryNode, state: TaskState, now: int) -> ScoreBounds:
    if isinstance(node, Clause):
        sides = _SCORED.get((state, node.field.name))
        if sides is None or not node.tests:
            return _UNBOUNDED
        return _hull([_range_bounds(test, sides, now) for test in node.tests])
    if isinstance(node, Not):
        return _UNBOUNDED
    parts = [_bounds(part, state, now) for part in node.parts]
    if isinstance(node, Either):
        return _hull(parts)
    lows = [part.low for part in parts if part.low is not None]
    highs = [part.high for part in parts if part.high is not None]
    return ScoreBounds(max(lows, default=None), min(highs, default=None))


def _hull(parts: Sequence[ScoreBounds]) -> ScoreBounds:
    parts = [part for part in parts if part.low is None or part.high is None or part.low <= part.high]
    if not parts:
        return _EMPTY
    lows, highs = [part.low for part in parts], [part.high for part in parts]
    low = None if None in lows else min(low for low in lows if low is not None)
    return ScoreBounds(low, None if None in highs else max(high for high in highs if high is not None))


def _range_bounds(test: ValueTest, sides: tuple[bool, bool], now: int) -> ScoreBounds:
    if not isinstance(test, TimePeriod):
        return _UNBOUNDED
    low, high = test.bounds(now)
    # A task's time is its score, rounded up to a whole second.
    return ScoreBounds(
        None if low is None or not sides[0] else low // MICROSECONDS - 1,
        None if high is None or not sides[1] else math.ceil(high / MICROSECONDS),
    )


def _texts(node: QueryNode, masks: Sequence[str] | None, now: int) -> _Groups:
    if isinstance(node, Clause):
        return _join_alternatives([_tests_for_redis(node, test, masks, now) for test in node.tests])
    if isinstance(node, Not):
        return []
    parts = [_texts(part, masks, now) for part in node.parts]
    if isinstance(node, All):
        return [group for part in parts for group in part]
    return _join_alternatives(parts)


def _join_alternatives(parts: Sequence[_Groups]) -> _Groups:
    """Combine the tests of alternatives (OR): a match passes the tests of at least one of them.

    The result is a single tuple of tests, joined from the most selective tuple of each alternative: the one
    whose shortest text is longest. If an alternative has no tuple, the result is empty. A single alternative
    is returned unchanged.
    """
    if len(parts) == 1:
        return parts[0]
    if not parts or not all(parts):
        return []
    best = [max(groups, key=lambda group: min(map(_length, group))) for groups in parts]
    return [tuple(dict.fromkeys(text for group in best for text in group))]


def _length(one: ScanText | ScanNumber) -> int:
    return 0 if isinstance(one, ScanNumber) else len(one.data)


def _tests_for_redis(clause: Clause, test: ValueTest, masks: Sequence[str] | None, now: int) -> _Groups:
    """Return tests by which Redis prefilters a clause: every match passes them, and some other tasks may."""
    field = clause.field
    if field.kind not in {Kind.NUMBER, Kind.SIZE, Kind.PAST, Kind.PATH} or field.name == "header.":
        return _texts_of_test(clause, test, masks)
    if masks is None:
        return []
    if field.name == "payload.":
        number = _number_in_json(clause, test, masks)
    elif isinstance(test, NumberRange) and field.name in _NUMBERED:
        number = ScanNumber(_NUMBERED[field.name], _spell(test.low), _spell(test.high))
        if field.name == "size" and masks:
            number = _size_unmasked(test)
    elif isinstance(test, TimePeriod) and field.name in _NUMBERED:
        number = _seconds(_NUMBERED[field.name], test, now)
    else:
        return []
    return [(number,)] if number and (number.low or number.high or number.text) else []


def _spell(number: Decimal | None) -> str:
    return "" if number is None else str(number)


def _size_unmasked(test: NumberRange) -> ScanNumber:
    """Return a lower bound of the stored payload's size, since masks may lengthen the redacted payload."""
    return ScanNumber(_NUMBERED["size"], "" if test.low is None else str(int(test.low) // _MASK_GROWTH), "")


def _seconds(field: int, test: TimePeriod, now: int) -> ScanNumber:
    low, high = test.bounds(now)
    # Times that no datetime can hold are shown as the last one that can.
    is_open = high is None or high >= LAST_SECOND * MICROSECONDS
    return ScanNumber(
        field,
        "" if low is None else str(low // MICROSECONDS),
        "" if high is None or is_open else str(math.ceil(high / MICROSECONDS)),
    )


def _number_in_json(clause: Clause, test: ValueTest, masks: Sequence[str]) -> ScanNumber | None:
    name = clause.path[-1]
    if not name or (name.isascii() and name.isdigit()):
        # A number may be an index in a list.
        return None
    if isinstance(test, NumberRange):
        return ScanNumber(name, _spell(test.low), _spell(test.high))
    if not isinstance(test, Exact) or not test.text or _may_be_masked(test.text, masks):
        return None
    number = _spell(test.number)
    return ScanNumber(name, number, number, test.text)


def _texts_of_test(clause: Clause, test: ValueTest, masks: Sequence[str] | None) -> _Groups:
    field = clause.field
    if field.name in {"state", "queue", "server"}:
        return []
    texts = [part for part in clause.path if part] if field.name == "header." else []
    if isinstance(test, (Exact, Contains)):
        texts.append(test.text)
    elif isinstance(test, Glob):
        texts += test.parts
    if field.is_private:
        texts = [text for text in texts if not _may_be_masked(text, masks)]
    source = _SOURCES.get(field.name, "message")
    return [(ScanText(source, text.encode()),) for text in texts if text]
