"""HTTP transport: connection to the task service, which enqueues tasks."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, Final

from pyasynq.errors import InvalidOptionError, nearest

from .service_connection import ServiceConnection
from .task_request import RequestedTask

if TYPE_CHECKING:
    from .service_connection import ServiceAnswer
    from .task_request import TaskReq

_ENQUEUE_SECONDS: Final = 30.0
"""Seconds for which an enqueue request is repeated while the service does not respond."""
_OK: Final = frozenset({200, 201})
_WRONG: Final = 422
_NO_TYPES: Final = "; the service has no task types for this key"


class HttpTransport:
    """HTTP transport: requests of one program to the task service. Belongs to one event loop.

    Args:
        url: address of the service.
        key: API key; empty for a service on this machine that requires none.

    Raises:
        ConfigurationError: for an invalid address or key.
    """

    def __init__(self, url: object, key: object) -> None:
        self.connection = ServiceConnection(url, key)
        self._types: dict[str, Any] | None = None
        """Configurations of the task types that the key may see, by name; None before the first read."""

    async def start(self) -> None:
        """Read the task types from the service. Idempotent.

        Raises:
            ServiceError: the service does not answer, or refuses the key.
        """
        if self._types is None:
            await self.refresh()

    async def refresh(self) -> None:
        """Read the task types from the service again. Raises what `start` raises."""
        answer = await self.connection.send("GET", "/v1/task-types")
        if answer.status not in _OK:
            raise answer.error()
        items = answer.json().get("items", [])
        self._types = {one["name"]: one for one in items if isinstance(one, dict) and "name" in one}

    def find_kind(self, name: str) -> str:
        """Return the kind of a task type, such as `worker`; empty if the type is not configured."""
        found = (self._types or {}).get(name)
        return "" if found is None else str(found.get("kind", "worker"))

    def nearest(self, name: str) -> str:
        """Return a suggestion for the message about an unknown task name, such as the most similar name."""
        return nearest(name, self._types or ()) or ("" if self._types else _NO_TYPES)

    async def enqueue(self, request: TaskReq, finished_name: str = "") -> RequestedTask:
        """Enqueue a task; a request whose answer is lost is sent again, without enqueueing a second task.

        Args:
            request: the task.
            finished_name: task name of the report about its end; empty for no report.

        Raises:
            InvalidOptionError: for an unknown task name, and for params that do not fit.
            ServiceError: the service does not answer, or refuses.
        """
        import msgspec  # noqa: PLC0415 - of the extra `service`

        params = msgspec.Raw(request.encode_params())
        told = {"on_finished": finished_name} if finished_name else {}
        headers: dict[str, str] = {}
        body: dict[str, Any]
        if request.task_id is None:
            body = {"type": request.task_name, "params": params, "options": told}
            headers["Idempotency-Key"] = uuid.uuid4().hex
        else:
            body = {"task_id": request.task_id, "task_name": request.task_name, "params": params, **told}
        until = asyncio.get_running_loop().time() + _ENQUEUE_SECONDS
        answer = await self.connection.repeat("POST", "/v1/tasks", body, headers=headers, until=until)
        if answer.status not in _OK:
            raise _to_error(answer)
        found = answer.json()
        return RequestedTask(
            str(found.get("id", "")),
            str(found.get("queue", "")),
            str(found.get("state", "")),
            found.get("existing") is True,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self.connection.close()


def _to_error(answer: ServiceAnswer) -> Exception:
    problem = answer.json()
    if answer.status == _WRONG and problem.get("field"):
        field = "task_name" if problem["field"] == "type" else str(problem["field"])
        return InvalidOptionError(field, str, answer.reason)
    return answer.error()
