# Generated from src/pyasynq/inspector.py by tools/unasync.py; change that file and run `make sync`.
"""Looking into queues and servers."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Self

from pyasynq._broker import inspect_queues, views
from pyasynq._broker.driver import BlockingDriver
from pyasynq._broker.redis_url import parse_redis_url
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq.errors import InvalidOptionError
from pyasynq.options import seconds_of

if TYPE_CHECKING:
    from types import TracebackType

    from pyasynq._clock import Clock
    from pyasynq.info import QueueInfo, ServerInfo
    from pyasynq.task import TaskInfo, TaskState


class Inspector:
    """Tells what Redis holds of queues, tasks and servers, those of Go peers included.

    It connects with the first call. The asyncio inspector (`pyasynq.Inspector`) belongs to the event loop and
    the process that use it; the blocking one (`pyasynq.sync.Inspector`) may be shared by threads. Close it,
    or use it as a context manager; one that is never closed gives a `ResourceWarning`.

    Every method raises a `RedisError` when Redis or the way to it fails. They only read, so one that is
    cancelled leaves nothing behind.

    Args:
        url: `redis://`, `rediss://`, `unix://` or `embedded://`.
        timeout: seconds that one call may wait for Redis, with reconnecting and sending again.
        clock: tells the present, for what is measured against it.
        client_name: what `CLIENT LIST` shows.

    Raises:
        ConfigurationError: for a URL or a value that cannot work.
    """

    def __init__(
        self,
        url: str = "redis://localhost:6379/0",
        *,
        timeout: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
        client_name: str = "pyasynq-inspector",
    ) -> None:
        if seconds_of("timeout", timeout) == 0:
            raise InvalidOptionError("timeout", timeout, "must be more than 0 seconds")
        target = parse_redis_url(url)
        self._clock = clock
        self._driver = BlockingDriver(target, client_name=client_name, timeout=float(timeout), clock=clock)

    def queues(self) -> list[str]:
        """Return the names of all queues, sorted."""
        return self._driver.run(inspect_queues.queue_names())

    def queue_info(self, queue: str) -> QueueInfo:
        """Return the counts of a queue; raise `QueueNotFoundError` when there is none of this name."""
        return self._driver.run(views.queue_info(queue, now=self._clock.now()))

    def list_tasks(
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
        return self._driver.run(views.list_tasks(queue, state, page=page, page_size=page_size, now=now))

    def task_info(self, queue: str, task_id: str) -> TaskInfo:
        """Return what Redis knows of a task; raise `QueueNotFoundError` or `TaskNotFoundError`."""
        return self._driver.run(views.task_info(queue, task_id, now=self._clock.now()))

    def servers(self) -> list[ServerInfo]:
        """Return the live servers, with what each was working on at its last heartbeat."""
        return self._driver.run(views.servers())

    def close(self) -> None:
        """Close the connections; further calls raise `ClientClosedError`. Closing twice is harmless."""
        self._driver.close()

    def __enter__(self) -> Self:
        """Return the inspector; the first call connects."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def __del__(self) -> None:
        """Warn about an inspector that has connections and was never closed."""
        driver = getattr(self, "_driver", None)
        if driver is not None and driver.abandon():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Inspector of Redis at {self._driver.target.address}>"
