"""The query language, which selects tasks in the command line, the dashboard and the HTTP API.

    state:retry type:email:* error:timeout failed:<1h -payload.user.test:true

`parse_query` parses a query, `Query.matches` tests it against a task, and `explain` describes it beforehand.
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
