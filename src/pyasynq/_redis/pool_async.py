"""Connection pool of an asyncio driver: up to ten connections to one server, or to each cluster node."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._redis.addresses import format_address
from pyasynq._redis.cluster.routes import route
from pyasynq._redis.cluster.slot_map import get_cluster_map
from pyasynq._redis.cluster.visit import visit
from pyasynq._redis.connection_async import AsyncConnection
from pyasynq._redis.durability import exchange_durably
from pyasynq._redis.endpoint import RedisEndpoint
from pyasynq._redis.plan import CommandCall, Replay
from pyasynq._redis.session import (
    MAX_CONNECTIONS,
    DriverState,
    Open,
    Pause,
    Send,
    build_busy_error,
    log_warning,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence, Sized

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.cluster.visit import UnsettledCall, Visit
    from pyasynq._redis.exchange import CallResult
    from pyasynq._redis.plan import Call
    from pyasynq._redis.session import RedisSession, SessionStep
    from pyasynq._redis.url import RedisTarget

_W = TypeVar("_W", bound="Sized")

_PING: Final = CommandCall(("PING",), None, Replay.SAFE)


class AsyncPool:
    """Connection pool of one server and one event loop; each exchange in progress uses its own connection."""

    def __init__(self, endpoint: RedisEndpoint, state: DriverState) -> None:
        self._endpoint = endpoint
        self._state = state
        self._idle: list[AsyncConnection] = []
        self._exchanges = 0
        """Number of connections that are in use, or that a waiting exchange gets next."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_over = False

    @property
    def is_used(self) -> bool:
        """Whether the pool has idle connections, which it has only after its first use."""
        return bool(self._idle)

    def route(self, calls: Sequence[Call]) -> Awaitable[list[CallResult]]:
        """Send calls to the server; return an outcome for each."""
        return self.perform(exchange_durably, calls)

    async def perform(
        self,
        begin: Callable[[_W, RedisSession, DriverState], Generator[SessionStep, Any, list[Any]]],
        wanted: _W,
    ) -> list[Any]:
        """Perform an exchange on a connection of its own; return an outcome for each call."""
        if self._exchanges < MAX_CONNECTIONS:
            self._exchanges += 1
        elif not await self._wait_for_connection():
            return [build_busy_error(self._state) for _ in range(len(wanted))]
        connection = self._idle.pop() if self._idle else AsyncConnection()
        try:
            return await self._take_steps(begin(wanted, connection.session, self._state), connection)
        finally:
            self._wake_next()
            if self._is_over:
                await connection.close()
            else:
                self._idle.append(connection)

    async def close(self) -> None:
        """Close the idle connections at once, and the others when their exchanges end."""
        self._is_over = True
        while self._idle:
            await self._idle.pop().close()

    def abandon(self) -> None:
        """Release the idle connections without waiting; this also works outside their event loop."""
        self._is_over = True
        while self._idle:
            self._idle.pop().abandon()

    async def _wait_for_connection(self) -> bool:
        """Wait for a connection that another exchange returns; return False at the timeout."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._state.timeout):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._wake_next()
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._exchanges -= 1

    async def _take_steps(
        self, steps: Generator[SessionStep, Any, list[Any]], connection: AsyncConnection
    ) -> list[Any]:
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = None
                if isinstance(step, Send):
                    answer = await connection.exchange(step.commands, step.seconds)
                elif isinstance(step, Open):
                    answer = await self._endpoint.open_async(connection, step.seconds)
                elif isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    await connection.close()
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


class AsyncCluster:
    """Connection pools of the nodes of a cluster."""

    def __init__(self, target: RedisTarget, state: DriverState) -> None:
        self._target = target
        self._state = state
        self._nodes = get_cluster_map(target)
        self._pools: dict[Address, AsyncPool] = {}
        self._generation = 0

    @property
    def is_used(self) -> bool:
        """Whether the pool of any node has idle connections, which it has only after its first use."""
        return any(pool.is_used for pool in self._pools.values())

    async def route(self, calls: Sequence[Call]) -> list[CallResult]:
        """Send each call to the node that serves its key, all nodes at the same time; return the outcomes."""
        steps = route(calls, self._nodes, self._state)
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = None
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                else:
                    answer = await self._visit_all(step)
        except StopIteration as stop:
            if self._generation != self._nodes.generation:
                await self._leave_nodes()
            return stop.value  # type: ignore[no-any-return]

    async def _leave_nodes(self) -> None:
        """Close the connections to nodes that serve no slots any more."""
        self._generation = self._nodes.generation
        for node in self._pools.keys() - self._nodes.serving:
            await self._pools.pop(node).close()

    async def close(self) -> None:
        """Close the idle connections at once, and the others when their exchanges end."""
        for pool in self._pools.values():
            await pool.close()

    def abandon(self) -> None:
        """Release the idle connections without waiting; this also works outside their event loop."""
        for pool in self._pools.values():
            pool.abandon()

    async def _visit_all(self, visits: Sequence[Visit]) -> list[list[CallResult | UnsettledCall]]:
        made = [self._pool(one.node).perform(visit, one) for one in visits]
        if len(made) == 1:
            return [await made[0]]
        answers = await asyncio.gather(*made, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return cast("list[list[CallResult | UnsettledCall]]", answers)

    def _pool(self, node: Address) -> AsyncPool:
        pool = self._pools.get(node)
        if pool is None:
            endpoint = RedisEndpoint(self._target.node(node))
            pool = self._pools[node] = AsyncPool(endpoint, self._state.of_node(format_address(node)))
        return pool


async def learn_map(target: RedisTarget, client_name: str, timeout: float) -> None:
    """Learn the slot map of a cluster, which node serves which slot, from the first nodes that answer."""
    state = DriverState(target.address, client_name, timeout, SYSTEM_CLOCK, log_warning)
    cluster = AsyncCluster(target, state)
    await cluster.route([_PING])
    await cluster.close()


def async_pool(target: RedisTarget, endpoint: RedisEndpoint, state: DriverState) -> AsyncPool | AsyncCluster:
    """Return the pool of a target for the running event loop; it connects at the first call."""
    return AsyncCluster(target, state) if target.is_cluster else AsyncPool(endpoint, state)
