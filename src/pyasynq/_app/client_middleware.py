"""Adapter of client middleware for the blocking client: it runs coroutine functions without an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from pyasynq import sync
    from pyasynq.client import ClientMiddleware
    from pyasynq.task import Task, TaskInfo


def blocking_middleware(middleware: ClientMiddleware) -> sync.client.ClientMiddleware:
    """Convert asyncio client middleware for the blocking client.

    Middleware that awaits only `call_next` never suspends, so it needs no event loop. For middleware that
    awaits anything else, `enqueue_sync` raises `ConfigurationError`.
    """

    def call(task: Task, call_next: sync.client.CallNext) -> TaskInfo:
        async def next_without_waiting(task: Task) -> TaskInfo:
            return call_next(task)

        return _finish(middleware(task, next_without_waiting), middleware)

    return call


def _finish(coroutine: Any, middleware: ClientMiddleware) -> TaskInfo:
    steps: Coroutine[Any, None, TaskInfo] = coroutine
    try:
        steps.send(None)
    except StopIteration as end:
        info: TaskInfo = end.value
        return info
    steps.close()
    raise ConfigurationError(
        f"client middleware {getattr(middleware, '__qualname__', middleware)!r} waits for something other "
        "than call_next, which a blocking enqueue cannot do: enqueue with await, or do not wait in it",
    )
