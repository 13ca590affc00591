"""The query language: one way to say which tasks are meant, for all faces.

    state:retry type:email:* error:timeout failed:<1h -payload.user.test:true

A query is read by `parse_query`, tested against a task by `Query.matches`, and told in advance by `explain`.
Everything here is pure: it asks Redis nothing. `pyasynq.operations.select` runs queries.
"""

from pyasynq.errors import QueryError

from ._complete import Completion, Known, complete
from ._explain import CollectionSize, Explanation, explain
from ._facts import MatchFacts, RunningFacts, match_facts
from ._fields import FIELDS, Answered, Field, Kind
from ._parse import MAX_CLAUSES, MAX_DEPTH, MAX_LENGTH, parse_query
from ._place import Place, ScoreBounds
from ._query import PlacedQuery, Query

__all__ = [
    "FIELDS",
    "MAX_CLAUSES",
    "MAX_DEPTH",
    "MAX_LENGTH",
    "Answered",
    "CollectionSize",
    "Completion",
    "Explanation",
    "Field",
    "Kind",
    "Known",
    "MatchFacts",
    "Place",
    "PlacedQuery",
    "Query",
    "QueryError",
    "RunningFacts",
    "ScoreBounds",
    "complete",
    "explain",
    "match_facts",
    "parse_query",
]
