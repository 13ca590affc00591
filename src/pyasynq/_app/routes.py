"""From a declaration to what the engine calls: decode the payload, run the handler, encode the result."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeAlias

from pyasynq._engine.handlers.routes import Route, awaited, drop_result
from pyasynq.context import current_task
from pyasynq.control import control_of
from pyasynq.errors import PayloadEncodingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq._app.declaration import Declaration
    from pyasynq._engine.executor.order import Program
    from pyasynq._engine.handlers.routes import HandlerReturn
    from pyasynq.task import Task

_Watch: TypeAlias = "Callable[[object], object]"

watch_result: ContextVar[_Watch] = ContextVar("pyasynq.watch_result")
"""Told what the handler that runs here has returned, unless that is None; for tests."""


def route_of(declaration: Declaration, program: Program | None = None) -> Route:
    """Return how tasks of this declaration are run, without middleware.

    Args:
        declaration: the task.
        program: what child processes run for it; without it they are run in this process.
    """
    here = _route_here(declaration)
    if program is None:
        return here
    from pyasynq._engine.executor.pool import in_child  # noqa: PLC0415 - few tasks need it

    return replace(here, call=in_child(program, here), plain=False, program=program)


def _route_here(declaration: Declaration) -> Route:
    call = _coroutine_call(declaration) if declaration.is_coroutine else _plain_call(declaration)
    return Route(
        call,
        plain=not declaration.is_coroutine,
        retry_delay=declaration.retry_delay,
        is_failure=declaration.is_failure,
        crash_limit=declaration.crash_limit,
    )


def _coroutine_call(declaration: Declaration) -> Callable[[Task], Awaitable[HandlerReturn]]:
    function = declaration.function
    decode = declaration.arguments.decode

    async def call(task: Task) -> HandlerReturn:
        result = await function(**decode(task.payload or b""))
        if result is None:
            return None
        if isawaitable(result):
            result = await awaited(result)
        return _result(declaration, result, watch_result.get(None))

    return call


def _plain_call(declaration: Declaration) -> Callable[[Task], Awaitable[HandlerReturn] | HandlerReturn]:
    function = declaration.function
    decode = declaration.arguments.decode

    def call(task: Task) -> Awaitable[HandlerReturn] | HandlerReturn:
        result = function(**decode(task.payload or b""))
        if result is None:
            return None
        # Read here: the loop, where an awaitable is awaited, does not have the context of this thread.
        watch = watch_result.get(None)
        if isawaitable(result):
            return _later_result(declaration, result, watch)
        return _result(declaration, result, watch)

    return call


async def _later_result(declaration: Declaration, result: object, watch: _Watch | None) -> HandlerReturn:
    """Await what a plain wrapper around a coroutine function has returned; return its result."""
    return _result(declaration, await awaited(result), watch)


def _result(declaration: Declaration, value: object, watch: _Watch | None) -> HandlerReturn:
    if value is None:
        return None
    if wish := control_of(value):
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
