"""Looking into queues and servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pyasynq._broker import inspect_queues, views
from pyasynq._broker.driver import AsyncDriver
from pyasynq._broker.redis_url import parse_redis_url
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq.options import seconds_of

if TYPE_CHECKING:
    from types import TracebackType

    from pyasynq._clock import Clock
    from pyasynq.info import QueueInfo, ServerInfo
    from pyasynq.options import Duration
    from pyasynq.task import TaskInfo, TaskState


class Inspector:
    """Tells what Redis holds of queues, tasks and servers, those of Go peers included.

    Use it as a context manager, or call `close`. Like a client, it belongs to one event loop and one process.

    Args:
        url: where Redis is, as for `Client`.
        timeout: seconds that a call may take, connecting included.
        clock: what it takes for the present, which tests replace.

    Raises:
        ConfigurationError: for a URL that cannot work.

    Every method raises a `RedisError` when Redis or the way to it fails. A method that is cancelled leaves
    nothing behind: it only reads.
    """

    def __init__(self, url: str, *, timeout: Duration = 5.0, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._driver = AsyncDriver(
            parse_redis_url(url),
            client_name="pyasynq-inspector",
            timeout=seconds_of("timeout", timeout),
            clock=clock,
        )

    async def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return await self._driver.run(inspect_queues.queue_names())

    async def queue_info(self, queue: str) -> QueueInfo:
        """Return the counts of a queue; raise `QueueNotFoundError` when there is none of this name."""
        return await self._driver.run(views.queue_info(queue, now=self._clock.now()))

    async def list_tasks(
        self, queue: str, state: TaskState | str, page: int = 1, page_size: int = 30
    ) -> list[TaskInfo]:
        """Return a page of the tasks of one state.

        Pending tasks come in the order in which they will be taken, active ones in that in which they were
        taken, scheduled and retry ones by the time they are due, archived ones by the time they were
        archived, completed ones by the time they will be deleted.

        Raises:
            InvalidOptionError: for another state, and for a `page` or `page_size` below 1.
            QueueNotFoundError: when there is no such queue.
        """
        now = self._clock.now()
        return await self._driver.run(views.list_tasks(queue, state, page=page, page_size=page_size, now=now))

    async def task_info(self, queue: str, task_id: str) -> TaskInfo:
        """Return what Redis knows of a task; raise `QueueNotFoundError` or `TaskNotFoundError`."""
        return await self._driver.run(views.task_info(queue, task_id, now=self._clock.now()))

    async def servers(self) -> list[ServerInfo]:
        """Return the live servers, with what each was working on at its last heartbeat."""
        return await self._driver.run(views.servers())

    async def close(self) -> None:
        """Close the connections; further calls raise `ClientClosedError`. Closing twice is harmless."""
        await self._driver.close()

    async def __aenter__(self) -> Self:
        """Return the inspector; the first call connects."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.close()
