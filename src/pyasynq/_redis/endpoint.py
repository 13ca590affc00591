"""Where a target's server is right now.

An embedded one has to be started before it has an address; that of a primary is known to its Sentinels; of a
cluster, any node will do here.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from pyasynq._embedded.errors import EmbeddedServerError
from pyasynq._redis.cluster.slot_map import map_of
from pyasynq._redis.sentinel.primary_watch import perform, perform_async, watch_of
from pyasynq._redis.url import parse_redis_url
from pyasynq.embedded import open_embedded

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._redis.connection_async import AsyncConnection
    from pyasynq._redis.connection_blocking import BlockingConnection
    from pyasynq._redis.sentinel.primary_watch import PrimaryWatch
    from pyasynq._redis.session import OpenAnswer
    from pyasynq._redis.url import RedisTarget
    from pyasynq.embedded import EmbeddedServer

_T = TypeVar("_T")


class Location:
    """Opens connections to the server of a target, wherever that is at the moment. Thread-safe.

    It holds an embedded server, or watches over a primary, from the first connection to `let_go`.
    """

    def __init__(self, target: RedisTarget) -> None:
        self._target = target
        self._lock = threading.RLock()  # a signal handler may come back in here
        self._pid = os.getpid()
        self._server: EmbeddedServer | None = None
        self._watch: PrimaryWatch | None = None

    def open(self, connection: BlockingConnection, seconds: float) -> OpenAnswer:
        """Connect, authenticate and select the database; return None, or why it failed."""
        if self._target.sentinels is not None:
            return perform(self._watching().enter(connection, seconds), connection)
        try:
            target = self._find()
        except EmbeddedServerError as error:
            return error
        return connection.open(target, seconds)

    async def open_async(self, connection: AsyncConnection, seconds: float) -> OpenAnswer:
        """Do as `open`, and do not keep the event loop from its work while a server starts.

        Of a cluster, the first node that answers is taken.
        """
        if self._target.is_cluster:
            return await self._open_node(connection, seconds)
        if self._target.sentinels is not None:
            return await perform_async(self._watching().enter(connection, seconds), connection)
        try:
            target = self._target if self._target.embedded is None else await _beside_the_loop(self._find)
        except EmbeddedServerError as error:
            return error
        return await connection.open(target, seconds)

    async def _open_node(self, connection: AsyncConnection, seconds: float) -> OpenAnswer:
        deadline = time.monotonic() + seconds
        refusal: OpenAnswer = None
        nodes = map_of(self._target)
        for node in chain.from_iterable(nodes.looks(time.monotonic())):
            # One that does not answer must not take the time of those that do.
            refusal = await connection.open(self._target.node(node), (deadline - time.monotonic()) / 2)
            if refusal is None:
                return None
            await connection.close()
            nodes.ask_last((node,), time.monotonic())
        return refusal

    def _find(self) -> RedisTarget:
        """Return a target with an address, and see to it that an embedded server runs."""
        if self._target.embedded is None:
            return self._target
        with self._guard():
            server = self._server
            if server is None:
                server = open_embedded(self._target.embedded)
                if self._server is not None:  # a signal handler came here meanwhile, and has started it
                    server.stop()
                    server = self._server
                self._server = server
            else:
                server.start()
            return parse_redis_url(server.url)

    def _watching(self) -> PrimaryWatch:
        with self._guard():
            if self._watch is None or self._watch.pid != os.getpid():
                self._watch = watch_of(self._target)
            # Each time: what was let go may be in use again.
            self._watch.join(self)
            return self._watch

    def let_go(self) -> None:
        """Release an embedded server; the last holder waits until it has written its data and ended."""
        with self._guard():
            server, self._server = self._server, None
            watch, self._watch = self._watch, None
            if watch is not None and watch.pid == os.getpid():
                watch.leave(self)
            if server is not None:
                server.stop()

    async def let_go_async(self) -> None:
        """Do as `let_go`, and do not keep the event loop from its work while the server ends."""
        if self._target.embedded is not None:
            await _beside_the_loop(self.let_go)
        else:
            self.let_go()

    def _guard(self) -> threading.RLock:
        if self._pid != os.getpid():
            # A thread that held the lock at the fork is not in the child, and would never give it back.
            self._lock, self._pid = threading.RLock(), os.getpid()
        return self._lock


async def _beside_the_loop(call: Callable[[], _T]) -> _T:
    # Not the loop's own executor: once it has been used, a loop that ends together with the interpreter
    # needs a new thread to shut it down, and gets none.
    executor = ThreadPoolExecutor(1, thread_name_prefix="pyasynq embedded server")
    try:
        doing = asyncio.get_running_loop().run_in_executor(executor, call)
    except RuntimeError:
        # The interpreter is ending and starts no threads; nobody is left whom this could hold up.
        return call()
    finally:
        executor.shutdown(wait=False)
    return await doing
