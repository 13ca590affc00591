"""Drivers that run plans against Redis and wait for the replies: one for asyncio, one for threads.

    driver = AsyncDriver(parse_redis_url(url), client_name="pyasynq")
    result = await driver.run(plan)
    results = await driver.run_batch(plans)  # a result or an exception for each

A round is one pipeline and its replies. Both drivers keep a small connection pool, with one connection for
each round in progress. The module `exchange` decides what is sent and resent.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.addresses import format_address
from pyasynq._redis.cluster.slot_map import find_slot, get_cluster_map
from pyasynq._redis.endpoint import RedisEndpoint
from pyasynq._redis.exchange import advance
from pyasynq._redis.guard import check
from pyasynq._redis.loop_local import LoopLocal
from pyasynq._redis.pool_async import async_pool
from pyasynq._redis.pool_blocking import blocking_pool
from pyasynq._redis.session import DriverState, log_warning
from pyasynq.errors import ClientClosedError, ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from pyasynq._clock import Clock
    from pyasynq._redis.plan import Place, Plan
    from pyasynq._redis.url import RedisTarget
    from pyasynq.events import RedisWarning

_T = TypeVar("_T")


class DriverBase:
    """Base class of the asyncio and the blocking driver: arguments and properties."""

    def __init__(
        self,
        target: RedisTarget,
        *,
        client_name: str = "pyasynq",
        timeout: float = 5.0,
        clock: Clock = SYSTEM_CLOCK,
        on_warning: Callable[[RedisWarning], object] = log_warning,
    ) -> None:
        self.target = target
        self._endpoint = RedisEndpoint(target)
        self._state = DriverState(target.address, client_name, timeout, clock, on_warning)
        self._closed = False

    @property
    def timeout(self) -> float:
        """Seconds that one round may take, including reconnecting and resending."""
        return self._state.timeout

    @property
    def places(self) -> list[Place]:
        """Routing targets, one for each server that has keys: each known primary of a cluster."""
        return [*get_cluster_map(self.target).get_primary_slots()] if self.target.is_cluster else [None]

    def name_place(self, place: Place) -> str:
        """Return the address of the server of a routing target; empty if it is not known."""
        if place is None:
            return self.target.address
        node = get_cluster_map(self.target).owner(place)
        return "" if node is None else format_address(node)

    @property
    def clock(self) -> Clock:
        """The clock that measures `last_disconnect`."""
        return self._state.clock

    @property
    def map_version(self) -> tuple[int, int]:
        """A value that changes when the owner of a slot may have changed; constant on a single server."""
        if not self.target.is_cluster:
            return 0, 0
        nodes = get_cluster_map(self.target)
        return nodes.generation, nodes.redirections

    def find_node(self, key: str) -> str:
        """Return the address of the node that serves a key; empty for a single server, or if not known."""
        if not self.target.is_cluster:
            return ""
        node = get_cluster_map(self.target).owner(find_slot(key))
        return "" if node is None else format_address(node)

    @property
    def last_disconnect(self) -> float | None:
        """Monotonic time of the clock at which a connection last broke during a call; None if none broke."""
        return self._state.last_disconnect

    def get_last_restart(self, node: str) -> float | None:
        """Return the clock's monotonic time at which calls first reached a new Redis process, or None.

        A restart or a failover changes the process. Without a `run_id` in the replies of Redis, any broken
        connection may mean such a change; then the result is the time of the last break.

        Args:
            node: address of a cluster node; empty for a single server.
        """
        state = self._state
        address = node or state.address
        if state.runs.get(address):
            return state.restarts.get(address)
        return state.disconnects.get(node) if node else state.last_disconnect

    def warn_once(self, warning: RedisWarning) -> None:
        """Report a warning about Redis, once for each code."""
        self._state.warn_once(warning.code, warning.message)

    def check_open(self) -> None:
        """Raise `ClientClosedError` after `close`."""
        if self._closed:
            raise ClientClosedError(f"the connection to Redis at {self._state.address} has been closed")


class _LoopConnections:
    """A driver's connections in one event loop, and the tasks that use them."""

    def __init__(self, target: RedisTarget, endpoint: RedisEndpoint, state: DriverState) -> None:
        self.connections = async_pool(target, endpoint, state)
        self.running: set[asyncio.Task[Any]] = set()

    def abandon(self) -> None:
        """Release the connections from outside the event loop."""
        self.connections.abandon()


