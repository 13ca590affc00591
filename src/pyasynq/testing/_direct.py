"""Clients and drivers for tests: asyncio interfaces that make blocking calls to Redis.

Blocking is acceptable, because the Redis of a test answers in microseconds. No connection belongs to an event
loop, and calls happen in the order of the code.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pyasynq import sync
from pyasynq._broker.dequeue import DequeueRules, DequeueTerms, dequeue
from pyasynq._broker.leases import RAN_ALONE
from pyasynq._redis.driver import AsyncDriver, BlockingDriver
from pyasynq._redis.plan import CommandCall, Replay, ask
from pyasynq._wire.keys import queue_keys
from pyasynq._wire.messages import decode_task_message
from pyasynq.client import Client
from pyasynq.errors import WaitTimeoutError
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyasynq._clock import Clock, Instant
    from pyasynq._redis.plan import Plan
    from pyasynq._redis.url import RedisTarget
    from pyasynq.options import Duration
    from pyasynq.task import FinishedTask

_T = TypeVar("_T")

_CLIENT_NAME: Final = "pyasynq-testing"
_NOT_NOW: Final = ("process_at", "process_in", "group")


class DirectDriver(AsyncDriver):
    """Asyncio driver that runs its plans with a blocking driver. Its arguments are those of other drivers."""

    stays_open = False

    def __init__(self, target: RedisTarget, **settings: Any) -> None:
        super().__init__(target, **settings)
        self._blocking = BlockingDriver(target, **settings)

    async def run_unshielded(self, plans: Sequence[Plan[_T]]) -> list[_T | Exception]:
        """Run plans as `run_batch` does, and block the event loop until they have ended."""
        return self._blocking.run_batch(plans)

    async def close(self) -> None:
        """Wait for running calls, then close the connections."""
        await super().close()
        self._blocking.close()

    def abandon(self) -> bool:
        """Close the connections at once, without a warning."""
        super().abandon()
        self._blocking.abandon()
        return False


class WaitRunner(Protocol):
    """Protocol of an object that runs the kit's worker while code under test waits for a task.

    Attributes:
        client, sync_client: clients of the kit, which stay open when the worker closes those of the app.
    """

    client: Client
    sync_client: sync.Client

    @property
    def is_running(self) -> bool:
        """Whether the worker already runs, so that a wait need not run it."""

    async def run_until_ended(self, queue: str, task_id: str, timeout: Duration | None) -> None:
        """Run all due tasks, and advance the virtual time, until a task has ended.

        Raises:
            WaitTimeoutError: the task has not ended within this virtual time.
            ServerStateError: without a timeout, when nothing will be due that could end the task.
        """

    def run_until_ended_sync(self, queue: str, task_id: str, timeout: Duration | None) -> None:
        """Run due tasks as `run_until_ended` does, blocking the thread."""


class QueuePlace:
    """Redis URL and clock of an app under test; makes the clients of the app.

    Attributes:
        runner: runs the worker while a client waits; None if no worker runs then. Set by the kit, read by its
            clients.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        self.url = url
        self.clock = clock
        self.runner: WaitRunner | None = None

    def open_client(self, **settings: Any) -> Client:
        """Make an asyncio client."""
        return DirectClient(self, **settings)

    def open_blocking_client(self, **settings: Any) -> sync.Client:
        """Make a blocking client."""
        return DirectBlockingClient(self, **settings)

    def find_runner(self, timeout: Duration | None) -> WaitRunner | None:
        """Return the runner for a wait; None with a timeout of 0, or if the worker already runs."""
        runner = self.runner
        return None if timeout == 0 or runner is None or runner.is_running else runner

    @contextmanager
    def naming_eager(self) -> Iterator[None]:
        """Name `Kit.eager` in the error of a wait that ran no task."""
        try:
            yield
        except WaitTimeoutError as error:
            if self.runner is None and error.seconds:
                remedy = "a test kit runs tasks while you wait in `with kit.eager():`"
                error.args = (f"{error}: {remedy}",)
            raise


