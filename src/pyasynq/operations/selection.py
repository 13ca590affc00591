"""Results of a search, its progress, and its cursor."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self, TypeAlias

from pyasynq._broker.inspecting.cursors import decode_cursor, encode_cursor, list_tag
from pyasynq._checks import check_whole
from pyasynq._human_text import counted
from pyasynq.errors import InvalidOptionError
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from pyasynq.operations.query import Place
    from pyasynq.task import TaskInfo

AsyncSelections: TypeAlias = "AsyncIterator[Selection]"
BlockingSelections: TypeAlias = "Iterator[Selection]"

_FIRST_PAGE: Final = 100
"""Maximum number of positions, and of matches, in the first step: small, so that results show early."""
_MOST_SCANNED: Final = 1_000
"""Number of positions examined between two checks of the budget."""
_MOST_TYPES: Final = 200
_OTHER: Final = "_other"


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one call of a search, after which the caller decides whether to continue."""

    positions: int = 100_000
    """Maximum number of positions that are examined, or number of ids that are looked up."""
    seconds: float = 2.0
    """Maximum seconds of work; the time that the caller spends on results does not count."""


@dataclass(frozen=True, slots=True)
class Facets:
    """Counts of the matches of one call so far, by field value (faceted search)."""

    queues: Mapping[str, int]
    states: Mapping[str, int]
    types: Mapping[str, int]
    """Number of matches by task type, for the first 200 types; others are counted under `_other`."""


@dataclass(frozen=True, slots=True)
class Selection:
    """One part of a search's matches, with its progress."""

    tasks: tuple[TaskInfo, ...]
    cursor: str
    """Cursor with which the search continues; empty at the end."""
    matches: int
    """Number of matches so far, including earlier calls of the same search (see `cursor`)."""
    looked_at: int
    """Number of positions examined so far, including earlier calls of the same search."""
    total: int
    """Number of positions (tasks) in all searched collections when this call began."""
    facets: Facets
    """Counts of the matches of this call so far, by field value; earlier calls are not included."""
    is_last: bool
    """Whether the search has ended: it has found enough matches, spent its budget, or examined everything."""

    def __str__(self) -> str:
        """Return the progress as text, such as `37 matches in 180,000 of 1,000,000 looked at: go on`."""
        found = counted(self.matches, "match", "matches")
        if not self.cursor:
            return f"{found} in all {self.looked_at:,} looked at"
        return f"{found} in {self.looked_at:,} of {max(self.total, self.looked_at):,} looked at: go on"


@dataclass(frozen=True, slots=True)
class SelectionCursor:
    """Cursor of a search: a collection, the cursor in it, and the counts so far."""

    state: str = ""
    queue: str = ""
    group: str = ""
    inner: str = ""
    matches: int = 0
    looked_at: int = 0

    @classmethod
    def parse(cls, text: str, query: str) -> Self:
        """Parse a cursor that a user has sent. Raises `InvalidOptionError`."""
        if not text:
            return cls()
        found = cls(*decode_cursor(text, list_tag("select", query), "ttttnn"))
        if found.state not in set(TaskState):
            raise InvalidOptionError("cursor", text, "is not a cursor that this query has returned")
        return found

    def text(self, query: str) -> str:
        """Return the cursor as text; it is only valid for the same query."""
        values = (self.state, self.queue, self.group, self.inner, self.matches, self.looked_at)
        return encode_cursor(list_tag("select", query), values)

    def order(self, states: Sequence[TaskState]) -> tuple[int, str, str]:
        """Return the sort key of the collection: its state's position in `states`, then queue and group."""
        return states.index(TaskState(self.state)) if self.state else -1, self.queue, self.group


@dataclass(slots=True)
class SearchProgress:
    """Counts of one search, which the selector that runs it updates."""

    place: SelectionCursor
    limit: int
    budget: Budget
    total: int = 0
    found: int = 0
    looked_at: int = 0
    seconds: float = 0.0
    page_size: int = _FIRST_PAGE
    scan: int = _FIRST_PAGE
    queues: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        check_whole("limit", self.limit, 1)
        check_whole("positions", self.budget.positions, 1)

    @property
    def wanted(self) -> int:
        """Number of matches that the search has still to find before it reaches its limit."""
        return self.limit - self.found

    @property
    def positions_left(self) -> int:
        """Number of positions that the budget still allows; at least one."""
        return max(1, self.budget.positions - self.looked_at)

    @property
    def is_over(self) -> bool:
        """Whether the limit of matches is reached, or the budget is spent."""
        return (
            self.found >= self.limit
            or self.looked_at >= self.budget.positions
            or self.seconds >= self.budget.seconds
        )

    def note(self, read: int, matched: int, seconds: float) -> None:
        """Record the positions, matches and seconds of a step; the size of the next step depends on them."""
        self.seconds += seconds
        self.scan = min(_MOST_SCANNED, 2 * self.scan)
        if matched < read // 2:
            self.page_size = 1_000
        else:
            self.page_size = max(_FIRST_PAGE, self.wanted - matched)

    def add(self, looked_at: int, tasks: Sequence[TaskInfo], place: Place | None) -> None:
        """Add the matches of a step of the search to the counts by queue, state and type.

        Queue and state are those of the collection that was searched; a task may have left it meanwhile.
        """
        self.looked_at += looked_at
        self.found += len(tasks)
        for task in tasks:
            self.queues[(place and place.queue) or task.queue] += 1
            self.states[place.state.value if place else task.state.value] += 1
            is_known = task.type in self.types or len(self.types) < _MOST_TYPES
            self.types[task.type if is_known else _OTHER] += 1

    def cursor(self, place: Place, inner: str) -> SelectionCursor:
        """Return the cursor from which a later search continues, with the counts so far.

        Args:
            place: the collection to continue in.
            inner: the cursor within this collection.
        """
        return SelectionCursor(
            place.state.value,
            place.queue or "",
            place.group or "",
            inner,
            self.place.matches + self.found,
            self.place.looked_at + self.looked_at,
        )

    def selection(self, tasks: Sequence[TaskInfo], cursor: str, *, is_last: bool) -> Selection:
        """Return the matches of a step, and the progress of the search."""
        return Selection(
            tuple(tasks),
            cursor,
            self.place.matches + self.found,
            self.place.looked_at + self.looked_at,
            self.total,
            Facets(dict(self.queues), dict(self.states), dict(self.types)),
            is_last,
        )
