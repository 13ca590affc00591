"""Configurations of task types as texts of a form, and what differs between two of them."""

from __future__ import annotations

from typing import Any

import pytest

from pyasynq.gateway.configurations import parse_task_configuration
from pyasynq.web.configuration_form import (
    find_differences,
    is_editable,
    merge_changes,
    read_form,
    write_duration,
    write_form,
)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"max_run": 3, "rate": "50/s+10", "timeout": "90s", "max_retry": 0, "retention": "1.5s"},
        {"ordered": True, "retry": ["0s", "5s", "1h30m"], "schema": {"type": "object"}},
        {"retry": {"first": "5s", "factor": 3, "most": "1h", "jitter": 0.2}, "schema": {}},
        {"timeout": 90_061.0, "retention": 0.25},
        {"kind": "http", "url": "https://example.org/{id}", "method": "PUT", "headers": {"X-Team": "maps"}},
    ],
)
def test_what_is_written_into_the_form_is_read_from_it_again(content: dict[str, Any]) -> None:
    """An edit that changes nothing stores nothing else."""
    stored = parse_task_configuration("", {**content, "managed": "api"}, name="resize").to_json()
    assert (stored, {}) == read_form("resize", write_form(stored), stored)
    assert () == find_differences(stored, stored)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(90.0, "1m30s"), (3_600, "1h"), (90_061, "1d1h1m1s"), (0.5, "0.5s"), (1.25, "1.25s"), (0, "0s")],
)
def test_seconds_are_written_as_they_are_typed(seconds: float, text: str) -> None:
    """In the units that the service's file takes."""
    assert text == write_duration(seconds)


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("max_run", "many", "must be a whole number"),
        ("max_run", "-1", "must be a whole number"),
        ("max_run", "0", "from 1 to 1,000,000"),
        ("rate", "50 a second", "write 50/s"),
        ("retry", "5s, soon", "delay 2 must be a duration"),
        ("retry", "first 5s, factor x", "factor must be a number"),
        ("retry", "first 5s, first 6s", "names first twice"),
        ("retry", "begin 5s", "begin"),
        ("retry", "first 2h, most 1h", "most must be at least as long as first"),
        ("schema", "{", "is not JSON"),
        ("schema", "[]", "must be a JSON Schema"),
        ("schema", '{"$ref": "https://example.org/x"}', "must be a JSON Schema"),
    ],
)
def test_a_wrong_text_has_a_sentence_at_its_field(field: str, text: str, said: str) -> None:
    """It names the part, and shows no value."""
    content, errors = read_form("resize", {field: text}, {})
    assert ({}, [field]) == (content, list(errors))
    assert said in errors[field]


def test_a_wrong_name_is_told_at_the_name() -> None:
    """As the service tells it."""
    assert ["name"] == list(read_form("a/b", {}, {})[1])
    assert ["name"] == list(read_form("", {}, {})[1])


def test_a_configuration_with_fields_of_a_later_version_is_not_edited() -> None:
    """The form would drop them."""
    assert is_editable({"name": "x", "kind": "worker", "max_run": 3, "managed": "file"})
    assert not is_editable({"kind": "cmd"})
    assert not is_editable({"argv": []})


def test_differences_name_the_fields_and_both_values() -> None:
    """A schema is compared line by line."""
    before = {"max_run": 3, "schema": {"type": "object", "a": 1}}
    after = {"rate": "5/s", "schema": {"type": "object", "a": 2}}
    found = find_differences(before, after)
    assert ["At once", "Rate", "Schema of params"] == [one.label for one in found]
    assert ("3", "no limit") == found[0].texts
    assert [("-", '  "a": 1'), ("+", '  "a": 2')] == [line for line in found[2].lines if line[0]]


def test_changes_are_put_over_those_of_someone_else() -> None:
    """Theirs stay where the own form has changed nothing; a field that was emptied stays empty."""
    base = {"max_run": 1, "timeout": 60.0, "rate": "5/s"}
    theirs = {"max_run": 1, "timeout": 90.0, "rate": "6/s"}
    mine = {"max_run": 2, "timeout": 60.0}
    assert {"max_run": 2, "timeout": 90.0} == merge_changes(base, theirs, mine)
    found = find_differences(base, theirs, mine)
    assert {"At once": "you", "Rate": "both", "Timeout": "the other"} == {one.label: one.by for one in found}
    [same] = find_differences(base, {**base, "rate": "7/s"}, {**base, "rate": "7/s"})
    assert "both, alike" == same.by
