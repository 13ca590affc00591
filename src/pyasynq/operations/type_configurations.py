"""Stored configurations of task types: JSON objects under a version, which the task service understands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class TypeConfiguration:
    """The stored configuration of a task type.

    Attributes:
        name: name of the type, and of its queue.
        version: changes with each change; a later one is higher.
        content: the fields of the configuration.
    """

    name: str
    version: int
    content: Mapping[str, Any]


def encode_content(content: Mapping[str, Any], largest: int) -> bytes:
    """Return a configuration as JSON, the same for equal ones.

    Raises:
        InvalidOptionError: for one that is not JSON, or too large.
    """
    try:
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)
        data = text.encode()
    except (TypeError, ValueError, RecursionError):
        raise InvalidOptionError("content", type(content), "must be an object of JSON") from None
    if len(data) > largest:
        raise InvalidOptionError("content", len(data), f"must have at most {largest:,} bytes as JSON")
    return data


def decode_content(data: bytes) -> dict[str, Any] | None:
    """Decode a configuration from its JSON; return None for anything else."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
