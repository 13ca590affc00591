"""The sending side of an app: two clients, one for coroutines and one for blocking code."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyasynq._app.client_middleware import blocking_middleware
from pyasynq._app.handles import BlockingTaskHandle, TaskHandle
from pyasynq._call_shape import check_client_middleware
from pyasynq._checks import check_max_bytes, check_name, parse_positive_seconds
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.clients import read_source_url
from pyasynq._redis.url import parse_redis_url
from pyasynq.client import Client
from pyasynq.errors import ConfigurationError
from pyasynq.options import DEFAULT_QUEUE, events_kept

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable, Iterator
    from types import TracebackType
    from typing import Self, Unpack

    from pyasynq import sync
    from pyasynq._broker.enqueueing.chunks import OnError
    from pyasynq._clock import Clock
    from pyasynq._redis.clients import RedisSource
    from pyasynq.client import ClientMiddleware
    from pyasynq.inspector import Inspector
    from pyasynq.options import Duration, EnqueueOptions
    from pyasynq.task import EnqueueResult, FinishedTask, Task, TaskInfo

_C = TypeVar("_C", bound="ClientMiddleware")

REDIS_URL_VARIABLE = "PYASYNQ_REDIS_URL"
"""Environment variable with the URL for apps without `url`; it is read at the first connection."""


class Destination(Protocol):
    """Interface to the test kit, which opens clients with the Redis and clock of an app under test."""

    url: str
    clock: Clock

    def open_client(self, **settings: Any) -> Client:
        """Make an asyncio client."""

    def open_blocking_client(self, **settings: Any) -> sync.Client:
        """Make a blocking client."""


class Sending:
    """Methods of an app that enqueue tasks and wait for them. Each client is opened at its first use."""

    def __init__(
        self,
        url: RedisSource | None,
        client_middleware: Iterable[ClientMiddleware],
        *,
        max_payload: int,
        timeout: Duration,
        publish_events: bool | int,
    ) -> None:
        self._url = None if url is None else _read_checked_url(url)
        self._client_middleware = list(client_middleware)
        for one in self._client_middleware:
            check_client_middleware(one)
        check_max_bytes("max_payload", max_payload)
        self._max_payload = max_payload
        self._timeout = parse_positive_seconds("timeout", timeout)
        events_kept("publish_events", publish_events)
        self._publish_events = publish_events
        self._client: Client | None = None
        self._blocking_client: sync.Client | None = None
        self._inspector: Inspector | None = None
        self._blocking_inspector: sync.Inspector | None = None
        self._opening = threading.RLock()  # reentrant: a signal handler may enqueue while its thread holds it
        self._destination: Destination | None = None

    @property
    def url(self) -> str:
        """The connection URL, including the password. It may be set until the app is first used.

        While the app is under test, this is always the URL of the test's database.

        Raises:
            ConfigurationError: when there is none, or a new one cannot work.
        """
        if self._destination is not None:
            return self._destination.url
        url = self._url or os.environ.get(REDIS_URL_VARIABLE)
        if not url:
            raise ConfigurationError(
                "this app has no Redis URL: write App('redis://localhost:6379/0'), "
                f"or set {REDIS_URL_VARIABLE} in the environment",
            )
        return url

    @url.setter
    def url(self, url: RedisSource) -> None:
        self._url = _read_checked_url(url)

    @property
    def _clock(self) -> Clock:
        return SYSTEM_CLOCK if self._destination is None else self._destination.clock

    @contextmanager
    def _redirect(self, destination: Destination) -> Iterator[None]:
        """Use another Redis and clock within a `with` block. Earlier connections are closed."""
        if self._destination is not None:
            raise ConfigurationError(f"{self!r} is in use by a test kit already; an app has one at a time")
        self._let_go()
        self._destination = destination
        try:
            yield
        finally:
            self._let_go()
            self._destination = None

    def _let_go(self) -> None:
        """Close all connections at once, including those of event loops in other threads."""
        self.close_sync()
        client, self._client = self._client, None
        if client is not None:
            client._abandon()  # noqa: SLF001 - the maker of a client may cut it off
        inspector, self._inspector = self._inspector, None
        if inspector is not None:
            inspector._driver.abandon()  # noqa: SLF001 - as above

    @property
    def address(self) -> str:
        """Address of Redis, without the password."""
        return parse_redis_url(self.url).address

    def _describe_redis(self) -> str:
        """Return address and database of Redis, without the password."""
        return parse_redis_url(self.url).address_and_database

    def use_client(self, middleware: _C) -> _C:
        """Add `async def m(task, call_next)` around every enqueue, inside the client middleware added before.

        It may be used as a decorator, and may pass a task with other headers or options to `call_next`, which
        returns the `TaskInfo`. `enqueue_sync` runs it too, and raises `ConfigurationError` if it awaits
        anything but `call_next`.
        """
        check_client_middleware(middleware)
        self._client_middleware.append(middleware)
        if self._client is not None:
            self._client.use(middleware)
        if self._blocking_client is not None:
            self._blocking_client.use(blocking_middleware(middleware))
        return middleware

    async def enqueue(
        self,
        task: Task | str,
        payload: bytes | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskInfo:
        """Enqueue a task of any type, as `Client.enqueue` does; typed tasks have their own `enqueue`."""
        self._check_front(task, options)
        return await self._open().enqueue(task, payload, **options)

    def enqueue_sync(
        self,
        task: Task | str,
        payload: bytes | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> TaskInfo:
        """Enqueue a task of any type, blocking this thread."""
        self._check_front(task, options)
        return self._open_blocking().enqueue(task, payload, **options)

    def _check_front(self, task: Task | str, options: EnqueueOptions) -> None:
        """Raise `InvalidOptionError` for a task at the front of a queue that the app declares as ordered."""
        raise NotImplementedError

    async def enqueue_many(
        self,
        tasks: Iterable[Task] | AsyncIterable[Task],
        *,
        on_error: OnError = "raise",
        **shared: Unpack[EnqueueOptions],
    ) -> list[EnqueueResult]:
        """Enqueue any mix of tasks in chunks, and return a result for each; see `Client.enqueue_many`.

        If the caller is cancelled, some tasks may already be enqueued.

        Raises:
            EnqueueManyError: tasks were refused or may be lost, unless `on_error` is `"return"`.
        """
        return await self._open().enqueue_many(tasks, on_error=on_error, **shared)

    def enqueue_many_sync(
        self,
        tasks: Iterable[Task],
        *,
        on_error: OnError = "raise",
        **shared: Unpack[EnqueueOptions],
    ) -> list[EnqueueResult]:
        """Enqueue any mix of tasks, blocking this thread. Raises what `enqueue_many` raises."""
        return self._open_blocking().enqueue_many(tasks, on_error=on_error, **shared)

    async def wait(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait until a task of any type has ended, as `Client.wait` does."""
        return await self._open().wait(queue, task_id, timeout)

    def wait_sync(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait until a task of any type has ended, blocking this thread."""
        return self._open_blocking().wait(queue, task_id, timeout)

    async def result(self, queue: str, task_id: str, timeout: Duration | None = None) -> bytes | None:
        """Wait for the result of a task of any type, as `Client.result` does."""
        return await self._open().result(queue, task_id, timeout)

    def result_sync(self, queue: str, task_id: str, timeout: Duration | None = None) -> bytes | None:
        """Wait for the result of a task of any type, blocking this thread."""
        return self._open_blocking().result(queue, task_id, timeout)

    def handle(self, task_id: str, queue: str = DEFAULT_QUEUE) -> TaskHandle[bytes | None]:
        """Return the handle of a task of any type; its result is the stored bytes, not decoded.

        Redis is not asked whether there is such a task. Typed tasks have their own `handle`.

        Raises:
            InvalidOptionError: for a blank id or queue.
        """
        return TaskHandle(self, check_name("queue", queue), check_name("task_id", task_id), _as_stored)

    def handle_sync(self, task_id: str, queue: str = DEFAULT_QUEUE) -> BlockingTaskHandle[bytes | None]:
        """Return a blocking handle, for threads; otherwise as `handle`."""
        return BlockingTaskHandle(
            self, check_name("queue", queue), check_name("task_id", task_id), _as_stored
        )

    def inspector(self) -> Inspector:
        """Return an inspector of the app's Redis: `async with app.inspector() as inspector`."""
        from pyasynq.inspector import Inspector  # noqa: PLC0415 - programs that only enqueue start faster

        return Inspector(self.url, clock=self._clock, timeout=self._timeout)

    def inspector_sync(self) -> sync.Inspector:
        """Return a blocking inspector of the app's Redis: `with app.inspector_sync() as inspector`."""
        from pyasynq import sync  # noqa: PLC0415 - programs that only enqueue start faster

        return sync.Inspector(self.url, clock=self._clock, timeout=self._timeout)

    def _open_inspector(self) -> Inspector:
        if self._inspector is None:
            self._inspector = self.inspector()
        return self._inspector

    def _open_blocking_inspector(self) -> sync.Inspector:
        with self._opening:
            if self._blocking_inspector is None:
                self._blocking_inspector = self.inspector_sync()
                atexit.register(self.close_sync)
            return self._blocking_inspector

    async def ping(self) -> None:
        """Check that Redis answers (PING).

        Raises:
            RedisError: when Redis cannot be reached within the timeout, or refuses.
        """
        await self._open().ping()

    def ping_sync(self) -> None:
        """Check that Redis answers, blocking this thread. Raises what `ping` raises."""
        self._open_blocking().ping()

    async def close(self) -> None:
        """Close the connections of this app. If it is used afterwards, it opens new connections."""
        self.close_sync()
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        inspector, self._inspector = self._inspector, None
        if inspector is not None:
            await inspector.close()

    def close_sync(self) -> None:
        """Close the connections that the blocking methods opened."""
        with self._opening:
            client, self._blocking_client = self._blocking_client, None
            inspector, self._blocking_inspector = self._blocking_inspector, None
        for one in (client, inspector):
            if one is not None:
                atexit.unregister(self.close_sync)
                one.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _open(self) -> Client:
        if self._client is None:
            settings: dict[str, Any] = {
                "max_payload": self._max_payload,
                "timeout": self._timeout,
                "middleware": self._client_middleware,
                "publish_events": self._publish_events,
            }
            if self._destination is not None:
                self._client = self._destination.open_client(**settings)
            else:
                self._client = Client(self.url, **settings)
        return self._client

    def _open_blocking(self) -> sync.Client:
        with self._opening:
            opened = self._blocking_client
            if opened is None:
                settings: dict[str, Any] = {
                    "max_payload": self._max_payload,
                    "timeout": self._timeout,
                    "middleware": map(blocking_middleware, self._client_middleware),
                    "publish_events": self._publish_events,
                }
                if self._destination is not None:
                    opened = self._destination.open_blocking_client(**settings)
                else:
                    opened = _make_blocking_client(self.url, settings)
                opened = self._keep_blocking(opened)
            return opened

    def _keep_blocking(self, client: sync.Client) -> sync.Client:
        """Store a new client, unless a signal handler has stored one before; return the stored one."""
        if self._blocking_client is None:
            self._blocking_client = client
            # Scripts and web processes that only enqueue need not call `close_sync` themselves.
            atexit.register(self.close_sync)
        return self._blocking_client


def _make_blocking_client(url: str, settings: dict[str, Any]) -> sync.Client:
    from pyasynq.sync.client import Client  # noqa: PLC0415 - programs that only await start faster

    return Client(url, **settings)


def _read_checked_url(source: RedisSource) -> str:
    url = read_source_url(source)
    parse_redis_url(url)
    return url


def _as_stored(data: bytes | None) -> bytes | None:
    return data
