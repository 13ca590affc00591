"""Filters, pages and sizes of walks (cursor pagination) through collections of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypedDict

if TYPE_CHECKING:
    from pyasynq.options import Duration
    from pyasynq.task import TaskInfo


class TaskFilters(TypedDict, total=False):
    """Conditions of a search; a task must match all that are given."""

    type: str
    """Name of the task type, which must match as a whole."""
    payload: str | bytes
    """Text or bytes that the payload contains."""
    error: str
    """Text that the last error contains."""
    older_than: Duration
    """Shortest time that the task has been in its state; in `retry`, since its last failure."""
    newer_than: Duration
    """Longest time that the task has been in its state."""


class ScanText(NamedTuple):
    """Condition that Redis tests before it sends a task: a text occurs in it."""

    source: Literal["message", "id", "result"]
    """Searched bytes: the message (type, payload, error, headers, group), message and id, or the result."""
    data: bytes


class ScanNumber(NamedTuple):
    """Condition that Redis tests before it sends a task: a number is in a range."""

    source: int | str
    """Tested number: a protobuf field of the message by its number, or a value in JSON by its name.

    For a field of bytes, the length is tested.
    """
    low: str
    """The lowest number, included; empty means unbounded."""
    high: str
    """The highest number, included; empty means unbounded."""
    text: str = ""
    """Text that the value in JSON may be instead of a number in the range; empty for none."""


class ScanFilter(NamedTuple):
    """Filter that Redis applies during a walk: bounds of scores, and tests of texts and numbers."""

    low: int | None = None
    """The lowest score, in Unix seconds; None means unbounded. Only tasks in sorted sets have scores."""
    high: int | None = None
    """The highest score, in Unix seconds; None means unbounded."""
    texts: tuple[tuple[ScanText | ScanNumber, ...], ...] = ()
    """Tests, case-sensitive; a task must pass at least one test of each inner tuple."""


@dataclass(frozen=True, slots=True)
class CollectionCount:
    """Size of a collection of tasks."""

    size: int
    positions: int
    """Number of its tasks whose score is in the range of the filter."""


@dataclass(frozen=True, slots=True)
class TaskPage:
    """A page of a walk through a collection of tasks."""

    tasks: tuple[TaskInfo, ...]
    """The matching tasks, except tasks whose message cannot be decoded."""
    cursor: str
    """Argument `cursor` of the next call; empty at the end."""
    looked_at: int
    """Number of examined positions, including tasks that are left out."""


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Matches in the part of a state that one call of a search examined."""

    tasks: tuple[TaskInfo, ...]
    cursor: int | None
    """Argument `cursor` of the next call; None at the end."""
    scanned: int
    """Number of tasks that were examined."""
