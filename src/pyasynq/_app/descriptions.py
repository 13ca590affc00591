"""Descriptions of declared tasks, which workers publish."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyasynq._payload.schema import secret_paths
from pyasynq.callbacks import HasCallback
from pyasynq.options import DEFAULT_QUEUE
from pyasynq.task_types import TaskTypeInfo

if TYPE_CHECKING:
    from pyasynq._app.typed_task import TypedTask

_UNTOLD: Final = {"headers", "queue"}
"""Options left out of descriptions: headers may hold credentials, and the queue has its own field."""


def describe_task(task: TypedTask[..., Any], summary: str, version: str) -> TaskTypeInfo:
    """Return the description of a declared task for tools."""
    schema = task.schema()
    options = task.declared_options
    return TaskTypeInfo(
        type=task.type,
        queue=options.get("queue", DEFAULT_QUEUE),
        schema=schema,
        options={name: _as_json(value) for name, value in options.items() if name not in _UNTOLD},
        secrets=secret_paths(schema),
        summary=summary,
        version=version,
    )


def _as_json(value: object) -> object:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, HasCallback):
        return value.__pyasynq_callback__().type
    return value.isoformat() if isinstance(value, datetime) else value
