"""Pagination by page number (offset pagination) of a table whose rows are all known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pyasynq.web.page import PAGE_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq.web.page import PageRequest

Row = TypeVar("Row")
Built = TypeVar("Built")


@dataclass(frozen=True, slots=True)
class Pagination(Generic[Row]):
    """The rows of one page of a table, and the links to its neighbors."""

    shown: tuple[Row, ...]
    text: str
    """Range of the shown rows: `51 to 100 of 4,000`, or `3 queues` for a single page."""
    first_page: str
    """Address of the first page; empty on the first page."""
    next_page: str
    """Address of the next page; empty on the last one."""

    def map_rows(self, build: Callable[[Row], Built]) -> Pagination[Built]:
        """Return the same page with a row built from each of its items."""
        return Pagination(tuple(map(build, self.shown)), self.text, self.first_page, self.next_page)


def paginate(ask: PageRequest, found: Sequence[Row], total: str, parameter: str = "page") -> Pagination[Row]:
    """Return the page of a table that a query parameter names, or the last page if the number is too high.

    `total` is the number of all rows as text, such as `3 queues`. Two tables of one HTML page need
    different parameters.
    """
    last = max(1, math.ceil(len(found) / PAGE_SIZE))
    page = ask.number(parameter, 1, last)
    first = (page - 1) * PAGE_SIZE
    shown = tuple(found[first : first + PAGE_SIZE])
    return Pagination(
        shown=shown,
        text=total if last == 1 else f"{first + 1:,} to {first + len(shown):,} of {len(found):,}",
        first_page=ask.links.here(**{parameter: None}) if page > 1 else "",
        next_page=ask.links.here(**{parameter: page + 1}) if page < last else "",
    )


def read_filter(ask: PageRequest) -> str:
    """Return the text that rows have to contain: the query parameter `f`."""
    return ask.query.get("f", "").strip()[:200]
