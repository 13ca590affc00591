# Generated from src/pyasynq/operations/select.py by tools/unasync.py; change that file and run `make sync`.
"""Execution of a query: scans its collections, newest tasks first, page by page within a budget."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._clock import SYSTEM_CLOCK
from pyasynq.operations.query import (
    CollectionSize,
    Explanation,
    Place,
    PlacedQuery,
    Query,
    explain,
    match_facts,
)
from pyasynq.operations.search_slots import search_slots
from pyasynq.operations.selection import Budget, SearchProgress, SelectionCursor
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._clock import Clock
    from pyasynq.info import CollectionCount, ScanFilter, TaskPage
    from pyasynq.sync.inspector import Inspector
    from pyasynq.operations.query import MatchFacts
    from pyasynq.operations.selection import BlockingSelections
    from pyasynq.task import TaskInfo

_STATES: Final = (
    TaskState.ACTIVE,
    TaskState.RETRY,
    TaskState.ARCHIVED,
    TaskState.PENDING,
    TaskState.SCHEDULED,
    TaskState.AGGREGATING,
    TaskState.COMPLETED,
)
"""Order in which the states are searched: states with likely problems first."""
_MOST_AT_ONCE: Final = 1_000
_PROGRESS_SECONDS: Final = 0.25
"""Interval, in seconds, at which a search without matches reports its progress."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One collection to search, with the part of the query that applies to its tasks."""

    size: CollectionSize
    placed: PlacedQuery
    scan_filter: ScanFilter

    @property
    def order(self) -> tuple[int, str, str]:
        """Sort key of the collection in the order of the search."""
        return _order(self.size.place)


