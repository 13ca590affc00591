"""Queries: whatever is typed is answered, or refused at a place in it, and never takes long."""

from __future__ import annotations

import sys
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from pyasynq._clock import Instant
from pyasynq.errors import QueryError
from pyasynq.operations.query import (
    FIELDS,
    MAX_LENGTH,
    CollectionSize,
    Known,
    MatchFacts,
    Place,
    Query,
    complete,
    explain,
    parse_query,
)
from pyasynq.task import TaskInfo, TaskState
from tests.fuzz.fuzzer import DEEP, TEXTS, as_text, fuzzer

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_CALLS: Final = 20_000
"""Calls of functions in one answer. Each takes less than a microsecond or two, so it ends within 50 ms."""

NOW: Final = Instant(2_000_000_000)
PIECES: Final = st.sampled_from(
    [
        *FIELDS,
        *(f"{name}:" for name in FIELDS),
        *(f"{field.example} " for field in FIELDS.values()),
        *(state.value for state in TaskState),
        *("(", ")", " ", " OR ", " AND ", "NOT ", "-", ",", '"', "\\", "*", ".", "..", ":", ">", "<=", "%"),
        *(
            "1",
            "1h",
            "2026-01-01",
            "2026-01-01T00:00Z",
            "9" * 400,
            "1e9999",
            "sig:ab",
            "kB",
            "0" * 50,
            "\x00",
        ),
    ]
)
QUERIES: Final = st.lists(PIECES | TEXTS, max_size=60).map("".join) | st.sampled_from(
    [
        "*" * MAX_LENGTH,
        "(" * MAX_LENGTH,
        '"' * MAX_LENGTH,
        "type:" + "a*" * 900,
        "payload" + ".*" * 900 + ":1",
    ]
)
TASKS: Final = [
    TaskInfo(
        id="a",
        queue="mail",
        type="a" * 1_000,
        payload=payload,
        state=state,
        max_retry=25,
        retried=3,
        timeout=None,
        deadline=None,
        next_process_at=NOW.to_datetime(),
        retention=timedelta(0),
        headers={"a": "NaN"},
        last_error="'" * 10_000,
        last_failed_at=NOW.to_datetime(),
        in_state_since=NOW.to_datetime(),
        result=b"a" * 10_000,
    )
    for state in TaskState
    for payload in (DEEP, b'{"a": [[1], {"a": 1e400}]}', b"a" * 100_000)
]


def within_bounds(work: Callable[[], Any]) -> Any:
    """Return what a function returns; count the calls that it makes, which say how long it takes."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        return work()
    finally:
        sys.setprofile(before)
        assert calls <= MOST_CALLS, calls


def _read(text: str) -> Query | QueryError:
    try:
        return parse_query(text)
    except QueryError as error:
        return error


@fuzzer(QUERIES, from_bytes=as_text)
def read_a_query(text: str) -> None:
    """The error's place is in the query, and what it suggests is short."""
    query = within_bounds(lambda: _read(text))
    if isinstance(query, QueryError):
        assert 0 <= query.position <= len(text)
        assert 0 <= query.length <= len(text) - query.position
        assert query.sentence
        return
    facts = MatchFacts(NOW)
    for task in TASKS:
        place = Place(task.state, "mail")
        placed = query.at(place)
        assert query.matches(task, facts) is within_bounds(partial(placed.matches, task, facts))
        within_bounds(partial(placed.scan_filter, NOW))
    assert explain(query, [CollectionSize(Place(TaskState.RETRY, "mail"), 1, 1)]).positions == 1


@fuzzer(st.tuples(QUERIES, st.integers(-5, MAX_LENGTH + 5), st.lists(TEXTS, max_size=5)))
def complete_a_query(value: tuple[str, int, list[str]]) -> None:
    """A completion replaces something before the caret."""
    text, caret, names = value
    known = Known(names, names, names, names, names, names)
    for one in within_bounds(lambda: complete(text, caret, known)):
        assert 0 <= one.start <= one.end <= max(0, min(caret, len(text)))
