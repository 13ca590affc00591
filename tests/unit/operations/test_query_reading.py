"""Reading queries: what is understood, and what is refused where."""

from __future__ import annotations

import pytest

from pyasynq.errors import QueryError
from pyasynq.operations.query import MAX_CLAUSES, MAX_DEPTH, MAX_LENGTH, parse_query
from pyasynq.task import TaskState


def refusal(text: str, *, private: bool = True) -> tuple[str, str]:
    """Return the part of a query that is refused, and the nearest valid form."""
    with pytest.raises(QueryError) as caught:
        parse_query(text, private=private)
    error = caught.value
    return text[error.position : error.position + error.length], error.nearest


REFUSED = [
    ("enqueued:>2h", "enqueued:", "waiting:>2h"),
    ("state:retry tpye:a", "tpye:", "type:a"),
    ("email:deliver", "email:", '"email:deliver"'),
    ("state:archve", "archve", "state:archived"),
    ("retried:many", "many", "retried:>3"),
    ("retried:5..3", "5..3", "retried:3..5"),
    ("failed:1h", "1h", "failed:<1h"),
    ("failed:soon", "soon", "failed:<1h"),
    ("failed:2h..1h", "2h..1h", "failed:1h..2h"),
    ("archived:1h..2026-01-01", "1h..2026-01-01", "archived:<1h"),
    ("archived:2026-13-01", "2026-13-01", "archived:<1h"),
    ("type:", "", "type:email:*"),
    ("type:a,", "", "type:email:*"),
    ('type:"a', '"a', '"a"'),
    ("id:ab*", "ab*", '"ab*"'),
    ("error:sig:xyz", "sig:xyz", 'error:"sig:xyz"'),
    ("error:f(x)", "(", '"error:f("'),
    ("a OR", "OR", '"OR"'),
    ("OR a", "OR", '"OR"'),
    ("a AND", "AND", '"AND"'),
    ("NOT a", "NOT", "-"),
    ("--a", "-", '"-"'),
    ("a -", "-", '"-"'),
    ("(a", "(", ")"),
    ("a)", ")", ""),
    ("()", ")", ""),
    ("poison:yes", "poison:", "poison"),
    ("user.id:42", "user.id:", "payload.user.id:42"),
    ("type.x:42", "type.x:", "type:42"),
    ("header:acme", "header:", "header.acme"),
    ("state:pending error:x", "error:x", "state:retry"),
    ("error:x state:pending", "state:pending", ""),
    ("orphaned poison", "poison", "state:archived"),
    ("size:many", "many", "size:>3"),
    ("deadline:80s", "80s", "deadline:>3"),
    ("payload.a:>x", ">x", "payload.a:>3"),
    ("a\ud800", "\ud800", ""),
    ("payload" + ".a" * 33 + ":1", "payload" + ".a" * 33 + ":", ""),
]


@pytest.mark.parametrize(("text", "part", "nearest"), REFUSED)
def test_a_refusal_marks_the_wrong_part_and_says_what_is_near(text: str, part: str, nearest: str) -> None:
    """So that a face can underline it and offer the correction."""
    assert (part, nearest) == refusal(text)


@pytest.mark.parametrize("nearest", sorted({case[2] for case in REFUSED} - {"", "-", ")", "header.acme"}))
def test_what_is_suggested_can_be_read(nearest: str) -> None:
    """A suggestion that fails again would help little."""
    parse_query(nearest)


def test_a_query_is_bounded() -> None:
    """In characters, clauses and depth, each to the last one that is allowed."""
    parse_query("a" * MAX_LENGTH)
    assert ("a", "") == refusal("a" * (MAX_LENGTH + 1))
    parse_query(" ".join("a" for _ in range(MAX_CLAUSES)))
    assert ("b", "") == refusal(" ".join("a" for _ in range(MAX_CLAUSES)) + " b")
    parse_query("type:" + ",".join("a" for _ in range(MAX_CLAUSES)))
    assert (
        "type:" + ",".join("a" * (MAX_CLAUSES + 1)) == refusal("type:" + ",".join("a" * (MAX_CLAUSES + 1)))[0]
    )
    parse_query("id:" + ",".join("a" * 900))
    parse_query("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH)
    assert ("(", "") == refusal("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1))


def test_a_query_tells_its_fields_and_states() -> None:
    """Permissions are checked by the fields, collections are chosen by the states."""
    query = parse_query("(state:retry,archived OR due:past) -payload.user.id:1 word header.tenant:x")
    assert frozenset({"state", "due", "payload.", "", "header."}) == query.fields
    assert (TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED) == query.states
    assert query.needs_payload
    assert not parse_query("type:a queue:b* state:retry retried:>3").needs_payload


@pytest.mark.parametrize(
    ("text", "needs_content", "needs_redaction"),
    [
        ("queue:mail,labels state:pending,archived", False, False),
        ("-state:retry (id:a OR queue:b*)", False, False),
        ("state:archived type:mail", True, False),
        ("state:archived retried:>3", True, False),
        ("state:archived size:>1kB", True, True),
        ("state:archived error:timeout", True, True),
        ("word", True, True),
    ],
)
def test_a_query_tells_what_of_a_task_it_tests(text: str, needs_content: bool, needs_redaction: bool) -> None:
    """A secret that is replaced changes the texts, and the size of the payload."""
    query = parse_query(text)
    assert (needs_content, needs_redaction) == (query.needs_content, query.needs_redaction)


def test_ids_are_known_where_no_other_task_can_match() -> None:
    """An `OR` with another field needs a scan."""
    assert frozenset("ab") == parse_query("id:a,b state:retry").ids
    assert frozenset("b") == parse_query("id:a,b id:b,c").ids
    assert frozenset("ab") == parse_query("id:a OR (id:b type:x)").ids
    assert None is parse_query("id:a OR type:x").ids
    assert None is parse_query("-id:a").ids
    assert None is parse_query("").ids


@pytest.mark.parametrize(
    "text", ["payload:x", "payload.a:1", "header.a:1", "error:x", "result:x", "unique:x"]
)
def test_without_the_right_to_payloads_their_fields_are_refused(text: str) -> None:
    """Otherwise a search tells what is redacted, one guess after another."""
    assert text.startswith(refusal(text, private=False)[0])


def test_without_the_right_to_payloads_words_look_at_ids_and_types() -> None:
    """The clause is another field, so that a permission can tell."""
    query = parse_query("word", private=False)
    assert (frozenset({"public"}), False) == (query.fields, query.needs_payload)
