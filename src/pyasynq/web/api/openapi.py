"""The OpenAPI 3.1 document of the API, made from the table of routes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .openapi_parts import (
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
from .records import COMPONENTS
from .table import API_ROUTES

if TYPE_CHECKING:
    from .table import ProgramRoute

DOCUMENT: Final = Path(__file__).with_name("openapi.json")
_FACTS: Final[dict[str, dict[str, Any]]] = {
    "at": {"type": "string", "format": "date-time", "description": "When it was read."},
    "done": {"type": "integer", "description": "Tasks that it was done for."},
    "dry_run": {"type": "boolean", "description": "True: nothing was changed."},
    "facets": {"type": "object", "description": "Matches by queue, state and type."},
    "is_complete": {"type": "boolean", "description": "False if there are more than were looked at."},
    "looked_at": {"type": "integer", "description": "Positions that were looked at."},
    "matches": {"type": "integer", "description": "Matches so far, those of earlier pages included."},
    "refused": {"type": "integer", "description": "Tasks that were left as they were."},
    "scanned": {"type": "integer", "description": "Tasks that were looked at."},
    "skipped": {"type": "array", "items": {"type": "string"}, "description": "What could not be examined."},
    "total": {"type": "integer", "description": "How many there are."},
    "trimmed": {"type": "integer", "description": "Archived tasks that went to make room."},
    "unreadable": {"type": "object", "description": "Queues that could not be read, and why."},
    "without_error": {"type": "integer", "description": "Tasks without an error among them."},
}
_PROBLEMS: Final = {
    "400": "The body is not JSON.",
    "401": "The request does not say who asks, or its token is wrong.",
    "403": "A permission is missing, the dashboard is read-only, or another site has asked.",
    "404": "There is no such thing that you see.",
    "408": "The body took too long.",
    "409": "Its state does not allow it.",
    "412": "It has changed meanwhile.",
    "413": "The body is too large.",
    "414": "The address is too long.",
    "415": "The body must be JSON.",
    "422": "A parameter or field is wrong.",
    "429": "You have asked too often.",
    "503": "Redis does not answer, or refuses.",
}
_EXAMPLES: Final = {
    "queue": "emails",
    "task": "42",
    "operation": "c1a56274188c00df",
    "server": "server-1",
    "schedule": "entry-cart.remind",
    "mark": "935e5ff42e5f",
    "view": "db4d011e37dce013",
    "delivery": "1b0d7a6e2c94f385",
    "command": "5f0c92d1e7a4b386",
}
"""Example values of path parameters. The Redis of the Schemathesis tests has this queue and this task."""
_HEADERS: Final = {
    "If-Match": "ETag of what was read; 412 if it has changed.",
    "Idempotency-Key": "Name of this request: however often it is sent, it enqueues one task within a day, "
    "starts one operation within 30 days, or adds one mark.",
}


def build_document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in API_ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_route(route)
    inputs = read_schemas({route.body for route in API_ROUTES if route.body})
    schemas = {name: _describe_view(name) for name in COMPONENTS} | inputs | {"Problem": PROBLEM_SCHEMA}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "pyasynq",
            "version": "1",
            "description": "Queues, tasks and workers of pyasynq and Asynq, for programs.",
        },
        "servers": [{"url": "/api/v1", "description": "Below the root of the dashboard."}],
        "security": [{"bearer": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "responses": describe_problems(_PROBLEMS),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "pyasynq web token makes one."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "pyasynq-session",
                    "description": "Session of someone who signed in; six digits follow the name.",
                },
            },
        },
    }


def render_document() -> str:
    """Return the OpenAPI document as JSON text."""
    return render_json(build_document())


def read_document() -> bytes:
    """Return the OpenAPI document that the package contains."""
    return DOCUMENT.read_bytes()


def name_route(route: ProgramRoute) -> str:
    """Return the `operationId` of a route in OpenAPI: `get_queues_queue_limits`."""
    return build_operation_id(route.method, route.path)


def topic_of(route: ProgramRoute) -> str:
    """Return the tag of a route in OpenAPI: the first segment of its path, or `tasks` below a queue."""
    first = route.path.split("/")[1].partition(":")[0]
    return "tasks" if route.path.startswith("/queues/{queue}/tasks") else first


def _describe_view(name: str) -> dict[str, Any]:
    items: dict[str, Any] = COMPONENTS[name].schema()["items"]
    return items | {"required": list(items["properties"])}


def _describe_route(route: ProgramRoute) -> dict[str, Any]:
    parameters = describe_path_names(route.path, _EXAMPLES) + describe_queries(route.all_parameters)
    parameters += [
        {"name": name, "in": "header", "description": _HEADERS[name], "schema": {"type": "string"}}
        for name in route.headers
    ]
    described: dict[str, Any] = {
        "operationId": name_route(route),
        "summary": route.about + ".",
        "tags": [topic_of(route)],
        "parameters": parameters,
        "responses": _describe_responses(route),
    }
    if route.verb:
        described["x-verb"] = route.verb
    if route.body is not None:
        schema = make_reference(route.body.__name__)
        described["requestBody"] = {
            "required": bool(_required_fields(route.body)),
            "content": {"application/json": {"schema": schema}},
        }
    return described


def _required_fields(struct: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(struct) if field.required]


def _describe_responses(route: ProgramRoute) -> dict[str, Any]:
    responses: dict[str, Any] = {str(route.status): _describe_success(route)}
    if route.status == 201 and route.returns == "EnqueuedTask":
        responses["200"] = {**_describe_success(route), "description": "The task exists already."}
    if route.changes:
        dry = _describe_content(
            route.dry_returns, route, is_list=route.is_list and route.dry_returns == route.returns
        )
        if route.status == 200:
            schemas = [one["content"]["application/json"]["schema"] for one in (responses["200"], dry)]
            if schemas[0] != schemas[1]:
                responses["200"]["content"] = {"application/json": {"schema": {"anyOf": schemas}}}
        elif "200" in responses:
            schemas = [one["content"]["application/json"]["schema"] for one in (responses["200"], dry)]
            responses["200"]["content"] = {"application/json": {"schema": {"anyOf": schemas}}}
        else:
            responses["200"] = dry | {"description": "A dry run: nothing was changed."}
    elif not route.lines:
        responses["304"] = {"description": "It is what If-None-Match names."}
    for status in _problems_of(route):
        responses[status] = refer_problem(status)
    return dict(sorted(responses.items()))


def _problems_of(route: ProgramRoute) -> list[str]:
    statuses = ["401", "403", "404", "409", "413", "414", "422", "429", "503"]
    if route.body is not None:
        statuses += ["400", "408", "415"]
    if "If-Match" in route.headers:
        statuses.append("412")
    return statuses


def _describe_success(route: ProgramRoute) -> dict[str, Any]:
    if route.lines:
        lines = {"application/x-ndjson": {"schema": make_reference(route.lines)}}
        return {"description": "Lines of JSON, one at a time.", "content": lines}
    if not route.returns:
        return {"description": "Done."}
    described = _describe_content(route.returns, route, is_list=route.is_list)
    if route.status in {201, 202} and route.returns not in {"RequestAnswer", "Cancellation"}:
        about = "Address of what was made, relative to that of the request."
        described["headers"] = {"Location": {"description": about, "schema": {"type": "string"}}}
    elif route.method == "GET":
        described["headers"] = {
            "ETag": {"description": "Changes with the answer.", "schema": {"type": "string"}}
        }
    if route.path == "/tasks":
        described["content"]["application/x-ndjson"] = {"schema": {"type": "object"}}
    return described


def _describe_content(component: str, route: ProgramRoute, *, is_list: bool) -> dict[str, Any]:
    schema: dict[str, Any] = make_reference(component)
    if is_list:
        facts = {name: _FACTS[name] for name in (*route.facts, *(["dry_run"] if route.changes else []))}
        schema = {
            "type": "object",
            "required": ["items", "next", *route.facts],
            "properties": {
                "items": {"type": "array", "items": schema},
                "next": {
                    "type": ["string", "null"],
                    "description": "Cursor of the next page; null at the end.",
                },
                **facts,
            },
        }
    return {
        "description": "Done." if route.changes else "Found.",
        "content": {"application/json": {"schema": schema}},
    }
