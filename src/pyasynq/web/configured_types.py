"""Task service's types for the form that enqueues: schema, options, and validation of a payload."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError
from pyasynq.gateway.configurations import parse_task_configuration
from pyasynq.task_types import TaskTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq.operations import TypeConfiguration

_OPTIONS = ("max_retry", "timeout", "retention")


def describe_configured_type(stored: TypeConfiguration) -> TaskTypeInfo:
    """Return a stored configuration in the form of a description that workers publish."""
    schema = stored.content.get("schema")
    options = {name: stored.content[name] for name in _OPTIONS if _is_number(stored.content.get(name))}
    return TaskTypeInfo(
        stored.name,
        stored.name,
        schema if isinstance(schema, dict) else None,
        options,
        summary="Configured in the task service.",
    )


def find_param_problem(
    configured: Iterable[TypeConfiguration], name: str, payload: bytes
) -> tuple[str, str] | None:
    """Return where and why the task service would refuse a payload; None if it would not, or if unknown."""
    stored = next((one for one in configured if one.name == name), None)
    if stored is None or stored.content.get("schema") is None:
        return None
    try:
        schema = parse_task_configuration("", dict(stored.content), name=name).params_schema
    except (InvalidOptionError, ImportError):
        return None
    try:
        if schema is not None:
            schema.check(json.loads(payload))
    except InvalidOptionError as error:
        return visible(error.option.removeprefix("params").removeprefix(".")), visible(error.remedy)
    except (ValueError, RecursionError):
        return "", "is not JSON, which the schema of the type asks for"
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
