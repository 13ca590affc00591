"""Estimate of a query's cost before it is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._place import Place
    from ._query import Query

_FILTERED_PER_SECOND: Final = 250_000
"""Estimated number of positions examined per second if Redis filters tasks by a text."""
_DECODED_PER_SECOND: Final = 40_000
"""Estimated number of positions examined per second if each task is sent and decoded."""
_LOOK_UP_SECONDS: Final = 0.0002


@dataclass(frozen=True, slots=True)
class CollectionSize:
    """A collection that a search examines."""

    place: Place
    size: int
    """Number of tasks in the collection."""
    positions: int
    """Number of tasks to examine: those within the range of scores, or all tasks without a range."""
    is_bounded: bool = False
    """Whether the query limits the collection to a range of scores."""
    is_filtered: bool = False
    """Whether Redis filters the tasks by a text of the query."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Cost estimate of a query: the collections and tasks to examine (as SQL's EXPLAIN)."""

    query: str
    collections: tuple[CollectionSize, ...]
    """Collections that have tasks, in the order of the search."""
    look_ups: int
    """Number of ids that are looked up, in all queues together; if not 0, no collection is examined."""
    positions: int
    """Number of positions to examine in all collections."""
    size: int
    """Number of all tasks in these collections, examined or not."""
    is_bounded: bool
    """Whether each collection is limited to a range of scores."""
    seconds: float
    """Estimated duration of the query in seconds."""

    def __str__(self) -> str:
        """Return the estimate as a sentence."""
        if self.look_ups:
            return f"Looks up {counted(self.look_ups, 'id')}, about {duration(self.seconds)}."
        where = counted(len(self.collections), "collection")
        bound = f", bounded by time, of {self.size:,}" if self.is_bounded and self.collections else ""
        return (
            f"Looks at {counted(self.positions, 'task')} in {where}{bound}, about {duration(self.seconds)}."
        )


def explain(query: Query, collections: Sequence[CollectionSize], *, look_ups: int = 0) -> Explanation:
    """Estimate the cost of a query on these collections, or of looking up this many ids."""
    seconds = look_ups * _LOOK_UP_SECONDS
    for one in collections:
        seconds += one.positions / (_FILTERED_PER_SECOND if one.is_filtered else _DECODED_PER_SECOND)
    return Explanation(
        query.text,
        tuple(collections),
        look_ups,
        sum(one.positions for one in collections),
        sum(one.size for one in collections),
        all(one.is_bounded for one in collections),
        seconds,
    )
