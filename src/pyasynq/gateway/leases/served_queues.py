"""The consumer of an instance, which serves the queues that workers ask for."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from pyasynq._visible_text import visible
from pyasynq.consumer import Consumer
from pyasynq.errors import PyasynqError, ServerStateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq.consumer import ConsumerConfig
    from pyasynq.events import Events

_log = logging.getLogger("pyasynq.gateway")

_IDLE_SECONDS: Final = 60.0
"""Seconds without use after which a queue is dropped: longer than the longest poll."""
_MOST: Final = 1_000
"""Maximum number of queues served at once; each is polled regularly, even while it is empty."""


class ServedQueues:
    """Set of queues that one consumer serves: queues are added at their first use, and dropped when idle.

    The consumer starts with the first queue. A queue that no worker requests is dropped, so that its tasks
    are shown as waiting without a worker. Belongs to one event loop.

    Args:
        redis: as for `Consumer`.
        config: config of the consumer; its `queues` are ignored.
        events: as for `Consumer`.
        most: maximum number of served queues; above it, the least recently used one is dropped (LRU).
        idle_seconds: time without use after which a queue is dropped.
        is_held: returns whether a worker may have leased tasks of a queue; such a queue is not idle.
    """

    def __init__(
        self,
        redis: Any,
        config: ConsumerConfig,
        events: Events | None = None,
        *,
        most: int = _MOST,
        idle_seconds: float = _IDLE_SECONDS,
        is_held: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._redis = redis
        self._config = config
        self._events = events
        self._most = most
        self._idle_seconds = idle_seconds
        self._is_held = is_held
        self._consumer: Consumer | None = None
        self._served: dict[str, None] = {}
        """Names of the served queues, the least recently used first."""
        self._used_at: dict[str, float] = {}
        """Time of the loop at which the last use of each queue ended."""
        self._sweep: asyncio.Task[None] | None = None
        self._users: Counter[str] = Counter()
        """Number of calls that use a queue now (reference count)."""
        self._starts: dict[str, asyncio.Task[None]] = {}
        """Asyncio tasks that start to serve a queue, by its name; shared by all calls that wait for it."""
        self._lock = asyncio.Lock()
        self._closed = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the served queues, the least recently used first."""
        return tuple(self._served)

    def using(self, *queues: str) -> QueueUse:
        """Return the context manager that serves queues at least for the duration of a block."""
        return QueueUse(self, queues)

    async def begin_use(self, queues: Sequence[str]) -> Consumer:
        """Serve queues at least until `end_use`, which the caller must call even after an error of this call.

        Raises:
            ServerStateError: after `close`.
            RedisError: when Redis cannot be reached, or refuses the connection.
        """
        for name in queues:
            self._users[name] += 1
        for name in queues:
            await self._serve(name)
        if self._consumer is None:
            raise ServerStateError("the consumer is closed")
        return self._consumer

    def end_use(self, queues: Sequence[str]) -> None:
        """End a use of queues that `begin_use` began; unused queues are dropped after a while."""
        for name in queues:
            self._users[name] -= 1
            if not self._users[name]:
                del self._users[name]
                self._used_at[name] = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Close the consumer. Waiting calls get no tasks."""
        self._closed = True
        if self._sweep is not None:
            self._sweep.cancel()
            await asyncio.wait({self._sweep})
        async with self._lock:
            if self._consumer is not None:
                await self._consumer.close()

    async def drop_idle(self) -> None:
        """Drop the queues that were not used for a while; close the consumer if none is left.

        Raises:
            PyasynqError: as `Consumer.unserve` does.
        """
        async with self._lock:
            consumer = self._consumer
            if consumer is None:
                return
            if all(map(self._is_idle, self._served)):
                self._consumer = None
                self._served.clear()
                self._used_at.clear()
                await consumer.close()
                return
            for name in list(self._served):
                if self._is_idle(name) and len(self._served) > 1:
                    del self._served[name]
                    self._used_at.pop(name, None)
                    await consumer.unserve(name)

    def _is_idle(self, name: str) -> bool:
        if name in self._users or self._is_held(name):
            return False
        now = asyncio.get_running_loop().time()
        return now - self._used_at.get(name, now) >= self._idle_seconds

    async def _drop_idle_again(self) -> None:
        while True:
            await asyncio.sleep(self._idle_seconds / 4)
            try:
                await self.drop_idle()
            except PyasynqError as error:
                _log.warning("a queue that no worker asks for is still served: %s", visible(error))
            except Exception:  # noqa: BLE001 - it must not end the next look
                _log.exception("queues that no worker asks for are still served")

    async def _serve(self, name: str) -> None:
        if name in self._served and not self._closed:
            self._served[name] = self._served.pop(name)
            return
        start = self._starts.get(name)
        if start is None:
            start = asyncio.create_task(self._start(name), name="pyasynq leases serve")
            self._starts[name] = start
            start.add_done_callback(lambda task: self._end_start(name, task))
        await asyncio.shield(start)

    def _end_start(self, name: str, task: asyncio.Task[None]) -> None:
        del self._starts[name]
        if not task.cancelled():
            # Callers get the exception too. If all of them were cancelled, asyncio would report it as never
            # retrieved.
            task.exception()

    async def _start(self, name: str) -> None:
        async with self._lock:
            if self._closed:
                raise ServerStateError("the consumer is closed")
            if self._consumer is None:
                config = dataclasses.replace(self._config, queues={name: 1})
                consumer = Consumer(self._redis, config, events=self._events)
                await consumer.start()
                self._consumer = consumer
                if self._sweep is None:
                    self._sweep = asyncio.create_task(self._drop_idle_again(), name="pyasynq idle queues")
            else:
                await self._consumer.serve(name)
            self._served[name] = None
            await self._drop(self._consumer)

    async def _drop(self, consumer: Consumer) -> None:
        """Drop the least recently used queues above the limit, except queues in use."""
        for name in list(self._served)[: max(0, len(self._served) - self._most)]:
            if name not in self._users:
                del self._served[name]
                await consumer.unserve(name)


class QueueUse:
    """Context manager that serves queues during a block, and returns their consumer.

    It raises what `begin_use` raises. It is a class, because a generator with `contextlib` would take three
    times as long, and each request uses one or two of these.
    """

    __slots__ = ("_queues", "_served")

    def __init__(self, served: ServedQueues, queues: tuple[str, ...]) -> None:
        self._served = served
        self._queues = queues

    async def __aenter__(self) -> Consumer:
        try:
            return await self._served.begin_use(self._queues)
        except BaseException:
            self._served.end_use(self._queues)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._served.end_use(self._queues)