class Selector:
    """Runs queries on one Redis.

    Collections are searched one after another, by state and then by queue: active, retry, archived, pending,
    scheduled, aggregating, completed. In each collection the newest tasks come first. At most two searches of
    a process read from Redis at once; each acquires a slot of a semaphore for every page that it reads.

    Args:
        inspector: reads Redis.
        may_see: returns whether the tasks of a queue may be searched.
        shown: returns a task as the user sees it. The query is tested against that, so that a search
            reveals nothing about redacted values; None hides the task. Without `shown`, tasks are shown
            unredacted.
        masks: texts that `shown` puts in the place of secrets, so that Redis does not look for parts of them.
            None if these texts are unknown; then Redis searches nothing that may be redacted.
        clock: source of the present time, against which ages are measured.
    """

    def __init__(
        self,
        inspector: Inspector,
        *,
        may_see: Callable[[str], bool] = lambda _queue: True,
        shown: Callable[[TaskInfo], TaskInfo | None] | None = None,
        masks: Sequence[str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._inspector = inspector
        self._may_see = may_see
        self._shown = shown
        self._masks = () if shown is None else masks
        self._clock = clock

    def explain(self, query: Query) -> Explanation:
        """Estimate the cost of a query. Counts collections, and reads no task."""
        queues = self._find_queues(query)
        if query.ids is not None:
            return explain(query, (), look_ups=len(query.ids) * len(queues))
        parts = self._find_parts(query, queues)
        return explain(query, [part.size for part in parts])

    def pages(
        self, query: Query, *, cursor: str = "", limit: int = 50, budget: Budget | None = None
    ) -> BlockingSelections:
        """Yield matches as they are found, with the progress of the search; the last page has `is_last`.

        Args:
            query: the query.
            cursor: cursor of the previous selection of the same query; empty for the first one.
            limit: maximum number of matches.
            budget: limit of work; by default 100,000 examined positions or two seconds.

        Raises:
            InvalidOptionError: for a cursor that a search by this query did not return, or a limit below 1.
            RedisError: Redis, or the connection to it, fails.
        """
        place = SelectionCursor.parse(cursor, query.text)
        progress = SearchProgress(place, limit, budget or Budget())
        queues = self._find_queues(query)
        if query.ids is not None:
            for found in self._look_up(query, queues, progress):
                yield found
            return
        parts = self._find_parts(query, queues)
        progress.total = sum(part.size.positions for part in parts)
        facts = self._read_facts(query)
        for found in self._walk(query, parts, facts, progress):
            yield found

    def _find_queues(self, query: Query) -> list[str]:
        named = query.queues
        found = self._inspector.queues()
        names = [name for name in found if (named is None or name in named) and self._may_see(name)]
        if "queue" not in query.fields:
            return names
        states = query.states
        return [name for name in names if any(query.may_match(Place(state, name)) for state in states)]

    def _read_facts(self, query: Query) -> MatchFacts:
        servers = self._inspector.servers() if query.needs_servers else ()
        return match_facts(self._clock.now(), servers)

    def _find_parts(self, query: Query, queues: Sequence[str]) -> list[_Part]:
        """Return the non-empty collections that the query has to scan, in the order of the search."""
        placed = _reduce_to_places(query, queues)
        now = self._clock.now()
        # Most collections share their tree, so its filter is made once.
        filters: dict[int, ScanFilter] = {}
        for one in placed:
            if id(one.node) not in filters:
                filters[id(one.node)] = one.scan_filter(now, self._masks)
        counts = self._inspector.count_collections(
            [
                (one.place.queue or "", one.place.state, one.place.group or "", filters[id(one.node)])
                for one in placed
            ]
        )
        return [
            _part(one, count, filters[id(one.node)])
            for one, count in zip(placed, counts, strict=True)
            if count.positions
        ]

    def _walk(
        self, query: Query, parts: Sequence[_Part], facts: MatchFacts, progress: SearchProgress
    ) -> BlockingSelections:
        order = progress.place.order(_STATES)
        left = [part for part in parts if part.order >= order]
        told_at = time.monotonic()
        for number, part in enumerate(left):
            cursor = progress.place.inner if part.order == order else ""
            is_first = True
            while is_first or cursor:
                is_first = False
                page, tasks = self._step(part, cursor, facts, progress)
                cursor = page.cursor
                place = part.size.place
                progress.add(page.looked_at, tasks, place)
                following = self._make_cursor(query, place, cursor, left[number + 1 : number + 2], progress)
                is_over = progress.is_over or not following
                if tasks or is_over or time.monotonic() - told_at > _PROGRESS_SECONDS:
                    told_at = time.monotonic()
                    yield progress.selection(tasks, following, is_last=is_over)
                if is_over:
                    return
        if not left:
            yield progress.selection((), "", is_last=True)

    def _make_cursor(
        self, query: Query, place: Place, cursor: str, others: Sequence[_Part], progress: SearchProgress
    ) -> str:
        """Return the cursor with which a search continues after a step; empty at the end."""
        if not cursor:
            if not others:
                return ""
            place = others[0].size.place
        return progress.cursor(place, cursor).text(query.text)

    def _step(
        self, part: _Part, cursor: str, facts: MatchFacts, progress: SearchProgress
    ) -> tuple[TaskPage, list[TaskInfo]]:
        """Read one page of a collection; return it with its matches, at most as many as are still wanted."""
        began = time.monotonic()
        with search_slots.enter_blocking():
            # A page size that depends on matches would reveal where the secrets are.
            page_size = progress.page_size if self._shown is None else _MOST_AT_ONCE
            page = self._page(part, cursor, progress, min(_MOST_AT_ONCE, page_size))
            kept = self._find_matching(part, page, facts)
            if len(kept) > progress.wanted:
                # The cursor must be directly behind the last match, so the page is read again up to that
                # match.
                last = kept[progress.wanted - 1][0]
                page = self._page(part, cursor, progress, last + 1)
                kept = self._find_matching(part, page, facts)[: progress.wanted]
        progress.note(len(page.tasks), len(kept), time.monotonic() - began)
        return page, [task for _, task in kept]

    def _page(self, part: _Part, cursor: str, progress: SearchProgress, page_size: int) -> TaskPage:
        place = part.size.place
        return self._inspector.walk_tasks(
            place.queue or "",
            place.state,
            group=place.group or "",
            cursor=cursor,
            page_size=page_size,
            scan=min(progress.scan, progress.positions_left),
            scan_filter=part.scan_filter,
        )

    def _find_matching(self, part: _Part, page: TaskPage, facts: MatchFacts) -> list[tuple[int, TaskInfo]]:
        """Return the matching tasks of a page in displayed form, with their positions in the page."""
        numbered = enumerate(self._show(page.tasks))
        return [(number, task) for number, task in numbered if task and part.placed.matches(task, facts)]

    def _show(self, tasks: Sequence[TaskInfo]) -> Sequence[TaskInfo | None]:
        return tasks if self._shown is None else [self._shown(task) for task in tasks]

    def _look_up(
        self, query: Query, queues: Sequence[str], progress: SearchProgress
    ) -> BlockingSelections:
        """Look up tasks by id, several queues in one call, without scanning a collection."""
        ids = sorted(query.ids or ())
        progress.total = len(ids) * len(queues)
        left = [queue for queue in queues if queue >= progress.place.queue]
        at_once = max(1, _MOST_AT_ONCE // max(1, len(ids)))
        facts = self._read_facts(query)
        for first in range(0, len(left), at_once):
            some = left[first : first + at_once]
            began = time.monotonic()
            with search_slots.enter_blocking():
                found = self._inspector.find_tasks(ids, some)
            tasks = [task for task in self._show(found) if task and query.matches(task, facts)]
            progress.note(len(found), len(tasks), time.monotonic() - began)
            progress.add(len(ids) * len(some), tasks, None)
            others = left[first + at_once : first + at_once + 1]
            following = ""
            if others:
                following = progress.cursor(Place(TaskState.ACTIVE, others[0]), "").text(query.text)
            is_over = progress.is_over or not others
            if tasks or is_over:
                yield progress.selection(tasks, following, is_last=is_over)
            if is_over:
                return
        if not left:
            yield progress.selection((), "", is_last=True)


def _reduce_to_places(query: Query, queues: Sequence[str]) -> list[PlacedQuery]:
    """Return each collection with its part of the query (partial evaluation), in the order of the search.

    All queues share one reduced syntax tree for each state, unless the query tests the queue. For aggregating
    tasks they do not share a tree if the query tests the group.
    """
    placed: list[PlacedQuery] = []
    for state in query.states:
        if "queue" in query.fields or (state is TaskState.AGGREGATING and "group" in query.fields):
            placed += [query.at(place) for queue in queues for place in query.places(state, queue)]
        else:
            node = query.at(Place(state)).node
            placed += [PlacedQuery(Place(state, queue), node) for queue in queues]
    return sorted(placed, key=lambda one: _order(one.place))


def _order(place: Place) -> tuple[int, str, str]:
    return _STATES.index(place.state), place.queue or "", place.group or ""


def _part(placed: PlacedQuery, count: CollectionCount, scan_filter: ScanFilter) -> _Part:
    size = CollectionSize(
        placed.place,
        count.size,
        count.positions,
        is_bounded=scan_filter.low is not None or scan_filter.high is not None,
        is_filtered=bool(scan_filter.texts),
    )
    return _Part(size, placed, scan_filter)
