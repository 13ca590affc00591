"""Connection pool of a blocking driver: up to ten connections to one server, or to each cluster node."""

from __future__ import annotations

import _thread
import time
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from pyasynq._redis.addresses import format_address
from pyasynq._redis.cluster.routes import route
from pyasynq._redis.cluster.slot_map import get_cluster_map
from pyasynq._redis.cluster.visit import visit
from pyasynq._redis.connection_blocking import BlockingConnection
from pyasynq._redis.durability import exchange_durably
from pyasynq._redis.endpoint import RedisEndpoint
from pyasynq._redis.session import MAX_CONNECTIONS, Open, Pause, Send, build_busy_error
from pyasynq._redis.thread_waiter import ThreadWaiter
from pyasynq.errors import ReplyLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence, Sized

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.cluster.visit import UnsettledCall, Visit
    from pyasynq._redis.exchange import CallResult
    from pyasynq._redis.plan import Call
    from pyasynq._redis.session import DriverState, RedisSession, SessionStep
    from pyasynq._redis.url import RedisTarget

_W = TypeVar("_W", bound="Sized")

_LOOK_AGAIN: Final = 0.5
"""Seconds after which a waiting thread checks its condition itself, in case its wake-up was lost."""


class _Ticket:
    """Position of an exchange in the queue for a connection, with the waiter of its thread if it waits."""

    __slots__ = ("waiter",)

    def __init__(self) -> None:
        self.waiter: ThreadWaiter | None = None


