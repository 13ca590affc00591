"""Drivers: they wait, so that plans need not. One for asyncio, one for threads.

    driver = AsyncDriver(parse_redis_url(url), client_name="pyasynq")
    result = await driver.run(plan)
    results = await driver.run_batch(plans)  # a result or an exception for each

Both keep a few connections, one for each round that is under way. What is decided, is decided in `exchange`.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.addresses import format_address
from pyasynq._redis.cluster.slot_map import map_of, slot_of
from pyasynq._redis.endpoint import Location
from pyasynq._redis.exchange import advance
from pyasynq._redis.guard import check
from pyasynq._redis.loop_homes import LoopHomes
from pyasynq._redis.pool_async import async_pool
from pyasynq._redis.pool_blocking import blocking_pool
from pyasynq._redis.session import DriverState, log_warning
from pyasynq.errors import ClientClosedError, ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pyasynq._clock import Clock
    from pyasynq._redis.plan import Place, Plan
    from pyasynq._redis.url import RedisTarget
    from pyasynq.events import ServerWarning

_T = TypeVar("_T")


class DriverBase:
    """What the asyncio driver and the blocking one have in common; their arguments, above all."""

    def __init__(
        self,
        target: RedisTarget,
        *,
        client_name: str = "pyasynq",
        timeout: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
        on_warning: Callable[[ServerWarning], object] = log_warning,
    ) -> None:
        self.target = target
        self._location = Location(target)
        self._state = DriverState(target.address, client_name, timeout, clock, on_warning)
        self._closed = False

    @property
    def timeout(self) -> float:
        """Seconds that one round may take."""
        return self._state.timeout

    @property
    def places(self) -> list[Place]:
        """A place on each server that has keys: all primaries of a cluster, as far as a call has met them."""
        return [*map_of(self.target).slots_of_primaries()] if self.target.is_cluster else [None]

    @property
    def clock(self) -> Clock:
        """What tells the present."""
        return self._state.clock

    @property
    def map_version(self) -> tuple[int, int]:
        """Changes when other nodes may serve a slot; always the same on a single server."""
        if not self.target.is_cluster:
            return 0, 0
        nodes = map_of(self.target)
        return nodes.generation, nodes.redirections

    def node_of(self, key: str) -> str:
        """Return the address of the node that serves a key; empty for a single server, or if not known."""
        if not self.target.is_cluster:
            return ""
        node = map_of(self.target).owner(slot_of(key))
        return "" if node is None else format_address(node)

    @property
    def last_disconnect(self) -> float | None:
        """When a connection broke under a call, on the clock's monotonic scale; None for never."""
        return self._state.last_disconnect

    def last_disconnect_of(self, node: str) -> float | None:
        """Return the same for one node of a cluster, by its address; for all servers if that is empty."""
        return self._state.disconnects.get(node) if node else self._state.last_disconnect

    def warn_once(self, warning: ServerWarning) -> None:
        """Report something about the server, unless a warning of this code has been given before."""
        self._state.warn_once(warning.code, warning.message)

    def check_open(self) -> None:
        """Raise `ClientClosedError` after `close`."""
        if self._closed:
            raise ClientClosedError(f"the connection to Redis at {self._state.address} has been closed")


class _AsyncHome:
    """The connections of a driver in one event loop, and the tasks that use them."""

    def __init__(self, target: RedisTarget, location: Location, state: DriverState) -> None:
        self.connections = async_pool(target, location, state)
        self.running: set[asyncio.Task[Any]] = set()

    def abandon(self) -> None:
        """Let go of the connections from outside of the event loop."""
        self.connections.abandon()


