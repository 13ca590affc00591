"""Registration of queues for threads: with their tasks, or from a thread until Redis has confirmed it.

As in `coalesce_blocking`, nothing here holds a lock: a signal handler may enqueue between any two steps.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypeVar

from pyasynq._backoff import Backoff
from pyasynq._broker.queue_registry import FIRST_WAIT, LONGEST_PAUSE, PAUSE, RegistrarBase, register_queues
from pyasynq._redis.thread_waiter import ThreadWaiter, start_thread
from pyasynq.errors import ClientClosedError, ForeignRedisError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pyasynq._redis.driver import BlockingDriver
    from pyasynq._redis.plan import Plan

_T = TypeVar("_T")


class BlockingRegistrar(RegistrarBase):
    """Runs plans that put tasks into queues, and registers the queues; the counterpart of `AsyncRegistrar`.

    A daemon thread registers the names that were not in the pipeline of their tasks, and then ends.
    """

    def __init__(self, driver: BlockingDriver, *, apart: bool = False) -> None:
        super().__init__(driver, apart=apart)
        self._driver = driver
        self._sender_pid = 0
        """Process id of the running thread; written by that thread and by the thread that starts it."""
        self._waiter = ThreadWaiter()
        self._waiting: dict[ThreadWaiter, None] = {}
        """Threads that wait until the names of their new queues are registered."""

    def run(self, plans: Sequence[Plan[_T]], queues: Sequence[str]) -> list[_T | Exception]:
        """Run plans as a batch; return a result or an exception for each. `queues` has the queue of each."""
        registry = self.registry
        if self._sender_pid != os.getpid() or not registry.has(queues):
            return self._run_and_register(plans, queues)
        # Fast path of a busy client: the names are owed already, and the thread is running.
        try:
            return self._driver.run_batch(plans)
        finally:
            if not registry.has(queues):
                registry.owe(queues)
                self._start_thread()

    def abandon(self) -> None:
        """Stop registering queue names. Callable from any thread."""
        super().abandon()
        self._waiter.wake()

    def close(self) -> None:
        """Stop registering queue names; wait 0.1 s for the call in progress, which ends by itself."""
        self._is_closed = True
        if self._sender_pid == os.getpid():
            waiter = ThreadWaiter()
            self._waiting[waiter] = None
            self._waiter.wake()
            if self._sender_pid:
                waiter.wait(FIRST_WAIT)

    def _run_and_register(self, plans: Sequence[Plan[_T]], queues: Sequence[str]) -> list[_T | Exception]:
        registry = self.registry
        sent: Sequence[Plan[Any]] = plans
        if not self._is_apart and queues and registry.try_acquire(queues):
            sent = [*plans, register_queues(queues)]
        outcomes: list[Any] = []
        is_sent = True
        try:
            outcomes = self._driver.run_batch(sent)
        except (ClientClosedError, ForeignRedisError):
            is_sent = False
            raise
        finally:
            if is_sent and self._settle(queues, outcomes):
                self._start_thread()
        if self._is_apart and registry.is_answered and registry.is_new(queues) and registry.owes:
            self._wait_for_names(queues)
        return outcomes if sent is plans else outcomes[:-1]

    def _wait_for_names(self, queues: Sequence[str]) -> None:
        registry, waiter = self.registry, ThreadWaiter()
        deadline = time.monotonic() + FIRST_WAIT
        try:
            self._waiting[waiter] = None
            self._waiter.wake()
            while registry.is_new(queues) and (remaining := deadline - time.monotonic()) > 0:
                waiter.wait(remaining)
        finally:
            self._waiting.pop(waiter, None)
        registry.is_answered = not registry.is_new(queues)

    def _start_thread(self) -> None:
        """Start the thread that registers the remaining (owed) queue names, unless it is running."""
        if self._sender_pid == os.getpid() or self._is_closed:
            return
        self._sender_pid = os.getpid()
        try:
            start_thread(self._run, "pyasynq registration of queues")
        except BaseException as error:
            self._sender_pid = 0
            # The interpreter is ending and starts no threads; workers register the queue.
            if not isinstance(error, RuntimeError):
                raise

    def _run(self) -> None:
        """Register the remaining (owed) queue names every half second, until there are none."""
        registry, backoff = self.registry, Backoff(PAUSE, LONGEST_PAUSE)
        try:
            if not self._is_apart:
                # The last batches have registered their names in the pipelines of their tasks.
                self._waiter.wait(PAUSE)
            while registry.owes and not self._is_closed:
                is_done = self._send(registry.take())
                if is_done:
                    backoff.reset()
                self._waiter.wait(PAUSE if is_done else backoff.next())
        finally:
            self._sender_pid = 0
            self._wake_all()
        if registry.owes:
            self._start_thread()

    def _send(self, names: Sequence[str]) -> bool:
        """Write names; return whether Redis has them, or refuses them for good."""
        registry = self.registry
        outcomes: Sequence[Exception | None] = ()
        try:
            outcomes = self._driver.run_batch([register_queues(names)])
        except (ClientClosedError, ForeignRedisError):
            names = ()
            return True
        finally:
            error = next((one for one in outcomes if one is not None), None)
            is_done = bool(outcomes) and (error is None or self._is_refused(error))
            if outcomes and error is None:
                registry.confirm(names)
            elif not is_done:
                registry.is_answered = False
                registry.owe(names)
            self._wake_all()
        return is_done

    def _wake_all(self) -> None:
        for waiter in list(self._waiting):
            waiter.wake()
