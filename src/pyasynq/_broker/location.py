"""Where a target's server is right now: an embedded one has to be started before it has an address."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from pyasynq._broker.redis_url import parse_redis_url
from pyasynq.embedded import open_embedded

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._broker.redis_url import RedisTarget
    from pyasynq.embedded import EmbeddedServer

T = TypeVar("T")


class Location:
    """Finds the server of a target; holds an embedded one from the first `find` to `let_go`. Thread-safe."""

    def __init__(self, target: RedisTarget) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._server: EmbeddedServer | None = None

    @property
    def must_start(self) -> bool:
        """Whether `find` may block for longer, because the server is ours to start."""
        return self._target.embedded is not None

    def find(self) -> RedisTarget:
        """Return a target with an address, and see to it that an embedded server runs.

        Raises:
            EmbeddedServerError: when the embedded server cannot be started.
        """
        if self._target.embedded is None:
            return self._target
        with self._guard():
            if self._server is None:
                self._server = open_embedded(self._target.embedded)
            else:
                self._server.start()
            return parse_redis_url(self._server.url)

    def let_go(self) -> None:
        """Release an embedded server; the last holder waits until it has written its data and ended."""
        with self._guard():
            server, self._server = self._server, None
            if server is not None:
                server.stop()

    async def find_async(self) -> RedisTarget:
        """Do as `find`, and do not keep the event loop from its work while the server starts."""
        return await _beside_the_loop(self.find) if self.must_start else self._target

    async def let_go_async(self) -> None:
        """Do as `let_go`, and do not keep the event loop from its work while the server ends."""
        if self.must_start:
            await _beside_the_loop(self.let_go)

    def _guard(self) -> threading.Lock:
        if self._pid != os.getpid():
            # A thread that held the lock at the fork is not in the child, and would never give it back.
            self._lock, self._pid = threading.Lock(), os.getpid()
        return self._lock


async def _beside_the_loop(call: Callable[[], T]) -> T:
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