class AsyncDriver(DriverBase):
    """Runs plans for asyncio.

    It has connections of its own for each event loop that calls it, so threads with a loop each may share it.
    After a fork it leaves the parent's sockets alone.

    Args:
        target: the server.
        client_name: what `CLIENT LIST` shows.
        timeout: seconds that one round of calls may take, with reconnecting and sending again.
        clock: for `last_disconnect`; time-outs run in real time.
        on_warning: told, once each, what the server refuses and we can do without; logs unless given.
    """

    stays_open = True
    """Whether what a call has opened may stay open for the next one; that of a test leaves nothing behind."""

    def __init__(self, target: RedisTarget, **settings: Any) -> None:
        super().__init__(target, **settings)
        make = partial(_AsyncHome, self.target, self._location, self._state)
        self._homes = LoopHomes(make, _AsyncHome.abandon)

    async def run(self, plan: Plan[_T]) -> _T:
        """Run one plan and return what it returns.

        Cancelled, it raises `CancelledError` at once; the plan runs to its end and may take effect.

        Raises:
            ClientClosedError: after `close`.
            PyasynqError: whatever the plan raises, errors of Redis among it.
        """
        [result] = await self.run_batch([plan])
        if isinstance(result, Exception):
            raise result
        return result

    async def run_batch(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run plans in step, each round of theirs as one pipeline; return a result or an exception for each.

        Cancelled, it raises `CancelledError` at once; the plans run to their ends and may take effect.

        Raises:
            ClientClosedError: after `close`.
            ReplyLostError: when `close` had no more patience.
        """
        self.check_open()
        return await self.wait_for(self.start_task(self.run_unshielded(plans)))

    async def wait_for(self, work: asyncio.Task[_T]) -> _T:
        """Wait for what `start_task` has started. Cancelled, it leaves that running.

        Raises:
            ReplyLostError: when `close` had no more patience.
        """
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if work.cancelled() and caller is not None and not caller.cancelling():
                raise ReplyLostError(self.target.address, "the client was closed meanwhile") from None
            raise

    def start_task(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a task that `close` waits for, and that nobody else needs to keep."""
        running = self._homes.here().running
        task = asyncio.get_running_loop().create_task(work)
        running.add(task)
        task.add_done_callback(running.discard)
        return task

    async def run_unshielded(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run plans as `run_batch` does, but in the caller's own task: cancelling it cuts the connection."""
        rounds = advance(plans)
        try:
            calls = next(rounds)
            while True:
                # Connections that a test finds open must not be used either.
                check(self.target)
                calls = rounds.send(await self._homes.here().connections.route(calls))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Wait for what is under way, at most the time-out, then close the connections. Twice is harmless."""
        self._closed = True
        for other in self._homes.others():
            # It stays: what is under way there ends with these connections, and they close when it does.
            other.abandon()
        home = self._homes.own()
        if home is not None:
            if home.running:
                _, late = await asyncio.wait(home.running, timeout=self.timeout)
                for task in late:
                    task.cancel()
            await home.connections.close()
        await self._location.let_go_async()

    def abandon(self) -> bool:
        """Let go of the connections without waiting; return whether there were any. For destructors."""
        homes = self._homes.all()
        self._homes.forget()
        was_used = any(home.connections.is_used for home in homes)
        for home in homes:
            home.abandon()
        return was_used


class _BlockingHome:
    """The process that a driver lives in now, and its connections there."""

    def __init__(self, target: RedisTarget, location: Location, state: DriverState) -> None:
        self.pid = os.getpid()
        self.connections = blocking_pool(target, location, state)


class BlockingDriver(DriverBase):
    """Runs plans for threads; any number of them may use it at once.

    After a fork it connects anew in the child, and leaves the parent's sockets alone. The arguments are
    those of `AsyncDriver`.
    """

    def __init__(self, target: RedisTarget, **settings: Any) -> None:
        super().__init__(target, **settings)
        self._home = _BlockingHome(self.target, self._location, self._state)

    def run(self, plan: Plan[_T]) -> _T:
        """Run one plan and return what it returns.

        Raises:
            ClientClosedError: after `close`.
            PyasynqError: whatever the plan raises, errors of Redis among it.
        """
        [result] = self.run_batch([plan])
        if isinstance(result, Exception):
            raise result
        return result

    def run_batch(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run plans in step, each round of theirs as one pipeline; return a result or an exception for each.

        Raises:
            ClientClosedError: after `close`.
        """
        self.check_open()
        rounds = advance(plans)
        try:
            calls = next(rounds)
            while True:
                check(self.target)
                if self._home.pid != os.getpid():
                    self._home = _BlockingHome(self.target, self._location, self._state)
                calls = rounds.send(self._home.connections.route(calls))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    def for_asyncio(self) -> AsyncDriver:
        """Return a driver with the same settings for an event loop, with connections of its own."""
        state = self._state
        return AsyncDriver(
            self.target,
            client_name=state.client_name,
            timeout=state.timeout,
            clock=state.clock,
            on_warning=state.on_warning,
        )

    def close(self) -> None:
        """Close the connections; one that is in use is closed when its round ends. Twice is harmless."""
        self._closed = True
        self._home.connections.close()
        self._location.let_go()

    def abandon(self) -> bool:
        """Let go of the idle connections; return whether there were any. For destructors."""
        return self._home.connections.abandon()
