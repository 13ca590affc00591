"""The query language, which selects tasks in the command line, the dashboard and the HTTP API.

    state:retry type:email:* error:timeout failed:<1h -payload.user.test:true

`parse_query` parses a query, `Query.matches` tests it against a task, and `explain` estimates its cost.
This package is pure: it makes no calls to Redis. `pyasynq.operations.select` runs queries.
A name is imported when it is first used, because most programs run no query.
"""

from typing import TYPE_CHECKING, Final

from pyasynq import _lazy_exports
from pyasynq.errors import QueryError

if TYPE_CHECKING:
    from ._complete import Completion, Known, complete
    from ._explain import CollectionSize, Explanation, explain
    from ._facts import MatchFacts, RunningFacts, match_facts
    from ._fields import FIELDS, Answered, Field, Kind
    from ._parse import MAX_CLAUSES, MAX_DEPTH, MAX_LENGTH, parse_query
    from ._place import Place, ScoreBounds
    from ._query import PlacedQuery, Query

_EXPORTS_BY_MODULE: Final = {
    "_complete": "Completion Known complete",
    "_explain": "CollectionSize Explanation explain",
    "_facts": "MatchFacts RunningFacts match_facts",
    "_fields": "FIELDS Answered Field Kind",
    "_parse": "MAX_CLAUSES MAX_DEPTH MAX_LENGTH parse_query",
    "_place": "Place ScoreBounds",
    "_query": "PlacedQuery Query",
}

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

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_exports.attach(__name__, _EXPORTS_BY_MODULE)
