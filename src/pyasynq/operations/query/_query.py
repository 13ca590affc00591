"""Parsed queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyasynq.task import TaskState

from ._match import Candidate, matches
from ._place import Place, names_of, reduce_to, scan_filter
from ._tree import FALSE, QueryNode, clauses_of
from ._values import Exact, Glob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq._clock import Instant
    from pyasynq.info import ScanFilter
    from pyasynq.task import TaskInfo

    from ._facts import MatchFacts


@dataclass(frozen=True, slots=True)
class PlacedQuery:
    """A query reduced to the conditions on the tasks of one collection."""

    place: Place
    node: QueryNode = field(repr=False)

    def matches(self, task: TaskInfo, facts: MatchFacts) -> bool:
        """Return whether a task of the collection matches."""
        return matches(self.node, Candidate(task, facts))

    def scan_filter(self, now: Instant, masks: Sequence[str] | None = ()) -> ScanFilter:
        """Return a prefilter for Redis: every match passes it, and some other tasks may pass it too.

        Args:
            now: the present time, from which ages are measured.
            masks: texts that replace secrets, if the query is tested against redacted tasks; None if these
                texts are unknown. Redis searches for no text that overlaps a mask, because its answer would
                reveal the secret.
        """
        return scan_filter(self.node, self.place, now, masks)


@dataclass(frozen=True, slots=True)
class Query:
    """A query, made by `parse_query`."""

    text: str
    """The query as the user wrote it."""
    node: QueryNode = field(repr=False)

    @property
    def fields(self) -> frozenset[str]:
        """Names of the fields: `payload.` for a path in the payload, `""` for a word without a field."""
        return frozenset(clause.field.name for clause in clauses_of(self.node))

    @property
    def needs_payload(self) -> bool:
        """Whether the query tests values that may be redacted, so that it needs the right to view them."""
        return any(clause.field.is_private for clause in clauses_of(self.node))

    @property
    def needs_content(self) -> bool:
        """Whether the query tests more than queue, state and id, so that the content of tasks is needed."""
        return not self.fields <= {"queue", "state", "id"}

    @property
    def needs_redaction(self) -> bool:
        """Whether the query tests values that redaction changes."""
        return self.needs_payload or "size" in self.fields

    @property
    def needs_servers(self) -> bool:
        """Whether the query tests values of running tasks, which are in the records of live servers."""
        return not self.fields.isdisjoint({"running", "deadline", "server", "overdue"})

    @property
    def states(self) -> tuple[TaskState, ...]:
        """States in which a task can match."""
        return tuple(state for state in TaskState if self.may_match(Place(state)))

    @property
    def ids(self) -> frozenset[str] | None:
        """Ids of the only tasks that can match, which a search looks up; None if it must scan collections."""
        return names_of(self.node, "id")

    @property
    def queues(self) -> frozenset[str] | None:
        """Names of the only queues whose tasks can match; None if the query does not limit the queues."""
        return names_of(self.node, "queue")

    @property
    def queue_values(self) -> frozenset[str]:
        """Names and patterns of queues in the query, including negated ones."""
        tests = [
            test for clause in clauses_of(self.node) if clause.field.name == "queue" for test in clause.tests
        ]
        named = {test.text for test in tests if isinstance(test, Exact)}
        return frozenset(named | {"*".join(test.parts) for test in tests if isinstance(test, Glob)})

    def may_match(self, place: Place) -> bool:
        """Return whether tasks of a collection can match."""
        return reduce_to(self.node, place) != FALSE

    def places(self, state: TaskState, queue: str) -> list[Place]:
        """Return the collections of a state and queue that can have matches; group None means all groups."""
        node = reduce_to(self.node, Place(state, queue))
        groups = names_of(node, "group") if state is TaskState.AGGREGATING else None
        if groups is not None:
            return [Place(state, queue, group) for group in sorted(groups) if group.strip()]
        return [] if node == FALSE else [Place(state, queue)]

    def at(self, place: Place) -> PlacedQuery:
        """Return the query reduced to one collection (partial evaluation)."""
        return PlacedQuery(place, reduce_to(self.node, place))

    def matches(self, task: TaskInfo, facts: MatchFacts) -> bool:
        """Return whether a task matches."""
        return matches(self.node, Candidate(task, facts))
