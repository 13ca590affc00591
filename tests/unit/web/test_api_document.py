"""The table of routes of `/api/v1`, its OpenAPI document, and the checks of query parameters."""

from __future__ import annotations

import dataclasses
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from pyasynq.gateway.api.openapi import read_service_document
from pyasynq.gateway.configurations import TaskConfiguration
from pyasynq.web.api.cursors import page_of_names
from pyasynq.web.api.nesting import is_deeper
from pyasynq.web.api.openapi import read_document
from pyasynq.web.api.parameters import Parameter, Type, read_parameters
from pyasynq.web.api.problem import ProblemError, to_problem
from pyasynq.web.api.table import API_ROUTES

DOCUMENT: dict[str, Any] = json.loads(read_document())
DOCUMENTS = {"/api/v1": DOCUMENT, "/v1": json.loads(read_service_document())}


def test_the_document_has_every_route() -> None:
    """The document has no route that the API lacks."""
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert {(route.method, route.path) for route in API_ROUTES} == described


@pytest.mark.parametrize("prefix", DOCUMENTS)
def test_every_reference_of_the_document_leads_somewhere(prefix: str) -> None:
    """To a schema or a response; and every schema is used."""
    document = DOCUMENTS[prefix]
    references = set(re.findall(r'"#/([^"]+)"', json.dumps(document)))
    for reference in references:
        place: Any = document
        for name in reference.split("/"):
            place = place[name]
    unused = {f"components/schemas/{name}" for name in document["components"]["schemas"]} - references
    assert set() == unused


@pytest.mark.parametrize("prefix", DOCUMENTS)
def test_operations_of_the_document_have_names_of_their_own(prefix: str) -> None:
    """Generated clients make functions of them."""
    paths = DOCUMENTS[prefix]["paths"].values()
    names = [one["operationId"] for methods in paths for one in methods.values()]
    assert len(names) == len(set(names)) > 0


@pytest.mark.parametrize("prefix", DOCUMENTS)
def test_each_operation_may_answer_that_the_address_is_too_long(prefix: str) -> None:
    """Each reads the query, whose length is limited."""
    paths = DOCUMENTS[prefix]["paths"]
    answers = {
        f"{method} {path}": set(one["responses"])
        for path, methods in paths.items()
        for method, one in methods.items()
    }
    assert [] == [name for name, statuses in answers.items() if "414" not in statuses]


def test_the_document_has_every_field_of_a_task_type() -> None:
    """In requests and answers, which also have version and listening workers; commands are in the file."""
    fields = {one.name for one in dataclasses.fields(TaskConfiguration)} - {"command"}
    schemas = DOCUMENTS["/v1"]["components"]["schemas"]
    assert fields == set(schemas["TaskTypeFields"]["properties"])
    assert fields | {"version", "listening"} == set(schemas["StoredTaskType"]["properties"])


def test_every_change_can_be_rehearsed() -> None:
    """No route has the parameter for itself."""
    for route in API_ROUTES:
        names = [parameter.name for parameter in route.all_parameters]
        assert len(names) == len(set(names))
        assert route.changes == ("dry_run" in names)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Type.WHOLE, "7", 7),
        (Type.SECONDS, "2.5", 2.5),
        (Type.FLAG, "true", True),
        (Type.TIME, "2026-11-25T14:05:00Z", datetime(2026, 11, 25, 14, 5, tzinfo=UTC)),
        (Type.TIME, "2026-11-25T15:05:00+01:00", datetime(2026, 11, 25, 14, 5, tzinfo=UTC)),
        (Type.TEXT, "%20", " "),
    ],
)
def test_a_parameter_has_its_value(kind: Type, text: str, value: object) -> None:
    """A plus sign in a time is one, although it stands for a space."""
    assert {"x": value} == read_parameters(f"x={text}".encode(), [Parameter("x", "", kind)])


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((Type.WHOLE, text) for text in ("", "1.0", "0x1", "٣", "1_0", "9" * 19, "-1", "101", "--1")),
        *((Type.SECONDS, text) for text in ("nan", "inf", "1e999", "", "x", "-0.1")),
        *((Type.FLAG, text) for text in ("", "True", "1", "yes")),
        *(
            (Type.TIME, text)
            for text in ("", "now", "2026-11-25", "2026-11-25T14:05:00", "9999-12-31T23:59:59-23:00")
        ),
        (Type.TEXT, "x" * 4_001),
    ],
)
def test_a_wrong_value_is_told_with_its_parameter(kind: Type, text: str) -> None:
    """The problem names the remedy, and shows no value."""
    with pytest.raises(ProblemError) as caught:
        read_parameters(f"x={text}".encode(), [Parameter("x", "", kind, least=0, most=100)])
    assert (422, "x") == (caught.value.status, caught.value.field)
    assert caught.value.remedy


def test_a_page_begins_after_its_cursor_whatever_has_gone() -> None:
    """A cursor names the last name of the page before, which need not exist any more."""
    page, cursor = page_of_names(["a", "b", "c", "d"], "", 2)
    assert ["a", "b"] == page
    assert (["c", "d"], "") == page_of_names(["a", "c", "d"], cursor, 2)


@pytest.mark.parametrize("cursor", ["x", "AAAA", "é", "2:a", "=" * 10, "MTph\n"])
def test_a_foreign_cursor_is_refused(cursor: str) -> None:
    """Any text that is not a cursor of this list is refused."""
    with pytest.raises(ProblemError) as caught:
        page_of_names(["a"], cursor, 1)
    assert "cursor" == caught.value.field


def test_a_bug_shows_its_number_alone(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the rest."""
    problem = to_problem(RuntimeError("the secret plan")).content()
    assert 500 == problem["status"]
    assert "secret" not in json.dumps(problem)
    assert problem["number"] in caplog.text


@pytest.mark.parametrize(
    ("content", "is_deep"),
    [
        (b"[[[]]]", False),
        (b'[{"a":[[]]}]', True),
        (b"[[],[],[],[[]]]", False),
        (b'["[[[[", {"}": "\\"[[["}]', False),
        (b"[[[[", True),
        (b"]]]][[[[", False),
        (b'"[[[[', False),
        (b'[["\\"[", ["]", ["x["]]]]', True),
        (b'["\\\\", [[["["]]]]', True),
        (b"", False),
    ],
)
def test_brackets_outside_of_texts_are_levels(content: bytes, is_deep: bool) -> None:
    """Three levels are allowed here. Text that is not JSON does no harm."""
    assert is_deep == is_deeper(content, 3)
