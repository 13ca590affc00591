"""The OpenAPI 3.1 document of `/v1`, made from the table of routes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pyasynq.web.api.openapi_parts import (
    PROBLEM_SCHEMA,
    build_operation_id,
    describe_path_names,
    describe_problems,
    describe_queries,
    make_reference,
    read_schemas,
    refer_problem,
    render_json,
)
from pyasynq.web.api.records import COMPONENTS

from .table import LEASE_ROUTES, SERVICE_ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .description import RouteDescription

SERVICE_DOCUMENT: Final = Path(__file__).with_name("openapi.json")
_PREFIX: Final = "/v1"
_PROBLEMS: Final = {
    "400": "The body is not JSON, or not whole.",
    "401": "The request has no valid API key.",
    "403": "The key lacks a scope.",
    "404": "There is no such thing for this key.",
    "409": "Its state does not allow it.",
    "410": "The attempt is over: stop working on it.",
    "412": "It has changed meanwhile.",
    "408": "The body took too long.",
    "413": "The body is too large.",
    "414": "The address is too long.",
    "415": "The body must be JSON, and not compressed.",
    "422": "A parameter or field is wrong.",
    "429": "Too many tasks wait, or the key has sent too many requests: send it again after Retry-After.",
    "503": "Redis does not answer, or has not confirmed it: send it again after Retry-After.",
}
_ALWAYS: Final = ("401", "403", "404", "409", "413", "414", "422", "429", "503")
_EXAMPLES: Final = {"queue": "resize", "task": "42", "name": "resize", "token": "AQAA"}
"""Example values of path parameters, for readers of the document and for Schemathesis.

The service that Schemathesis tests has a queue, a task and a task type with these names.
"""
_HEADERS: Final = {
    "ETag": "Version of the task type.",
    "Idempotency-Key": "Name of this request: however often it is sent, it enqueues its tasks once a day.",
    "If-Match": "ETag of what was read; 412 if it has changed.",
    "If-None-Match": "ETag that the client has: 304 for a GET. `*` changes only what does not exist.",
    "Last-Event-ID": "Id of the last event that was seen, which is not sent again.",
    "Location": "Path of the task or the task type.",
    "RateLimit": "Requests that the key may send now (r), and seconds until the bucket is full (t).",
    "RateLimit-Policy": "Requests of the key (q) in a window of seconds (w); only for a key with a rate.",
    "Retry-After": "Seconds after which to send it again.",
}
_OF_RATE: Final = ("RateLimit", "RateLimit-Policy")
"""Headers of each response to an API key that has a rate limit."""
_NAMED: Final = ("Cancellation", "Task")
"""OpenAPI components that are shared with `/api/v1`."""


def build_service_document() -> dict[str, Any]:
    """Return the OpenAPI document of the service."""
    paths: dict[str, dict[str, Any]] = {}
    structs: set[type[msgspec.Struct]] = set()
    for method, path, description in list_descriptions():
        below = path.removeprefix(_PREFIX)
        paths.setdefault(below, {})[method.lower()] = _describe_route(method, below, description)
        structs.update(description.bodies)
        for answer in description.answers.values():
            structs.update(one for one in _split(answer) if not isinstance(one, str))
    schemas = read_schemas(structs) | {name: _describe_view(name) for name in _NAMED}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pyasynq task service",
            "version": "1",
            "description": "Tasks for programs and workers in any language.",
        },
        "servers": [{"url": "v1", "description": "Below the root of the service."}],
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted((schemas | {"Problem": PROBLEM_SCHEMA}).items())),
            "responses": _describe_problems(),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "pyasynq key make makes one."}
            },
        },
    }


def list_descriptions() -> Iterator[tuple[str, str, RouteDescription]]:
    """Yield method, path and description of each route."""
    for route in SERVICE_ROUTES:
        yield route.method, route.path, route.description
    for path, description in LEASE_ROUTES.items():
        yield "POST", path, description


def render_service_document() -> str:
    """Return the OpenAPI document as JSON text."""
    return render_json(build_service_document())


def read_service_document() -> bytes:
    """Return the OpenAPI document that the package contains."""
    return SERVICE_DOCUMENT.read_bytes()


def _describe_problems() -> dict[str, Any]:
    responses = describe_problems(_PROBLEMS)
    responses["Problem429"]["headers"] = _describe_sent((*_OF_RATE, "Retry-After"))
    return responses


def _describe_sent(names: Iterable[str]) -> dict[str, Any]:
    return {name: {"description": _HEADERS[name], "schema": {"type": "string"}} for name in names}


def _describe_view(name: str) -> dict[str, Any]:
    items: dict[str, Any] = COMPONENTS[name].schema()["items"]
    return items | {"required": list(items["properties"])}


def _describe_route(method: str, path: str, description: RouteDescription) -> dict[str, Any]:
    headers = [
        {"name": name, "in": "header", "description": _HEADERS[name], "schema": {"type": "string"}}
        for name in description.headers
    ]
    described: dict[str, Any] = {
        "operationId": build_operation_id(method, path),
        "summary": description.about,
        "tags": [path.split("/")[1].partition(":")[0]],
        "parameters": [
            *describe_path_names(path, _EXAMPLES),
            *describe_queries(description.parameters),
            *headers,
        ],
        "responses": _describe_responses(path, description),
    }
    if bodies := description.bodies:
        is_needed = all(any(one.required for one in msgspec.structs.fields(body)) for body in bodies)
        described["requestBody"] = {"required": is_needed, "content": _describe_json(bodies)}
    return described


def _describe_responses(path: str, description: RouteDescription) -> dict[str, Any]:
    sent = _describe_sent((*description.sent, *_OF_RATE))
    responses: dict[str, Any] = {}
    for status, answer in description.answers.items():
        described: dict[str, Any] = {"description": "Done." if answer else "Done, without a body."}
        if answer:
            described["content"] = _describe_json(_split(answer))
            if description.lines is not None:
                schema = make_reference(description.lines.__name__)
                described["content"]["application/x-ndjson"] = {"schema": schema}
        if description.streams:
            described["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
        described["headers"] = sent
        responses[str(status)] = described
    responses |= {problem: refer_problem(problem) for problem in _list_problems(path, description)}
    return dict(sorted(responses.items()))


def _list_problems(path: str, description: RouteDescription) -> list[str]:
    statuses = list(_ALWAYS)
    if description.bodies:
        statuses += ["400", "408", "415"]
    if "{token}" in path:
        statuses.append("410")
    if "If-Match" in description.headers:
        statuses.append("412")
    return statuses


def _describe_json(shapes: tuple[Any, ...]) -> dict[str, Any]:
    references = [make_reference(one if isinstance(one, str) else one.__name__) for one in shapes]
    schema = references[0] if len(references) == 1 else {"anyOf": references}
    return {"application/json": {"schema": schema}}


def _split(answer: Any) -> tuple[Any, ...]:
    if answer is None:
        return ()
    return answer if isinstance(answer, tuple) else (answer,)
