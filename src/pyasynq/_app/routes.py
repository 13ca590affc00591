"""Routes of declared handlers: decode the payload, run the handler, encode the result."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, TypeAlias

from pyasynq._engine.handlers.routes import Route, await_fully, drop_result
from pyasynq._engine.handlers.threads import current_threads
from pyasynq.context import current_task
from pyasynq.control import find_control
from pyasynq.errors import PayloadEncodingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq._app.declaration import Declaration
    from pyasynq._app.providers import Providers
    from pyasynq._engine.executor.order import Program
    from pyasynq._engine.handlers.routes import HandlerReturn
    from pyasynq.task import Task

_Watch: TypeAlias = "Callable[[object], object]"

watch_result: ContextVar[_Watch] = ContextVar("pyasynq.watch_result")
"""Function that gets the return value of the handler in this context, if that is not None; for tests."""


def route_of(declaration: Declaration, providers: Providers, program: Program | None = None) -> Route:
    """Return the route of a declaration, without middleware.

    Args:
        declaration: the task.
        providers: make the dependencies of its handler.
        program: the handler as child processes import it; None runs the handler in this process.
    """
    here = _route_here(declaration, providers)
    if program is None:
        return here
    from pyasynq._engine.executor.pool import in_child  # noqa: PLC0415 - few tasks need it

    return replace(here, call=in_child(program, here), plain=False, program=program)


def _route_here(declaration: Declaration, providers: Providers) -> Route:
    if declaration.dependencies:
        return Route(_injected_call(declaration, providers), plain=False, rules=declaration.rules)
    call = _coroutine_call(declaration) if declaration.is_coroutine else _plain_call(declaration)
    return Route(call, plain=not declaration.is_coroutine, rules=declaration.rules)


def _coroutine_call(declaration: Declaration) -> Callable[[Task], Awaitable[HandlerReturn]]:
    function = declaration.function
    decode = declaration.arguments.decode

    async def call(task: Task) -> HandlerReturn:
        result = await function(**decode(task.payload or b""))
        if result is None:
            return None
        if isawaitable(result):
            result = await await_fully(result)
        return _result(declaration, result, watch_result.get(None))

    return call


def _injected_call(
    declaration: Declaration, providers: Providers
) -> Callable[[Task], Awaitable[HandlerReturn]]:
    """Return a function that runs the handler with dependencies made for each attempt.

    A plain handler still runs in a thread.
    """
    function, wanted = declaration.function, declaration.dependencies
    decode = declaration.arguments.decode

    async def run(arguments: dict[str, Any], made: dict[str, Any]) -> Any:
        if declaration.is_coroutine:
            result = await function(**arguments, **made)
        else:
            result = await current_threads.get().call(partial(function, **arguments, **made))
        return await await_fully(result) if isawaitable(result) else result

    async def call(task: Task) -> HandlerReturn:
        arguments = decode(task.payload or b"")
        result = await providers.call(partial(run, arguments), wanted)
        return _result(declaration, result, watch_result.get(None))

    return call


def _plain_call(declaration: Declaration) -> Callable[[Task], Awaitable[HandlerReturn] | HandlerReturn]:
    function = declaration.function
    decode = declaration.arguments.decode

    def call(task: Task) -> Awaitable[HandlerReturn] | HandlerReturn:
        result = function(**decode(task.payload or b""))
        if result is None:
            return None
        # Read in this thread: the loop, which awaits an awaitable result, does not have this thread's
        # context.
        watch = watch_result.get(None)
        if isawaitable(result):
            return _later_result(declaration, result, watch)
        return _result(declaration, result, watch)

    return call


async def _later_result(declaration: Declaration, result: object, watch: _Watch | None) -> HandlerReturn:
    """Await the coroutine that a plain wrapper of a coroutine function has returned; return its result."""
    return _result(declaration, await await_fully(result), watch)


def _result(declaration: Declaration, value: object, watch: _Watch | None) -> HandlerReturn:
    if value is None:
        return None
    if wish := find_control(value):
        return wish
    if watch is not None:
        watch(value)
    running = current_task.get(None)
    # Without retention the task is deleted when it is done, and its result with it.
    if running is not None and not running.message.retention:
        return None
    try:
        return declaration.result.encode(value)
    except PayloadEncodingError as error:
        drop_result(str(error))
        return None
