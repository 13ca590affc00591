"""New tasks of configured types, for the HTTP API and the SDK: validation of params, and the short form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyasynq.callbacks import Callback
from pyasynq.errors import InvalidOptionError, TaskIDConflictError, TaskNotFoundError
from pyasynq.options import DEFAULT_TIMEOUT_SECONDS, resolve_options

if TYPE_CHECKING:
    from pyasynq.client import Client
    from pyasynq.gateway.configurations import TaskConfiguration
    from pyasynq.gateway.counted_client import CountedClient
    from pyasynq.operations import Operator
    from pyasynq.task import Task, TaskInfo

_TRIES: Final = 5
"""Number of tries to enqueue a task, if the earlier task with its id ends at the same moment."""


def short_form_options(task_id: int | str) -> dict[str, Any]:
    """Return the enqueue options for a chosen task id: an ended task with this id is replaced."""
    return {"task_id": str(task_id), "on_conflict": "replace_finished"}


def make_callback(configuration: TaskConfiguration) -> Callback:
    """Return the callback that enqueues a task of a configured type when another task has ended."""
    options = resolve_options(configuration.options)
    return Callback(
        configuration.name,
        configuration.name,
        max_retry=options.max_retry,
        timeout=options.timeout or DEFAULT_TIMEOUT_SECONDS,
        retention=options.retention,
    )


def check_params(configuration: TaskConfiguration, payload: bytes | None, *, is_json: bool) -> None:
    """Validate a payload by the JSON Schema of its task type.

    Raises:
        InvalidOptionError: the payload does not fit; the error names the field.
    """
    schema = configuration.params_schema
    if schema is None:
        return
    if not is_json or payload is None:
        raise InvalidOptionError("params", type(payload), "this type has a schema: give params in JSON")
    try:
        params = json.loads(payload)
    except ValueError:
        raise InvalidOptionError("params", bytes, "has a number with too many digits") from None
    schema.check(params)


async def enqueue_short(
    client: Client | CountedClient, operator: Operator, task: Task
) -> tuple[TaskInfo, bool]:
    """Enqueue a task with a chosen id, unless a task with this id waits or runs.

    Return the new or existing task, and whether it existed already.

    Raises:
        TaskIDConflictError: at each of several tries, the earlier task ended and another took its id.
        PyasynqError: as `Client.enqueue` does.
    """
    tries_left = _TRIES
    while True:
        tries_left -= 1
        try:
            return await client.enqueue(task), False
        except TaskIDConflictError as conflict:
            try:
                return await operator.task(conflict.queue, conflict.task_id), True
            except TaskNotFoundError:
                if not tries_left:
                    raise conflict from None
