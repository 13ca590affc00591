"""The class `Consumer`: takes and leases tasks from queues for other programs."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

from pyasynq._broker.verdicts import Verdict
from pyasynq._checks import check_whole, parse_seconds
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.consumer_engine import ConsumerEngine
from pyasynq._engine.lease.lease_receipt import Receipt
from pyasynq._engine.logs import LogSubscriber
from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS
from pyasynq._redis.url import parse_redis_url
from pyasynq.config import check_queues
from pyasynq.consumer._attempt import Attempt, Attempts, SettledAttempt, settle_leftovers
from pyasynq.consumer._config import ConsumerConfig
from pyasynq.errors import ConfigurationError, ServerStateError
from pyasynq.events import Events, ServerStateChanged

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from pyasynq._clock import Clock
    from pyasynq._redis.clients import RedisSource
    from pyasynq.limits import Queue
    from pyasynq.options import Duration


class Consumer:
    """Takes tasks from queues for the calling program, with leases, settling and recovery as in a server.

    A consumer is for programs with their own main loop, and for programs that forward tasks to other workers.
    Dashboards show it as a server, and its held attempts as the server's workers. It belongs to one event
    loop and is used once.

    Args:
        url: where Redis is, such as `redis://localhost:6379/0`; or as for `Client`.
        config: queues and everything else.
        clock: for tests.
        events: receive reports of what happens; by default the consumer's own.

    Raises:
        ConfigurationError: for a URL that cannot work.
    """

    def __init__(
        self,
        url: RedisSource,
        config: ConsumerConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        events: Events | None = None,
    ) -> None:
        self._target = parse_redis_url(url)
        self.config = config if config is not None else ConsumerConfig()
        self.events = events if events is not None else Events()
        self._clock = clock
        self._settings = DEFAULT_ENGINE_SETTINGS
        self._engine: ConsumerEngine | None = None
        self._closing: asyncio.Future[None] | None = None

    @property
    def id(self) -> str | None:
        """The consumer's id in Redis; None before the start."""
        return None if self._engine is None else self._engine.server_id

    async def start(self) -> None:
        """Start; `async with` does it. Tasks are taken only on request.

        Raises:
            ServerStateError: when the consumer was started before, or closed meanwhile.
            ConfigurationError: on Windows.
            RedisError: when Redis cannot be reached, refuses us, or is too old; nothing is left running.
        """
        if sys.platform == "win32":
            raise ConfigurationError("a consumer does not run on Windows; clients do. Use WSL or a container")
        if self._engine is not None or self._closing is not None:
            raise ServerStateError("a consumer starts once, make another one")
        config = self.config.server_config()
        LogSubscriber(config, self._target.address, noun="consumer").attach(self.events)
        self._engine = ConsumerEngine(
            self._target, config, self._settings, clock=self._clock, events=self.events
        )
        await self._engine.start()
        await self._begin(self._engine)

    async def _begin(self, engine: ConsumerEngine) -> None:
        if self._closing is not None:
            await self._end(engine)
            raise ServerStateError("the consumer was closed while it started")
        self.events.emit(ServerStateChanged(engine.server_id, "active"))

    async def close(self) -> None:
        """Stop taking tasks, wait for attempts in `take` blocks, write all outcomes, and disconnect.

        Pending takes return nothing. Attempts of `take` blocks may continue for `shutdown_timeout`, are then
        cancelled, and are put back after `cancel_timeout`. Attempts of `lease` are left to
        their holders: they last until their leases end, and another consumer finds them by their receipts.
        Idempotent. A cancelled caller does not undo it.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        engine = self._engine
        if engine is not None and engine.ready:
            await self._end(engine)

    async def _end(self, engine: ConsumerEngine) -> None:
        await engine.drain()
        await engine.close()
        self.events.emit(ServerStateChanged(engine.server_id, "closed"))

    @asynccontextmanager
    async def take(
        self, *queues: str, limit: int = 1, wait: Duration | None = None
    ) -> AsyncIterator[Attempts]:
        """Take up to `limit` tasks for a block: `async with consumer.take("reports") as attempts:`.

        Their leases are renewed until they are settled. Unsettled tasks go back to the front of their queue
        when the block ends. If the block raises an exception, the unsettled attempts that it had read from
        `attempts` fail with this exception, as in a handler. If the block is cancelled, they go back to the
        front too.

        Args:
            queues: the queues to take from, by their priorities; by default all queues of the config.
            limit: maximum number of tasks. As soon as there is one task, `take` returns all available
                tasks, up to the limit.
            wait: time to wait for the first task; 0 checks once, None waits without limit. If nothing has
                come, or the consumer is closed meanwhile, `attempts` is empty.

        Raises:
            ServerStateError: when the consumer is not started, or closed.
            ConfigurationError: for a queue that is not in the config.
            InvalidOptionError: for an invalid limit or wait.
            RedisError: when nothing has come and Redis could not be reached at the end of the wait.
        """
        engine = self._running()
        attempts = Attempts(await self._take(engine, queues, limit, wait, None))
        try:
            yield attempts
        except BaseException as error:
            await settle_leftovers(attempts, engine, error)
            raise
        else:
            await settle_leftovers(attempts, engine, None)

    async def lease(
        self, *queues: str, limit: int = 1, wait: Duration | None = None, duration: Duration = 30.0
    ) -> list[Attempt]:
        """Take up to `limit` tasks, leased for a fixed duration.

        Only `Attempt.extend` renews their leases. An attempt whose lease lapses is lost: its task is
        recovered like that of a crashed worker (in front again within about 8 seconds; archived as poison
        after too many crashes or lapses, see `ConsumerConfig.crash_limit`). At its deadline an attempt is
        settled as timed out, and a cancel request is carried out, without the holder. The holder's next
        `extend` or settle raises the error.

        Args:
            queues: as in `take`.
            limit: as in `take`.
            wait: as in `take`.
            duration: duration of the lease, in whole seconds (rounded up), at most `max_lease`.

        Raises what entering `take` raises. When the caller is cancelled, the tasks taken are put back.
        """
        return await self._take(self._running(), queues, limit, wait, self.config.lease_seconds(duration))

    async def serve(self, name: str, queue: Queue | int = 1) -> None:
        """Serve one more queue, exactly like one of the configuration.

        Any task of the consumer's loop may call this. Calls of `take` and `lease` that wait for all queues
        include this one from now on. `config` stays as it is.

        Args:
            name: name of the queue.
            queue: its settings, or its priority.

        Raises:
            InvalidOptionError: for a name or settings that a configuration would refuse.
            ConfigurationError: when the consumer serves it already.
            ServerStateError: when the consumer is not started, or closed.
            RedisError: when Redis refuses us this queue, or cannot be reached; then it is not served.
        """
        engine = self._running()
        [(name, settings)] = check_queues({name: queue}).items()
        await engine.add_queue(name, settings)

    async def set_queue(self, name: str, queue: Queue | int) -> None:
        """Replace priority and limits of a served queue, as if configured so from the start.

        Raises what `serve` raises; ConfigurationError when the consumer does not serve the queue.
        """
        engine = self._running()
        [(name, settings)] = check_queues({name: queue}).items()
        engine.set_queue(name, settings)

    async def unserve(self, name: str) -> None:
        """Stop serving a queue: none of its tasks is handed out after this call.

        Held attempts continue and are settled as usual, and `find` still finds them. Calls that wait for
        only this queue raise ConfigurationError. Calls for several queues go on waiting for the others.

        Raises:
            ConfigurationError: when the consumer does not serve the queue, or serves no other.
            ServerStateError: when the consumer is not started, or closed.
        """
        self._running().remove_queue(name)

    async def find(self, queue: str, task_id: str, receipt: str, *, confirm: bool = True) -> Attempt:
        """Return the attempt of a receipt, leased out by any consumer, in any process.

        An attempt that its holder has settled is still returned for 60 seconds, with a `verdict`. If the
        holder settles it again, the answer is the same as before (idempotent). If the attempt ended in
        another way, such as a timeout, the error that says so is raised for 10 minutes.

        Args:
            queue: queue of the task.
            task_id: id of the task.
            receipt: receipt of the attempt, as text.
            confirm: False saves a call to Redis if this consumer has leased the attempt out and knows of
                no later lease. Then Redis checks the lease only when the attempt is settled. If settling
                raises LeaseExpiredError, another consumer may have extended or settled the attempt: call
                `find` again, with `confirm`.

        Raises:
            TaskTimeoutError: when its deadline has passed.
            TaskCanceledError: when it was cancelled.
            LeaseExpiredError: when its lease has lapsed, or another worker has the task.
            UnknownAttemptError: a LeaseExpiredError, when Redis knows no such attempt any more.
            InvalidOptionError: for text that is not a receipt.
            ConfigurationError: for a queue that is not in the config.
            ServerStateError: when the consumer is not started, or closed.
            RedisError: when Redis cannot be reached.
        """
        engine = self._running()
        parsed = Receipt.parse(receipt)
        found = await engine.find(queue, task_id, parsed, confirm=confirm)
        if isinstance(found, Verdict):
            return SettledAttempt(queue, task_id, receipt, found)
        return Attempt(engine, found, self.config)

    async def _take(
        self,
        engine: ConsumerEngine,
        queues: tuple[str, ...],
        limit: int,
        wait: Duration | None,
        lease: int | None,
    ) -> list[Attempt]:
        check_whole("limit", limit, 1)
        seconds = None if wait is None else parse_seconds("wait", wait)
        taken = await engine.take(queues, limit=limit, wait=seconds, lease=lease)
        return [Attempt(engine, attempt, self.config) for attempt in taken]

    def _running(self) -> ConsumerEngine:
        if self._closing is not None:
            raise ServerStateError("the consumer is closed")
        if self._engine is None or not self._engine.ready:
            raise ServerStateError("the consumer is not started: use `async with`, or start() and close()")
        return self._engine

    async def __aenter__(self) -> Self:
        """Start the consumer."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the consumer."""
        await self.close()
