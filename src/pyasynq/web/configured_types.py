"""The task service's types for the enqueue form: schema, options, and validation of a payload."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyasynq._visible_text import visible
from pyasynq.errors import ConfigurationError, InvalidOptionError, PyasynqError
from pyasynq.gateway.configurations import parse_task_configuration
from pyasynq.gateway.configurations.url_template import parse_url_template
from pyasynq.task_types import TaskTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyasynq.gateway.configurations.url_template import UrlTemplate
    from pyasynq.operations import TypeConfiguration

_OPTIONS = ("max_retry", "timeout", "retention")
_PARAM: Final = re.compile(r"params\.(\w+) (.+)", re.DOTALL)
_SUMMARIES: Final = {
    "cmd": "The task service runs a command for each task.",
    "list": "The task service passes each task on to a worker that reads lists of Redis.",
}
_HINTS: Final = {
    "http": "The task service has no schema for this type. The JSON is the body of the request.",
    "cmd": "The task service has no schema for this type. Params of its command are in the service's file.",
}
_ANY_JSON: Final = "The task service has no schema for this type, so it takes any JSON."


class CommandKnowledge(Protocol):
    """Interface of a `TaskService` in this process that describes the commands of its task types."""

    def list_command_params(self, name: str) -> tuple[str, ...]:
        """Return the names of the params (placeholders) of a type's command; none if they are not known."""

    def check_command_payload(self, name: str, payload: bytes) -> None:
        """Raise `PyasynqError` for a payload that does not fit the command; its text names the param."""


def describe_configured_type(
    stored: TypeConfiguration, commands: CommandKnowledge | None = None
) -> TaskTypeInfo:
    """Convert a stored configuration to a `TaskTypeInfo`, the description of types that workers publish.

    If the type has no schema, the fields are the placeholders (params) of its URL or command.
    """
    options = {name: stored.content[name] for name in _OPTIONS if _is_number(stored.content.get(name))}
    schema = stored.content.get("schema")
    if not isinstance(schema, dict):
        schema = _make_schema(stored, commands)
    return TaskTypeInfo(stored.name, stored.name, schema, options, summary=_summarize(stored))


def describe_missing_fields(stored: TypeConfiguration) -> str:
    """Return a hint about what to write as the payload of a type whose fields are not known."""
    return _HINTS.get(str(stored.content.get("kind")), _ANY_JSON)


def _make_schema(stored: TypeConfiguration, commands: CommandKnowledge | None) -> dict[str, Any] | None:
    """Return a JSON Schema of the placeholders (params) in a type's URL or command; None without any."""
    names: Sequence[str] = ()
    place = ""
    if template := _find_url(stored):
        names, place = tuple(dict.fromkeys(template.places)), "part of the URL"
    elif commands is not None and stored.content.get("kind") == "cmd":
        names, place = commands.list_command_params(stored.name), "part of the command"
    if not names:
        return None
    described = {"type": ["string", "number", "boolean"], "description": place}
    return {"type": "object", "properties": dict.fromkeys(names, described), "required": list(names)}


def _summarize(stored: TypeConfiguration) -> str:
    if template := _find_url(stored):
        method = stored.content.get("method", "POST")
        return f"The task service sends each task to a host: {method} {template.text}"
    return _SUMMARIES.get(str(stored.content.get("kind")), "Configured in the task service.")


def _find_url(stored: TypeConfiguration) -> UrlTemplate | None:
    """Return the URL template of a type of the kind `http`; None for other kinds, or for an invalid URL."""
    if stored.content.get("kind") != "http":
        return None
    try:
        return parse_url_template("url", stored.content.get("url"))
    except InvalidOptionError:
        return None


def find_param_problem(
    configured: Iterable[TypeConfiguration],
    name: str,
    payload: bytes,
    commands: CommandKnowledge | None = None,
) -> tuple[str, str] | None:
    """Return the invalid param of a payload and the reason; None if no problem is found.

    The service would archive a task whose payload does not fill the URL or the command of its type.
    """
    stored = next((one for one in configured if one.name == name), None)
    if stored is None:
        return None
    return _find_schema_problem(stored, payload) or _find_place_problem(stored, payload, commands)


def _find_schema_problem(stored: TypeConfiguration, payload: bytes) -> tuple[str, str] | None:
    if stored.content.get("schema") is None:
        return None
    try:
        schema = parse_task_configuration("", dict(stored.content), name=stored.name).params_schema
    except ConfigurationError:  # the schema cannot be read, or the extra `service` is not installed
        return None
    try:
        if schema is not None:
            schema.check(json.loads(payload))
    except InvalidOptionError as error:
        return visible(error.option.removeprefix("params").removeprefix(".")), visible(error.remedy)
    except (ValueError, RecursionError):
        return "", "is not JSON, which the schema of the type asks for"
    return None


def _find_place_problem(
    stored: TypeConfiguration, payload: bytes, commands: CommandKnowledge | None
) -> tuple[str, str] | None:
    try:
        if template := _find_url(stored):
            template.fill(_read_params(payload))
        elif commands is not None and stored.content.get("kind") == "cmd":
            commands.check_command_payload(stored.name, payload)
    except PyasynqError as error:
        found = _PARAM.fullmatch(str(error))
        return (found[1], visible(found[2])) if found else ("", visible(str(error)))
    return None


def _read_params(payload: bytes) -> Mapping[str, Any] | None:
    try:
        params = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return params if isinstance(params, dict) else None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
