"""The current server of a target: an embedded server, the primary under Sentinel, or a cluster node.

An embedded server has no address until it is started; Sentinels know the address of a primary; any node of a
cluster can be used.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from pyasynq._embedded.errors import EmbeddedServerError
from pyasynq._redis.cluster.slot_map import get_cluster_map
from pyasynq._redis.sentinel.primary_watch import get_watch, perform, perform_async
from pyasynq._redis.session import Send
from pyasynq._redis.url import parse_redis_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.connection_async import AsyncConnection
    from pyasynq._redis.connection_blocking import BlockingConnection
    from pyasynq._redis.sentinel.primary_watch import PrimaryWatch
    from pyasynq._redis.session import OpenAnswer
    from pyasynq._redis.url import RedisTarget
    from pyasynq.embedded import EmbeddedServer

_T = TypeVar("_T")


class RedisEndpoint:
    """Opens connections to a target's current server. Thread-safe.

    From the first connection until `release`, it keeps the embedded server or the watch over the primary
    running.
    """

    def __init__(self, target: RedisTarget) -> None:
        self._target = target
        self._lock = threading.RLock()  # reentrant: a signal handler may take it again
        self._pid = os.getpid()
        self._server: EmbeddedServer | None = None
        self._watch: PrimaryWatch | None = None
        self._replica: Address | None = None
        """Replica of the last connection; the next connection prefers it."""

    def open(self, connection: BlockingConnection, seconds: float) -> OpenAnswer:
        """Connect, authenticate and select the database; return None, or the reason of a failure."""
        if not self._target.reads_replica:
            return self._open_first(connection, seconds)
        # Imported late, because most programs never read from a replica.
        from pyasynq._redis.replica_search import EnterFirst, EnterReplica, seek_replica  # noqa: PLC0415

        steps = seek_replica(self._target, seconds, self._replica)
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as stop:
                self._replica, refusal = stop.value
                return refusal  # type: ignore[no-any-return]
            if isinstance(step, EnterFirst):
                answer = self._open_first(connection, step.seconds)
            elif isinstance(step, EnterReplica):
                answer = connection.open(step.target, step.seconds)
            elif isinstance(step, Send):
                answer = connection.exchange(step.commands, step.seconds)
            else:
                connection.close()
                answer = None

    def _open_first(self, connection: BlockingConnection, seconds: float) -> OpenAnswer:
        if self._target.sentinels is not None:
            return perform(self._watching().enter(connection, seconds), connection)
        try:
            target = self._find()
        except EmbeddedServerError as error:
            return error
        return connection.open(target, seconds)

    async def open_async(self, connection: AsyncConnection, seconds: float) -> OpenAnswer:
        """Connect as `open` does, without blocking the event loop while an embedded server starts.

        In a cluster, the first node that answers is used.
        """
        if self._target.is_cluster:
            return await self._open_node(connection, seconds)
        if not self._target.reads_replica:
            return await self._open_first_async(connection, seconds)
        # Imported late, because most programs never read from a replica.
        from pyasynq._redis.replica_search import EnterFirst, EnterReplica, seek_replica  # noqa: PLC0415

        steps = seek_replica(self._target, seconds, self._replica)
        answer: Any = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as stop:
                self._replica, refusal = stop.value
                return refusal  # type: ignore[no-any-return]
            if isinstance(step, EnterFirst):
                answer = await self._open_first_async(connection, step.seconds)
            elif isinstance(step, EnterReplica):
                answer = await connection.open(step.target, step.seconds)
            elif isinstance(step, Send):
                answer = await connection.exchange(step.commands, step.seconds)
            else:
                await connection.close()
                answer = None

    async def _open_first_async(self, connection: AsyncConnection, seconds: float) -> OpenAnswer:
        if self._target.sentinels is not None:
            return await perform_async(self._watching().enter(connection, seconds), connection)
        try:
            target = self._target if self._target.embedded is None else await _run_in_thread(self._find)
        except EmbeddedServerError as error:
            return error
        return await connection.open(target, seconds)

    async def _open_node(self, connection: AsyncConnection, seconds: float) -> OpenAnswer:
        deadline = time.monotonic() + seconds
        refusal: OpenAnswer = None
        nodes = get_cluster_map(self._target)
        for node in chain.from_iterable(nodes.query_groups(time.monotonic())):
            # A silent node must not use up the time for the other nodes.
            refusal = await connection.open(self._target.node(node), (deadline - time.monotonic()) / 2)
            if refusal is None:
                return None
            await connection.close()
            nodes.ask_last((node,), time.monotonic())
        return refusal

    def _find(self) -> RedisTarget:
        """Return the target with a known address; start the server if the target is an embedded one."""
        if self._target.embedded is None:
            return self._target
        from pyasynq.embedded import open_embedded  # noqa: PLC0415 - most programs have a server of their own

        with self._guard():
            server = self._server
            if server is None:
                server = open_embedded(self._target.embedded)
                if self._server is not None:  # a signal handler has started it meanwhile
                    server.stop()
                    server = self._server
                self._server = server
            else:
                server.start()
            return parse_redis_url(server.url)

    def _watching(self) -> PrimaryWatch:
        with self._guard():
            if self._watch is None or self._watch.pid != os.getpid():
                self._watch = get_watch(self._target)
            # Join each time: a released endpoint may be in use again.
            self._watch.join(self)
            return self._watch

    def release(self) -> None:
        """Release the embedded server and the watch; the embedded server ends with its last holder.

        The last holder waits until the server has written its data and ended.
        """
        with self._guard():
            server, self._server = self._server, None
            watch, self._watch = self._watch, None
            if watch is not None and watch.pid == os.getpid():
                watch.leave(self)
            if server is not None:
                server.stop()

    async def release_async(self) -> None:
        """Do the same as `release`, without blocking the event loop while the embedded server ends."""
        if self._target.embedded is not None:
            await _run_in_thread(self.release)
        else:
            self.release()

    def _guard(self) -> threading.RLock:
        if self._pid != os.getpid():
            # A thread that held the lock at the fork does not exist in the child, and would never release it.
            self._lock, self._pid = threading.RLock(), os.getpid()
        return self._lock


async def _run_in_thread(call: Callable[[], _T]) -> _T:
    # Not the loop's default executor: once used, it needs a new thread to shut down, and an interpreter that
    # is ending starts none.
    executor = ThreadPoolExecutor(1, thread_name_prefix="pyasynq embedded server")
    try:
        doing = asyncio.get_running_loop().run_in_executor(executor, call)
    except RuntimeError:
        # The interpreter is ending and starts no threads; nothing else is left to block.
        return call()
    finally:
        executor.shutdown(wait=False)
    return await doing
