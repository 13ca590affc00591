"""Registration of queues for asyncio: with their tasks, or later, until Redis has confirmed it."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Final, TypeVar

from pyasynq._backoff import Backoff
from pyasynq._broker.queue_registry import FIRST_WAIT, LONGEST_PAUSE, PAUSE, RegistrarBase, register_queues
from pyasynq._redis.loop_local import LoopLocal
from pyasynq.errors import ClientClosedError, ForeignRedisError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pyasynq._redis.driver import AsyncDriver
    from pyasynq._redis.plan import Plan

_T = TypeVar("_T")

_NO_CONTEXT: Final = contextvars.Context()
"""Empty `contextvars` context for timers, which must not keep the context of a handler alive."""


class _LoopState:
    """Timer and tasks of one event loop."""

    def __init__(self) -> None:
        self.timer: asyncio.TimerHandle | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self.backoff = Backoff(PAUSE, LONGEST_PAUSE)

    def abandon(self) -> None:
        """Forget the timer of a loop that has ended."""
        self.timer = None


class AsyncRegistrar(RegistrarBase):
    """Runs plans that put tasks into queues, and registers the queues.

    On a single server, both go in one pipeline. In a cluster the name follows its task: the first tasks of a
    queue wait for it at most 0.1 s, later tasks do not wait. A name that Redis does not accept is resent.
    """

    def __init__(self, driver: AsyncDriver, *, apart: bool = False) -> None:
        super().__init__(driver, apart=apart)
        self._driver = driver
        self._per_loop = LoopLocal(_LoopState, _LoopState.abandon)

    async def run(self, plans: Sequence[Plan[_T]], queues: Sequence[str]) -> list[_T | Exception]:
        """Run plans in the caller's own task, as `run_unshielded` does; `queues` has the queue of each."""
        registry, state = self.registry, self._per_loop.here()
        if state.timer is None or not registry.has(queues):
            return await self._run_and_register(plans, queues)
        # Fast path of a busy client: the names are owed already, and the timer is set.
        try:
            return await self._driver.run_unshielded(plans)
        finally:
            if not registry.has(queues):
                registry.owe(queues)
                self._send_soon()

    async def run_one(self, plan: Plan[_T], queue: str) -> _T:
        """Run one plan; return its result or raise its error. A cancelled caller leaves the plan running."""
        self._driver.check_open()
        [outcome] = await self._driver.wait_for(self._driver.start_task(self.run([plan], [queue])))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def register(self, queues: Sequence[str]) -> None:
        """Register queues soon, in a call of its own; return at once.

        It is for queues whose tasks this process did not enqueue, such as those that it found in Redis.
        """
        self.registry.owe(queues)
        if self.registry.owes:
            self._send_soon(0.0)

    async def close(self) -> None:
        """Stop registering queue names, and cancel the call in progress."""
        self._is_closed = True
        state = self._per_loop.own()
        if state is None:
            return
        if state.timer is not None:
            state.timer.cancel()
        if tasks := list(state.tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _run_and_register(
        self, plans: Sequence[Plan[_T]], queues: Sequence[str]
    ) -> list[_T | Exception]:
        driver, registry = self._driver, self.registry
        sent: Sequence[Plan[Any]] = plans
        if not self._is_apart and queues and (registry.try_acquire(queues) or not driver.stays_open):
            sent = [*plans, register_queues(queues)]
        outcomes: list[Any] = []
        is_sent = True
        try:
            outcomes = await driver.run_unshielded(sent)
        except (ClientClosedError, ForeignRedisError):
            is_sent = False
            raise
        finally:
            if is_sent and self._settle(queues, outcomes):
                self._send_soon()
        if self._is_apart and registry.is_answered and registry.is_new(queues) and registry.owes:
            await self._wait_for_names(queues)
        return outcomes if sent is plans else outcomes[:-1]

    async def _wait_for_names(self, queues: Sequence[str]) -> None:
        task = self._start(self._per_loop.here())
        await asyncio.wait({task}, timeout=FIRST_WAIT)
        self.registry.is_answered = not self.registry.is_new(queues)

    def _send_soon(self, pause: float = PAUSE) -> None:
        state = self._per_loop.here()
        if state.timer is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            state.timer = loop.call_later(pause, self._begin, state, context=_NO_CONTEXT)

    def _begin(self, state: _LoopState) -> None:
        state.timer = None
        if not self._is_closed:
            self._start(state)

    def _start(self, state: _LoopState) -> asyncio.Task[None]:
        name = "pyasynq registration of queues"
        task = asyncio.get_running_loop().create_task(self._send_owed(state), name=name)
        state.tasks.add(task)
        task.add_done_callback(state.tasks.discard)
        return task

    async def _send_owed(self, state: _LoopState) -> None:
        """Register the pending queue names; names that Redis refuses stay pending."""
        registry = self.registry
        names = registry.take()
        if not names:
            return
        outcomes: Sequence[Exception | None] = ()
        try:
            self._driver.check_open()
            outcomes = await self._driver.run_unshielded([register_queues(names)])
        except (ClientClosedError, ForeignRedisError):
            names = []
            return
        finally:
            error = next((one for one in outcomes if one is not None), None)
            if outcomes and error is None:
                registry.confirm(names)
                state.backoff.reset()
            elif error is None or not self._is_refused(error):
                registry.is_answered = False
                registry.owe(names)
        if registry.owes:
            self._send_soon(PAUSE if error is None else state.backoff.next())