class BlockingPool:
    """Connection pool of one server for all threads; each exchange in progress uses its own connection.

    A signal handler may raise an exception between any two steps, or use the pool itself. So there is no
    lock: each exchange enters the queue by itself, and its own `finally` removes it.
    """

    def __init__(self, endpoint: RedisEndpoint, state: DriverState) -> None:
        self._endpoint = endpoint
        self._state = state
        self._idle: list[BlockingConnection] = []
        self._line: dict[_Ticket, None] = {}
        """All exchanges in order of arrival: the first ten are in progress, the others wait."""
        self._is_over = False

    def route(self, calls: Sequence[Call]) -> list[CallResult]:
        """Send calls to the server; return an outcome for each."""
        return self.perform(exchange_durably, calls)

    def perform(
        self,
        begin: Callable[[_W, RedisSession, DriverState], Generator[SessionStep, Any, list[Any]]],
        wanted: _W,
    ) -> list[Any]:
        """Perform an exchange on a connection of its own; return an outcome for each call."""
        ticket = _Ticket()
        try:
            self._line[ticket] = None
            if len(self._line) > MAX_CONNECTIONS and not self._wait_for_turn(ticket):
                return [build_busy_error(self._state) for _ in range(len(wanted))]
            return self._perform(begin, wanted)
        finally:
            self._line.pop(ticket, None)  # first: an exception after it leaves no stale ticket
            if len(self._line) >= MAX_CONNECTIONS:
                self._wake_next()

    def _perform(
        self,
        begin: Callable[[_W, RedisSession, DriverState], Generator[SessionStep, Any, list[Any]]],
        wanted: _W,
    ) -> list[Any]:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = BlockingConnection()
        try:
            return self._take_steps(begin(wanted, connection.session, self._state), connection)
        finally:
            self._idle.append(connection)
            if self._is_over:
                self.abandon()

    def _wait_for_turn(self, ticket: _Ticket) -> bool:
        """Wait until the exchange is one of the first ten; return False at the timeout."""
        waiter = ticket.waiter = ThreadWaiter()
        deadline = time.monotonic() + self._state.timeout
        while ticket not in list(self._line)[:MAX_CONNECTIONS]:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            waiter.wait(min(remaining, _LOOK_AGAIN))
        return True

    def _wake_next(self) -> None:
        """Wake the threads of the first `MAX_CONNECTIONS` exchanges: each of these may use a connection.

        Exchanges that are already in progress ignore the wake-up.
        """
        for ticket in list(self._line)[:MAX_CONNECTIONS]:
            if ticket.waiter is not None:
                ticket.waiter.wake()

    def close(self) -> bool:
        """Close idle connections now, others after their exchanges; return whether there were idle ones."""
        self._is_over = True
        return self.abandon()

    def abandon(self) -> bool:
        """Close the idle connections; return whether there were any."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        return bool(idle)

    def _take_steps(
        self, steps: Generator[SessionStep, Any, list[Any]], connection: BlockingConnection
    ) -> list[Any]:
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = None
                if isinstance(step, Send):
                    answer = connection.exchange(step.commands, step.seconds)
                elif isinstance(step, Open):
                    answer = self._endpoint.open(connection, step.seconds)
                elif isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    connection.close()
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


class BlockingCluster:
    """Connection pools of the nodes of a cluster."""

    def __init__(self, target: RedisTarget, state: DriverState) -> None:
        self._target = target
        self._state = state
        self._nodes = get_cluster_map(target)
        self._pools: dict[Address, BlockingPool] = {}
        self._generation = 0
        self._is_over = False

    def route(self, calls: Sequence[Call]) -> list[CallResult]:
        """Send each call to the node that serves its key, all nodes at the same time; return the outcomes."""
        steps = route(calls, self._nodes, self._state)
        answer: Any = None
        try:
            while True:
                step = steps.send(answer)
                answer = None
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                else:
                    answer = self._visit_all(step)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            if self._generation != self._nodes.generation:
                self._leave_nodes()
            if self._is_over:
                self.abandon()

    def _leave_nodes(self) -> None:
        """Close the connections to nodes that serve no slots any more."""
        self._generation = self._nodes.generation
        for node in set(self._pools) - self._nodes.serving:
            if pool := self._pools.pop(node, None):
                pool.close()

    def close(self) -> bool:
        """Close idle connections now, others after their exchanges; return whether there were idle ones."""
        self._is_over = True
        closed = [pool.close() for pool in list(self._pools.values())]
        return any(closed)

    def abandon(self) -> bool:
        """Close the idle connections; return whether there were any."""
        closed = [pool.abandon() for pool in list(self._pools.values())]
        return any(closed)

    def _visit_all(self, visits: Sequence[Visit]) -> list[list[CallResult | UnsettledCall]]:
        """Make the visits at the same time, the first one in this thread; return the outcomes of each.

        A silent node uses up the whole timeout of its visit, and must not delay visits of other nodes.
        """
        if len(visits) == 1:
            return [self._visit(visits[0])]
        # A visit waits for a connection, for its exchange and for replicas, each at most the timeout.
        seconds = 4 * self._state.timeout
        others = [_VisitThread(self._visit, one).start() for one in visits[1:]]
        answers = [self._visit(visits[0])]
        for other in others:
            found = other.result(seconds)
            if found is None:
                raise ReplyLostError(self._state.address, f"a node has not answered within {seconds:g} s")
            answers.append(found)
        return answers

    def _visit(self, one: Visit) -> list[CallResult | UnsettledCall]:
        return self._pool(one.node).perform(visit, one)

    def _pool(self, node: Address) -> BlockingPool:
        pool = self._pools.get(node)
        if pool is None:
            endpoint = RedisEndpoint(self._target.node(node))
            made = BlockingPool(endpoint, self._state.of_node(format_address(node)))
            pool = self._pools.setdefault(node, made)
        return pool


class _VisitThread:
    """A visit in a thread of its own.

    It is not an executor, because an executor starts no threads once `atexit` functions run. It is not a
    `threading.Thread`, because an exception from a signal handler during `start` may leave that waiting for
    ever.
    """

    def __init__(self, make: Callable[[Visit], list[CallResult | UnsettledCall]], one: Visit) -> None:
        self._make = make
        self._one = one
        self._waiter = ThreadWaiter()
        self._answers: list[CallResult | UnsettledCall] | None = None
        self._error: BaseException | None = None
        self._is_over = False

    def start(self) -> Self:
        """Begin the visit."""
        try:
            _thread.start_new_thread(self._work, ())
        except RuntimeError:
            # The interpreter is ending and starts no threads.
            self._work()
        return self

    def result(self, seconds: float) -> list[CallResult | UnsettledCall] | None:
        """Wait for the visit; return its answers, or None after `seconds`. Raise the error of the visit."""
        deadline = time.monotonic() + seconds
        while not self._is_over and (remaining := deadline - time.monotonic()) > 0:
            self._waiter.wait(min(remaining, _LOOK_AGAIN))
        if self._error is not None:
            raise self._error
        return self._answers

    def _work(self) -> None:
        try:
            self._answers = self._make(self._one)
        except BaseException as error:  # noqa: BLE001 - `result` raises it
            self._error = error
        finally:
            self._is_over = True
            self._waiter.wake()


def blocking_pool(
    target: RedisTarget, endpoint: RedisEndpoint, state: DriverState
) -> BlockingPool | BlockingCluster:
    """Return the pool of a target; it connects at the first call."""
    return BlockingCluster(target, state) if target.is_cluster else BlockingPool(endpoint, state)
