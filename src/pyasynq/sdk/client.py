"""`SdkClient`: enqueues tasks from a program that has no worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from .endings import name_endings
from .transports import make_transport

if TYPE_CHECKING:
    from types import TracebackType

    from .task_request import RequestedTask, TaskReq


class SdkClient:
    """Enqueues tasks of configured types, for a program without a worker. Belongs to one event loop.

    It connects with the first call. Close it, or use it as a context manager.

    Args:
        redis: where Redis is, as for `Client`.
        service: address of the task service, such as `http://task-queue:8080`. Give this or `redis`.
        key: API key for `service`, with the scope `tasks:write`.
        team: name of the team, for the audit.
        tell_endings: whether the `on_finished` of the team's worker is called with the end of each task.

    Raises:
        ConfigurationError: for invalid arguments.
    """

    def __init__(
        self,
        *,
        redis: Any = None,
        service: str | None = None,
        key: str = "",
        team: str = "",
        tell_endings: bool = False,
    ) -> None:
        self._finished_name = name_endings(team) if tell_endings else ""
        self._transport = make_transport(redis=redis, service=service, key=key, team=team)

    async def enqueue(self, request: TaskReq) -> RequestedTask:
        """Enqueue a task.

        Raises:
            InvalidOptionError: for an unknown task name, and for params that do not fit its schema.
            PyasynqError: as `Client.enqueue` does.
        """
        return await self._transport.enqueue(request, self._finished_name)

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        await self.close()
