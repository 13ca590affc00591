# Generated from src/pyasynq/operations/operator/search.py by tools/unasync.py; change that file and run `make sync`.
"""The operator's methods about finding tasks by queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq.errors import InvalidOptionError
from pyasynq.operations.permissions import Permission
from pyasynq.operations.redaction import MASK
from pyasynq.operations.shown import HIDDEN

from ._base import OperatorBase

if TYPE_CHECKING:
    from collections.abc import Iterator, Callable, Sequence

    from pyasynq.operations.query import Completion, Explanation, Known, Query
    from pyasynq.operations.sync.select import Selector
    from pyasynq.operations.selection import BlockingSelections, Budget
    from pyasynq.task import TaskInfo

_MOST_TASKS: Final = 1_000_000_000
_MOST_POSITIONS: Final = 1_000_000_000
_MOST_SECONDS: Final = 3_600.0
"""Maximum seconds of work of an export, since its caller waits for all of it."""


class SearchOperator(OperatorBase):
    """The operator's methods that find tasks by a query.

    A query is tested against redacted tasks, so that it reveals no secrets. A query for payloads, headers,
    results or errors is run only in queues whose payloads the user may view. A user who may view no payloads
    cannot use these fields, and words are searched in ids and types only.
    """

    def search(
        self,
        query: str,
        queues: Sequence[str] | None = None,
        *,
        cursor: str = "",
        limit: int = 50,
        budget: Budget | None = None,
    ) -> BlockingSelections:
        """Run a query; yield its matches in parts as they are found, in each collection the newest first.

        Args:
            query: query in the query language, see docs/query.md.
            queues: where to search; None is everywhere.
            cursor: cursor of the previous selection of the same query; empty for the first one.
            limit: maximum number of matches.
            budget: limit of work; by default 100,000 examined positions or two seconds.

        Raises:
            QueryError: for a query that cannot be read, or uses a field that the user may not view.
            InvalidOptionError: for a cursor that a search by this query did not return.
        """
        parsed = self._parse(query)
        pages = self._selector(parsed, queues).pages(parsed, cursor=cursor, limit=limit, budget=budget)
        for selection in pages:
            yield selection

    def export(
        self, query: str = "", queues: Sequence[str] | None = None, *, limit: int | None = None
    ) -> Iterator[str]:
        """Yield the tasks that match as lines of JSON, as `export_line` writes them, without their secrets.

        The audit records the number of exported tasks. A task that changes its state during the export may be
        exported twice.

        Args:
            query: query in the query language, see docs/query.md; empty for all tasks.
            queues: where to search; None is all queues whose payloads the user may view.
            limit: maximum number of tasks; None for all.

        Raises:
            QueryError: for a query that cannot be read.
            InvalidOptionError: for a limit below 1; without a limit, after an hour of work.
        """
        from pyasynq.operations.export import export_line  # noqa: PLC0415 - most calls need none
        from pyasynq.operations.selection import Budget  # noqa: PLC0415 - most calls need none

        parsed = self._parse(query)
        most = _MOST_TASKS if limit is None else limit
        budget = Budget(_MOST_POSITIONS, _MOST_SECONDS)
        exported = 0
        for page in self._selector(parsed, queues).pages(parsed, limit=most, budget=budget):
            for task in page.tasks:
                yield export_line(task)
            exported += len(page.tasks)
            if page.is_last and page.cursor and (limit is None or exported < limit):
                raise InvalidOptionError("query", query, "takes too long to answer; narrow it")

    def explain_search(self, query: str, queues: Sequence[str] | None = None) -> Explanation:
        """Estimate the tasks that a search would examine, and its duration, without reading tasks.

        Raises:
            QueryError: as `search`.
        """
        parsed = self._parse(query)
        return self._selector(parsed, queues).explain(parsed)

    def complete_query(
        self, text: str, caret: int, known: Known | None = None, queues: Sequence[str] | None = None
    ) -> list[Completion]:
        """Complete a query that is being written; return at most 20 completions.

        Args:
            text: the query so far.
            caret: position of the caret in `text`, in characters from 0.
            known: names from tasks on screen or from statistics; the queues that the user sees are added
                to them.
            queues: queues whose names are suggested; None is all.
        """
        from pyasynq.operations.query import Known, complete  # noqa: PLC0415 - most calls need none

        names = self._inspector.queues() if queues is None else list(queues)
        given = known or Known()
        seen = [name for name in (*given.queues, *names) if self._access.sees(name)]
        return complete(
            text,
            caret,
            Known(
                list(dict.fromkeys(seen)),
                given.types,
                given.groups,
                given.servers,
                given.payload_paths,
                given.header_names,
            ),
        )

    def _parse(self, query: str) -> Query:
        from pyasynq.operations.query import parse_query  # noqa: PLC0415 - most calls need none

        return parse_query(query, private=self._access.may_somewhere(Permission.PAYLOAD_VIEW))

    def _selector(
        self, query: Query, queues: Sequence[str] | None, *, redacts_always: bool = True
    ) -> Selector:
        """Return a selector for a query of the user.

        With `redacts_always=False` tasks are redacted only if the query tests values that may be secret. The
        caller must then return them only as the result of a verb, which is redacted again.
        """
        from pyasynq.operations.sync.select import Selector  # noqa: PLC0415 - most calls need none

        redacts = redacts_always or query.needs_redaction or self._redactor.has_hook
        return Selector(
            self._inspector,
            may_see=self._may_search(query, queues),
            shown=self._show_task if redacts else None,
            masks=None if self._redactor.has_hook else (MASK,),
            clock=self._connections.clock,
        )

    def _may_search(self, query: Query, queues: Sequence[str] | None) -> Callable[[str], bool]:
        """Return a function that tells whether the user may run the query in a queue."""
        needed = Permission.PAYLOAD_VIEW if query.needs_payload else Permission.TASKS_VIEW
        asked = None if queues is None else set(queues)
        access = self._access
        return lambda queue: (
            (asked is None or queue in asked) and access.sees(queue) and access.may(needed, queue)
        )

    def _show_task(self, task: TaskInfo) -> TaskInfo | None:
        shown = self._shown(task)
        return None if shown is HIDDEN else shown
