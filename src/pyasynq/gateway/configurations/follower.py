"""Polling of the stored configurations: reads changes every second, and reports if polls fail."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError, ServerStateError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pyasynq.operations import TypeConfiguration

    from .store import ConfigurationStore
    from .task_configuration import TaskConfiguration

_log = logging.getLogger("pyasynq.gateway")

_REST_SECONDS: Final = 1.0
_STALE_SECONDS: Final = 10.0
"""Seconds after the last successful poll from which the service is not ready."""


class ConfigurationFollower:
    """Polls Redis for changed configurations of task types. Belongs to one event loop.

    Args:
        store: store of the instance.
        tasks: configurations of the service's file, which are stored at the start.
        rest: seconds between two polls.

    Attributes:
        on_look: called after each successful periodic poll, even if nothing has changed.
    """

    def __init__(
        self,
        store: ConfigurationStore,
        tasks: Mapping[str, TaskConfiguration],
        *,
        rest: float = _REST_SECONDS,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._rest = rest
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._began_at = 0.0
        """Time of the event loop at which the newest poll began."""
        self._read_at: float | None = None
        """Time of the event loop at which the newest successful poll ended; None before the first."""
        self.on_look: Callable[[], Awaitable[None]] | None = None

    @property
    def types(self) -> Mapping[str, tuple[TaskConfiguration, int]]:
        """Configuration and version of each type, by name."""
        return self._store.types

    @property
    def is_current(self) -> bool:
        """Whether the last successful poll is recent."""
        now = asyncio.get_running_loop().time()
        return self._read_at is not None and now - self._read_at < _STALE_SECONDS

    async def start(self) -> None:
        """Store the file's configurations in Redis, read all, and start to poll for changes. Idempotent.

        Raises:
            RedisError: Redis cannot be reached; the next call tries it again.
            ServerStateError: after `close`.
        """
        if self._is_closed:
            raise ServerStateError("the instance is closing")
        if self._task is not None:
            return  # outside the lock: a poll may hold it for as long as Redis cannot be reached
        async with self._lock:
            if self._task is None:
                await self._store.write_file(self._tasks)
                await self._refresh()
                self._task = asyncio.create_task(self._follow(), name="pyasynq gateway configurations")

    async def refresh(self) -> None:
        """Poll now, such as after a change by this instance. Calls during a poll share the next poll.

        Raises:
            RedisError: Redis cannot be reached; the next poll tries again.
        """
        called_at = asyncio.get_running_loop().time()
        async with self._lock:
            if self._read_at is None or self._began_at < called_at:
                await self._refresh()

    async def clear_limits(self, deleted: TypeConfiguration) -> None:
        """Clear the limits that a deleted type had set. Raises `RedisError` if Redis cannot be reached."""
        await self._store.clear_limits(deleted)

    async def close(self) -> None:
        """Stop polling."""
        self._is_closed = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _refresh(self) -> None:
        self._began_at = asyncio.get_running_loop().time()
        await self._store.refresh()
        self._read_at = asyncio.get_running_loop().time()

    async def _follow(self) -> None:
        has_failed = False
        while True:
            await asyncio.sleep(self._rest)
            try:
                await self.refresh()
                if self.on_look is not None:
                    await self.on_look()
            except PyasynqError as error:
                if not has_failed:
                    _log.warning("configurations cannot be read: %s; retrying every second", visible(error))
                has_failed = True
            except Exception:  # noqa: BLE001 - without looks the instance serves what is stale
                _log.exception("configurations were not read; retrying every second")
            else:
                if has_failed:
                    _log.info("configurations are read again")
                has_failed = False
