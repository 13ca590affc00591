"""Parts of an OpenAPI 3.1 document that `/api/v1` and the task service's `/v1` share."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .parameters import Parameter

_REFERENCE: Final = "#/components/schemas/{name}"
_NAME: Final = re.compile(r"\{(\w+)\}")
PROBLEM_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "Name of the kind of error, for programs."},
        "detail": {"type": "string", "description": "What is wrong."},
        "remedy": {"type": "string", "description": "What to do about it."},
        "field": {"type": "string", "description": "Parameter, header or field of the body that is wrong."},
    },
}


def make_reference(name: str) -> dict[str, str]:
    """Return a reference to the schema of a component."""
    return {"$ref": _REFERENCE.format(name=name)}


def refer_problem(status: str) -> dict[str, str]:
    """Return a reference to the response that `describe_problems` has made for a status."""
    return {"$ref": f"#/components/responses/Problem{status}"}


def describe_problems(problems: Mapping[str, str]) -> dict[str, Any]:
    """Return the response of each problem status, by the name of the component."""
    return {
        f"Problem{status}": {
            "description": about,
            "content": {"application/problem+json": {"schema": make_reference("Problem")}},
        }
        for status, about in problems.items()
    }


def describe_path_names(path: str, examples: Mapping[str, str]) -> list[dict[str, Any]]:
    """Describe the path parameters of a path template in OpenAPI."""
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "minLength": 1},
            "example": examples[name],
        }
        for name in _NAME.findall(path)
    ]


def describe_queries(parameters: Iterable[Parameter]) -> list[dict[str, Any]]:
    """Describe query parameters in OpenAPI."""
    return [
        {
            "name": one.name,
            "in": "query",
            "description": one.about,
            "required": one.is_required,
            "schema": one.schema(),
        }
        for one in parameters
    ]


def build_operation_id(method: str, path: str) -> str:
    """Return the OpenAPI `operationId` of a method and path: `get_queues_queue_limits`."""
    words = re.sub(r"\W+", "_", path).strip("_")
    return f"{method.lower()}_{words}"


def read_schemas(structs: Iterable[type[msgspec.Struct]]) -> dict[str, Any]:
    """Return the JSON Schemas of structs and of the types in their fields, by name."""
    ordered = sorted(structs, key=lambda one: one.__name__)
    return msgspec.json.schema_components(ordered, ref_template=_REFERENCE)[1]


def render_json(document: Mapping[str, Any]) -> str:
    """Return a document as JSON text."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
