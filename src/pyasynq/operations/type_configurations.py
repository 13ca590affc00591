"""Stored configurations of task types: versioned JSON objects, which only the task service interprets."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class TypeConfiguration:
    """The stored configuration of a task type.

    Attributes:
        name: name of the type, and of its queue.
        version: number of the version, which increases with each change.
        content: the fields of the configuration.
    """

    name: str
    version: int
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TypeVersion:
    """One version of a task type's configuration.

    Attributes:
        version: number of the version.
        at: time of the change; None if it is not known.
        by: name of the user who made it; empty if it is not known.
        reason: reason for the change, as given by the user.
        content: the fields of the configuration; None for a deletion.
    """

    version: int
    at: datetime | None
    by: str
    reason: str
    content: Mapping[str, Any] | None


def encode_version(version: TypeVersion) -> bytes:
    """Return a version as JSON, without its number."""
    facts = {
        "at": None if version.at is None else version.at.timestamp(),
        "by": version.by,
        "reason": version.reason,
        "content": version.content,
    }
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode_version(number: int, data: bytes) -> TypeVersion | None:
    """Decode a version from its JSON; return None for anything else."""
    try:
        facts = json.loads(data)
        content = facts["content"]
        at = None if facts["at"] is None else datetime.fromtimestamp(float(facts["at"]), UTC)
        if content is not None and not isinstance(content, dict):
            return None
        return TypeVersion(number, at, str(facts["by"]), str(facts["reason"]), content)
    except (ValueError, TypeError, LookupError, OverflowError, OSError, RecursionError):
        return None


def encode_content(content: Mapping[str, Any], largest: int) -> bytes:
    """Encode a configuration as JSON; equal configurations give equal bytes.

    Raises:
        InvalidOptionError: for content that JSON cannot represent, or that is too large.
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