class DirectClient(Client):
    """Asyncio client for tests; in a block of `Kit.eager`, its waits run the worker."""

    def __init__(self, place: QueuePlace, **settings: Any) -> None:
        super().__init__(place.url, clock=place.clock, client_name=_CLIENT_NAME, **settings)
        self._place = place

    def _connect(self, target: RedisTarget, **settings: Any) -> AsyncDriver:
        return DirectDriver(target, **settings)

    async def wait(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait until a task has ended, as `Client.wait`."""
        if runner := self._place.find_runner(timeout):
            with suppress(WaitTimeoutError):
                return await super().wait(queue, task_id, 0)
            await runner.run_until_ended(queue, task_id, timeout)
            return await runner.client.wait(queue, task_id, 0)
        with self._place.naming_eager():
            return await super().wait(queue, task_id, timeout)

    async def result(self, queue: str, task_id: str, timeout: Duration | None = None) -> bytes | None:
        """Return the result of a task that has ended, as `Client.result`."""
        if runner := self._place.find_runner(timeout):
            with suppress(WaitTimeoutError):
                return await super().result(queue, task_id, 0)
            await runner.run_until_ended(queue, task_id, timeout)
            return await runner.client.result(queue, task_id, 0)
        with self._place.naming_eager():
            return await super().result(queue, task_id, timeout)


class DirectBlockingClient(sync.Client):
    """Blocking client for tests; in a block of `Kit.eager`, its waits run the worker."""

    def __init__(self, place: QueuePlace, **settings: Any) -> None:
        super().__init__(place.url, clock=place.clock, client_name=_CLIENT_NAME, **settings)
        self._place = place

    def wait(self, queue: str, task_id: str, timeout: Duration | None = None) -> FinishedTask:
        """Wait until a task has ended, as `sync.Client.wait`."""
        if runner := self._place.find_runner(timeout):
            with suppress(WaitTimeoutError):
                return super().wait(queue, task_id, 0)
            runner.run_until_ended_sync(queue, task_id, timeout)
            return runner.sync_client.wait(queue, task_id, 0)
        with self._place.naming_eager():
            return super().wait(queue, task_id, timeout)

    def result(self, queue: str, task_id: str, timeout: Duration | None = None) -> bytes | None:
        """Return the result of a task that has ended, as `sync.Client.result`."""
        if runner := self._place.find_runner(timeout):
            with suppress(WaitTimeoutError):
                return super().result(queue, task_id, 0)
            runner.run_until_ended_sync(queue, task_id, timeout)
            return runner.sync_client.result(queue, task_id, 0)
        with self._place.naming_eager():
            return super().result(queue, task_id, timeout)


def make_immediate(task: Task) -> Task:
    """Return a copy of a task without process time and group, so that it is pending once it is enqueued."""
    options = {name: value for name, value in task.options.items() if name not in _NOT_NOW}
    return Task(task.type, task.payload, **options)  # type: ignore[arg-type] # some of the options of a task


def put_in_front(driver: BlockingDriver, queue: str, task_id: str) -> None:
    """Make a pending task the next one of its queue."""
    pending = queue_keys(queue).pending
    for command in (("LREM", pending, 1, task_id), ("RPUSH", pending, task_id)):
        driver.run(ask(CommandCall(command, pending, Replay.NEVER)))


def take_and_die(
    driver: BlockingDriver, queues: Iterable[str], limit: int, now: Instant
) -> list[tuple[str, str]]:
    """Take up to `limit` tasks and abandon them, as a killed worker does; return their types and ids."""
    server = f"crashed-{uuid.uuid4()}"
    alone = RAN_ALONE if limit == 1 else ""
    taken: list[tuple[str, str]] = []
    for queue in queues:
        room = limit - len(taken)
        if room <= 0:
            break
        answer = driver.run(dequeue(queue, limit=room, token=f"{server}/1{alone}", now=now))
        if answer.rules is not DequeueRules.PLAIN:
            terms = DequeueTerms(answer.rules)
            answer = driver.run(dequeue(queue, limit=room, token=f"{server}/2{alone}", terms=terms, now=now))
        taken += [(decode_task_message(one.message).type, one.id) for one in answer.tasks]
    return taken
