"""Calls of the provider of periodic tasks: one at a time, with a time limit."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from pyasynq._background.time_limits import cancel_task
from pyasynq._engine.handlers.threads import HandlerThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq._background.calls import CallsInProgress


class ProviderCalls:
    """Calls a provider: a coroutine function on the event loop, a plain function in a daemon thread.

    Args:
        provider: its result may be awaitable in either case.
        timeout: seconds that a call may take.
        calls: where a call is recorded while it runs.
    """

    def __init__(self, provider: Callable[[], Any], timeout: float, calls: CallsInProgress) -> None:
        self._provider = provider
        self._timeout = timeout
        self._calls = calls
        self._name = f"the provider {getattr(provider, '__qualname__', repr(provider))}"
        self._running: asyncio.Future[Any] | None = None
        """The last call. A thread cannot be stopped, so it may outlive the wait for it."""
        self._alarm: asyncio.Future[str] | None = None

    async def ask(self) -> list[Any]:
        """Call the provider; return its result as a list.

        Raises:
            TimeoutError: when the provider does not return in time, or has not returned from an earlier call.
            Exception: the error that the provider raises.

        When the caller is cancelled, this does not wait for the provider.
        """
        if self._running is not None and not self._running.done():
            raise TimeoutError(f"{self._name} has not returned from an earlier call")
        loop = asyncio.get_running_loop()
        self._alarm = loop.create_future()
        late = f"{self._name} has not returned within {self._timeout:g} s (provider_timeout)"
        timer = loop.call_later(self._timeout, self._set_alarm, late)
        try:
            with self._calls.note(self._name):
                return await self._answer()
        finally:
            timer.cancel()
            self._alarm = None

    def interrupt(self) -> None:
        """End the wait for a call, because the manager is being stopped."""
        self._set_alarm(f"the manager stops and does not wait for {self._calls or self._name}")

    def _set_alarm(self, reason: str) -> None:
        if self._alarm is not None and not self._alarm.done():
            self._alarm.set_result(reason)

    async def _answer(self) -> list[Any]:
        if inspect.iscoroutinefunction(self._provider):
            answer = self._provider()
        else:
            threads = HandlerThreads("pyasynq-provider")
            in_thread = threads.start(_call, self._provider)
            threads.close()  # the thread ends after this call
            answer, error = await self._wait(in_thread)
            if error is not None:
                raise error
        if inspect.isawaitable(answer):
            task = asyncio.ensure_future(_wait_for(answer))
            task.add_done_callback(_mark_retrieved)
            try:
                answer = await self._wait(task)
            finally:
                if not task.done():
                    await cancel_task(task)
        return list(answer)

    async def _wait(self, call: asyncio.Future[Any]) -> Any:
        self._running = call
        assert self._alarm is not None  # noqa: S101 - ask has set it
        await asyncio.wait({call, self._alarm}, return_when=asyncio.FIRST_COMPLETED)
        if not call.done():
            raise TimeoutError(self._alarm.result())
        return call.result()


def _call(provider: Callable[[], Any]) -> Any:
    answer = provider()
    # Consume an iterator here, where reading from a database may block.
    return answer if inspect.isawaitable(answer) else list(answer)


async def _wait_for(answer: Awaitable[Any]) -> Any:
    return await answer


def _mark_retrieved(task: asyncio.Future[Any]) -> None:
    if not task.cancelled():
        task.exception()
