"""Completing queries."""

from __future__ import annotations

import pytest

from pyasynq.operations.query import Known, complete, parse_query

KNOWN = Known(
    queues=("mail", "mail-bulk", 'odd "one"'),
    types=("email:deliver", "email:bulk", "image"),
    groups=("digest",),
    servers=("5c1d",),
    payload_paths=("user.id", "user.name", "a b"),
    header_names=("tenant",),
)


def inserts(text: str, caret: int | None = None) -> list[str]:
    """Return what could be inserted."""
    return [one.insert for one in complete(text, len(text) if caret is None else caret, KNOWN)]


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("", "state:"),
        ("ty", "type:"),
        ("state:retry ty", "type:"),
        ("(ty", "type:"),
        ("-ty", "type:"),
        ("a OR (b OR -ty", "type:"),
        ("state:arc", "archived"),
        ("state:retry,arc", "archived"),
        ("queue:mail", "mail-bulk"),
        ("queue:odd", '"odd \\"one\\""'),
        ("type:del", "email:deliver"),
        ("group:", "digest"),
        ("server:", "5c1d"),
        ("payload.", "payload.user.id:"),
        ("payload.user.n", "payload.user.name:"),
        ("payload.a", 'payload."a b":'),
        ("header.", "header.tenant:"),
        ("due:", "past"),
        ("waiting:", ">1m"),
        ("failed:", "<5m"),
        ("retried:", "0"),
        ("size:", ">10kB"),
        ("deadline:", ">80%"),
        ("orp", "orphaned"),
    ],
)
def test_the_likeliest_completion_comes_first(text: str, first: str) -> None:
    """Fields, then values that are known; a minus or parenthesis stays."""
    assert first == inserts(text)[0]


def test_a_completion_replaces_what_was_typed_before_the_caret() -> None:
    """What is behind the caret stays."""
    text = "state:arc type:x"
    one = complete(text, 9, KNOWN)[0]
    assert "state:archived type:x" == text[: one.start] + one.insert + text[one.end :]
    assert (6, 9, "archived", "state") == (one.start, one.end, one.label, one.detail)


def test_there_are_at_most_twenty_and_nothing_for_unknown_fields() -> None:
    """A list for people."""
    many = Known(types=tuple(f"type-{number}" for number in range(2_000)))
    assert 20 == len(complete("type:type", 9, many))
    assert [] == inserts("nope:x")


@pytest.mark.parametrize("text", ["payload.a", "queue:odd", "type:e"])
def test_what_is_inserted_can_be_read(text: str) -> None:
    """Names with spaces and quotes are quoted."""
    for one in complete(text, len(text), KNOWN):
        completed = text[: one.start] + one.insert
        parse_query(completed + "x" if completed.endswith(":") else completed)


def test_labels_show_no_control_characters() -> None:
    """Names come from Redis, where anyone may have written them."""
    hostile = Known(types=("a\x1b]52;c\x07",))
    assert "a␛]52;c␇" == complete("type:a", 6, hostile)[0].label
