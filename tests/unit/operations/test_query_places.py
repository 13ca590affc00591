"""What a query means for one collection: what Redis can leave out."""

from __future__ import annotations

import pytest

from pyasynq._clock import Instant
from pyasynq.info import ScanFilter, ScanNumber, ScanText
from pyasynq.operations.query import CollectionSize, Place, explain, parse_query
from pyasynq.task import TaskState

NOW = Instant(1_000_000)


def filtered(text: str, state: str, group: str | None = None) -> ScanFilter:
    """Return what Redis can leave out of a collection."""
    return parse_query(text).at(Place(TaskState(state), "mail", group)).scan_filter(NOW)


def texts(text: str, state: str = "archived") -> list[str]:
    """Return the texts that Redis looks for, alternatives joined by a bar."""
    return ["|".join(map(spelled, group)) for group in filtered(text, state).texts]


def spelled(one: ScanText | ScanNumber) -> str:
    """Return a text, or the source of a number and what it may be."""
    if isinstance(one, ScanText):
        return one.data.decode()
    return f"{one.source}={one.low}..{one.high}{one.text and ' or ' + one.text}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("queue:mail state:archived", {"mail"}),
        ("queue:mail,other", {"mail", "other"}),
        ("queue:mail queue:other", set()),
        ("queue:mail OR queue:other", {"mail", "other"}),
        ("queue:mail OR state:archived", None),
        ("queue:ma*", None),
        ("-queue:mail", None),
    ],
)
def test_a_query_names_the_queues_that_it_is_about(text: str, expected: set[str] | None) -> None:
    """So that a search in one of a thousand queues tests none of the others."""
    assert expected == parse_query(text).queues


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("word", ["word"]),
        ("type:email:*", ["email:"]),
        ("type:a*bc*", ["a", "bc"]),
        ("type:a,bc", ["a|bc"]),
        ("error:boom payload:x", ["boom", "x"]),
        ("error:boom OR payload:x", ["boom|x"]),
        ("error:boom OR retried:3", ["boom|6=3..3"]),
        ("retried:>3 max_retry:0..5", ["6=3..", "5=0..5"]),
        ("size:>100kB", ["2=100000.."]),
        ("failed:<1h", ["11=996400.."]),
        ("-retried:3", []),
        ("crashes:>1", []),
        ("-error:boom", []),
        ("error:sig:ab12", []),
        ("payload.a:b", ["a=.. or b"]),
        ("payload.x.user_id:42", ["user_id=42..42 or 42"]),
        ("payload.user_id:>=42", ["user_id=42.."]),
        ("payload.a:b,3", ["a=.. or b|a=3..3 or 3"]),
        ('payload.a:""', []),
        ("payload.a:b*", []),
        ("payload.a.*:b", []),
        ("payload.items.0:b", []),
        ("header.tenant:acme", ["tenant", "acme"]),
        ("(type:a*bc error:d) OR queue:other", ["a", "bc", "d"]),
        ("(type:a*bc error:d) OR type:e", ["bc|e"]),
        ("state:archived error:x OR state:pending type:y", ["x"]),
        ("type:*", []),
    ],
)
def test_redis_looks_for_texts_that_every_match_has(text: str, expected: list[str]) -> None:
    """One of the alternatives of each; no text of a negation or of what is decoded."""
    assert expected == texts(text)


def test_texts_name_where_they_are_looked_for() -> None:
    """A word may be the id, which stands outside the message too; a result is another field."""
    assert ((ScanText("id", b"a"),), (ScanText("result", b"b"),)) == filtered("a result:b", "completed").texts


@pytest.mark.parametrize(
    ("text", "state", "expected"),
    [
        ("archived:<1h", "archived", (996_399, None)),
        ("archived:>1h", "archived", (None, 996_400)),
        ("archived:1h..2h", "archived", (992_799, 996_400)),
        ("archived:1h..2h archived:<90m", "archived", (994_599, 996_400)),
        ("archived:<1h OR archived:<2h", "archived", (992_799, None)),
        ("archived:<1h OR type:a", "archived", (None, None)),
        ("-archived:<1h", "archived", (None, None)),
        ("failed:<1h", "archived", (None, None)),
        ("due:<5m", "scheduled", (None, 1_000_300)),
        ("due:past", "retry", (None, 1_000_000)),
        ("expires:>1h", "completed", (1_003_599, None)),
        ("completed:<1h", "completed", (996_399, None)),
        ("completed:>1h", "completed", (None, None)),
        ("waiting:>10m", "aggregating", (None, 999_400)),
        ("waiting:>10m", "pending", (None, None)),
        ("due:past OR archived:<1h", "archived", (996_399, None)),
    ],
)
def test_times_bound_the_scores(text: str, state: str, expected: tuple[int | None, int | None]) -> None:
    """A score may have a fraction, which rounds up; a completed task's is the end of its retention."""
    found = filtered(text, state)
    assert expected == (found.low, found.high)


def test_a_place_decides_clauses_of_state_queue_and_group() -> None:
    """The other clauses are tested for each task."""
    query = parse_query("queue:mail* -state:pending (group:a OR type:x)")
    assert not query.may_match(Place(TaskState.PENDING, "mail"))
    assert not query.may_match(Place(TaskState.RETRY, "other"))
    assert query.may_match(Place(TaskState.RETRY, "mail-2"))
    assert not parse_query("group:a").may_match(Place(TaskState.AGGREGATING, "mail", "b"))
    assert () == filtered("group:a type:x OR group:a", "aggregating", "a").texts


def test_an_explanation_sums_what_is_looked_at() -> None:
    """Positions, bounds and time, and all of it as a sentence."""
    places = [
        CollectionSize(Place(TaskState.ARCHIVED, "a"), 1_000_000, 250_000, is_bounded=True, is_filtered=True),
        CollectionSize(Place(TaskState.ARCHIVED, "b"), 40_000, 40_000, is_bounded=True),
    ]
    found = explain(parse_query("archived:<1h"), places)
    assert (290_000, 1_040_000, True, 2.0) == (found.positions, found.size, found.is_bounded, found.seconds)
    assert "Looks at 290,000 tasks in 2 collections, bounded by time, of 1,040,000, about 2 s." == str(found)
    assert "Looks up 2 ids, about 0.4 ms." == str(explain(parse_query("id:a,b"), [], look_ups=2))
