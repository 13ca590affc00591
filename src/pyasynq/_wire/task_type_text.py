"""Description of a task type, as workers write it to `asynq:x:types`: a second, a space, and JSON.

1789000000 {"queue":"mail","schema":{...},"options":{"max_retry":5},"summary":"Deliver one message."}
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pyasynq.task_types import TaskTypeInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TYPE_BYTES: Final = 32_768
"""Maximum bytes of JSON for one type; a larger one is written without its schema, or not at all."""
_MAX_SUMMARY: Final = 200
_MAX_VERSION: Final = 100


def encode_task_type(info: TaskTypeInfo) -> bytes | None:
    """Return the JSON, without empty fields; None for a type that is too large even without its schema."""
    facts = {
        "queue": info.queue,
        "schema": info.schema,
        "options": info.options,
        "secrets": info.secrets,
        "summary": info.summary[:_MAX_SUMMARY],
        "version": info.version[:_MAX_VERSION],
        "prefix": info.is_prefix,
    }
    data = _dump(facts)
    if len(data) > MAX_TYPE_BYTES:
        data = _dump(facts | {"schema": None})
    return data if len(data) <= MAX_TYPE_BYTES else None


def _dump(facts: Mapping[str, Any]) -> bytes:
    told = {name: value for name, value in facts.items() if value}
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode_task_type(task_type: str, value: bytes) -> TaskTypeInfo | None:
    """Decode a value of the hash; None if it cannot be parsed."""
    second, _, data = value.partition(b" ")
    try:
        seen = datetime.fromtimestamp(int(second), UTC)
        facts = json.loads(data)
        return TaskTypeInfo(
            type=task_type,
            queue=_text(facts.get("queue")),
            schema=_mapping(facts.get("schema")),
            options=_mapping(facts.get("options")) or {},
            secrets=tuple(_text(one) for one in facts.get("secrets", ())),
            summary=_text(facts.get("summary")),
            version=_text(facts.get("version")),
            is_prefix=facts.get("prefix") is True,
            seen=seen,
        )
    except (ValueError, TypeError, AttributeError, OverflowError, OSError, RecursionError):
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, dict) else None