class AsyncDriver(DriverBase):
    """Runs plans for asyncio.

    It keeps separate connections for each event loop that calls it, so threads with a loop each may share it.
    After a fork it leaves the parent's sockets alone.

    Args:
        target: the server.
        client_name: the name in `CLIENT LIST`.
        timeout: seconds for one round of calls, including reconnecting and resending.
        clock: measures `last_disconnect`; timeouts run in real time.
        on_warning: called once for each optional command that the server refuses; logs by default.
    """

    stays_open = True
    """Whether connections may stay open between calls; the test kit's driver closes them."""

    def __init__(self, target: RedisTarget, **settings: Any) -> None:
        super().__init__(target, **settings)
        make = partial(_LoopConnections, self.target, self._endpoint, self._state)
        self._per_loop = LoopLocal(make, _LoopConnections.abandon)

    async def run(self, plan: Plan[_T]) -> _T:
        """Run one plan and return what it returns.

        A cancelled caller gets `CancelledError` at once. The plan runs to its end, and may take effect.

        Raises:
            ClientClosedError: after `close`.
            PyasynqError: what the plan raises, including errors of Redis.
        """
        [result] = await self.run_batch([plan])
        if isinstance(result, Exception):
            raise result
        return result

    async def run_batch(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run plans in lockstep, each round as one pipeline; return a result or an exception for each plan.

        A cancelled caller gets `CancelledError` at once. The plans run to their ends, and may take effect.

        Raises:
            ClientClosedError: after `close`.
            ReplyLostError: if `close` cancelled the work, because it had not ended within the timeout.
        """
        self.check_open()
        return await self.wait_for(self.start_task(self.run_unshielded(plans)))

    async def wait_for(self, work: asyncio.Task[_T]) -> _T:
        """Wait for a task from `start_task`. A cancelled caller leaves it running.

        Raises:
            ReplyLostError: if `close` cancelled the work, because it had not ended within the timeout.
        """
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if work.cancelled() and caller is not None and not caller.cancelling():
                raise ReplyLostError(self.target.address, "the client was closed meanwhile") from None
            raise

    def start_task(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start a task that `close` waits for; the driver keeps the reference to it."""
        running = self._per_loop.here().running
        task = asyncio.get_running_loop().create_task(work)
        running.add(task)
        task.add_done_callback(running.discard)
        return task

    async def run_unshielded(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run plans as `run_batch` does, but in the caller's task; cancelling it breaks the connection."""
        rounds = advance(plans)
        try:
            calls = next(rounds)
            while True:
                # Check every round: connections opened before a test began must not be used either.
                check(self.target)
                calls = rounds.send(await self._per_loop.here().connections.route(calls))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Wait for calls in progress, at most the timeout, then close the connections. Idempotent."""
        self._closed = True
        for other in self._per_loop.others():
            # This loop runs in another thread: its pending calls end normally, and then their connections
            # close.
            other.abandon()
        own = self._per_loop.own()
        if own is not None:
            if own.running:
                _, late = await asyncio.wait(own.running, timeout=self.timeout)
                for task in late:
                    task.cancel()
            await own.connections.close()
        await self._endpoint.release_async()

    def abandon(self) -> bool:
        """Release the connections without waiting; return whether there were any. For destructors."""
        all_connections = self._per_loop.all()
        self._per_loop.forget()
        was_used = any(own.connections.is_used for own in all_connections)
        for own in all_connections:
            own.abandon()
        return was_used


class _ProcessConnections:
    """A blocking driver's connections, and the process that opened them."""

    def __init__(self, target: RedisTarget, endpoint: RedisEndpoint, state: DriverState) -> None:
        self.pid = os.getpid()
        self.connections = blocking_pool(target, endpoint, state)


class BlockingDriver(DriverBase):
    """Runs plans for threads; any number of them may use it at the same time.

    After a fork it reconnects in the child, and leaves the parent's sockets alone. The arguments are
    those of `AsyncDriver`.
    """

    def __init__(self, target: RedisTarget, **settings: Any) -> None:
        super().__init__(target, **settings)
        self._own = _ProcessConnections(self.target, self._endpoint, self._state)

    def run(self, plan: Plan[_T]) -> _T:
        """Run one plan and return what it returns.

        Raises:
            ClientClosedError: after `close`.
            PyasynqError: what the plan raises, including errors of Redis.
        """
        [result] = self.run_batch([plan])
        if isinstance(result, Exception):
            raise result
        return result

    def run_batch(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run plans in lockstep, each round as one pipeline; return a result or an exception for each plan.

        Raises:
            ClientClosedError: after `close`.
        """
        self.check_open()
        rounds = advance(plans)
        try:
            calls = next(rounds)
            while True:
                check(self.target)
                if self._own.pid != os.getpid():
                    self._own = _ProcessConnections(self.target, self._endpoint, self._state)
                calls = rounds.send(self._own.connections.route(calls))
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
        """Close the connections; one that is in use is closed after its pipeline is answered. Idempotent."""
        self._closed = True
        self._own.connections.close()
        self._endpoint.release()

    def abandon(self) -> bool:
        """Release the idle connections; return whether there were any. For destructors."""
        return self._own.connections.abandon()
