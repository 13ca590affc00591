"""Routing by type, and middleware."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq._engine.handlers.routes import (
    AttemptRules,
    HandlerRules,
    OneRoute,
    is_coroutine_handler,
    make_router,
)
from pyasynq.config import ServerConfig
from pyasynq.errors import ConfigurationError, HandlerNotFoundError, InvalidOptionError
from pyasynq.mux import Mux
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable


def named(name: str) -> Callable[[Task], Any]:
    """Return a handler that returns its name."""

    async def handle(task: Task) -> str:
        del task
        return name

    return handle


def run(mux: Mux, task_type: str) -> Any:
    """Run a task as a server would, with coroutine handlers only."""

    async def call() -> Any:
        return await mux.route(task_type).call(Task(task_type))  # type: ignore[misc]

    return asyncio.run(call())


def mux_with(*patterns: str) -> Mux:
    """Return a mux whose handlers return their patterns."""
    mux = Mux()
    for pattern in patterns:
        mux.handle(pattern, named(pattern))
    return mux


@pytest.mark.parametrize(
    ("pattern", "task_type"),
    [
        ("email:deliver", "email:deliver"),
        ("email:", "email:other"),
        ("email:deliver", "email:deliver:now"),
        ("e", "echo"),
    ],
)
def test_the_exact_type_wins_then_the_longest_prefix(pattern: str, task_type: str) -> None:
    """The order of registration does not matter."""
    patterns = ["e", "email:", "email:deliver"]
    assert pattern == run(mux_with(*patterns), task_type)
    assert pattern == run(mux_with(*reversed(patterns)), task_type)


def test_a_type_without_handler_raises_handler_not_found() -> None:
    """The error names the type."""
    with pytest.raises(HandlerNotFoundError, match='handler not found for task "sms"'):
        run(mux_with("email:"), "sms")


@pytest.mark.parametrize("pattern", ["", "  ", 5])
def test_a_blank_pattern_is_refused(pattern: Any) -> None:
    """It would match everything by accident."""
    with pytest.raises(InvalidOptionError):
        Mux().handle(pattern, named("x"))


def test_a_pattern_has_one_handler() -> None:
    """A second registration is a mistake."""
    mux = mux_with("email:")
    with pytest.raises(ConfigurationError, match="'email:'"):
        mux.handle("email:", named("again"))


def test_what_cannot_be_called_is_refused() -> None:
    """The error shows what was given."""
    with pytest.raises(ConfigurationError, match="None"):
        Mux().handle("x", None)  # type: ignore[arg-type]


def test_a_negative_crash_limit_is_refused() -> None:
    """Zero means: archive at the first crash."""
    with pytest.raises(InvalidOptionError, match="crash_limit=-1"):
        Mux().handle("x", named("x"), crash_limit=-1)


def test_the_decorator_registers_with_settings_and_returns_the_function() -> None:
    """The function stays callable by itself."""
    mux = Mux()

    @mux.handler("email:", retry_delay=lambda retried, error, task: 5, crash_limit=0)
    async def deliver(task: Task) -> None:
        del task

    route = mux.route("email:x")
    assert asyncio.iscoroutinefunction(deliver)
    assert (0, False) == (route.rules.crash_limit, route.plain)
    rules = AttemptRules(ServerConfig(retry_delay=9), route, Task("x"))
    assert rules.delay(0, ValueError()) == 5


@pytest.mark.parametrize(
    "rule", [{"is_failure": 3}, {"crash_limit": 1.5}, {"crash_limit": "x"}, {"executor": "thread"}]
)
def test_a_rule_that_cannot_be_is_named(rule: dict[str, Any]) -> None:
    """It is refused when the handler is registered, not when a task fails."""
    [name] = rule
    with pytest.raises(InvalidOptionError, match=name):
        HandlerRules(**rule)


def test_middleware_keeps_all_rules_of_a_handler() -> None:
    """Only its call changes."""

    async def pass_on(task: Task, call_next: Any) -> Any:
        return await call_next(task)

    mux = Mux()
    mux.handle("x", lambda task: None, retry_delay=5, is_failure=lambda error: False, crash_limit=2)
    bare = mux.route("x")
    mux.use(pass_on)
    wrapped = mux.route("x")
    assert (wrapped.rules, wrapped.program) == (bare.rules, bare.program)
    assert (bare.plain, wrapped.plain) == (True, False)


def test_plain_handlers_are_known_as_such() -> None:
    """They block, and run in threads."""
    mux = Mux()
    mux.handle("plain", lambda task: None)
    mux.handle("async", named("x"))
    assert [True, False] == [mux.route("plain").plain, mux.route("async").plain]


def test_middleware_wraps_in_order_the_first_outermost() -> None:
    """Middleware also wraps types without a handler."""
    log: list[str] = []

    def noting(name: str) -> Any:
        async def middleware(task: Task, call_next: Any) -> Any:
            log.append(f"{name} in")
            try:
                return await call_next(task)
            finally:
                log.append(f"{name} out")

        return middleware

    mux = mux_with("a")
    mux.use(noting("outer"), noting("inner"))
    assert "a" == run(mux, "a")
    assert ["outer in", "inner in", "inner out", "outer out"] == log
    log.clear()
    with pytest.raises(HandlerNotFoundError):
        run(mux, "b")
    assert ["outer in", "inner in", "inner out", "outer out"] == log


def test_middleware_may_answer_in_the_handlers_place() -> None:
    """It need not call on."""
    mux = mux_with("a")

    @mux.middleware
    async def answer(task: Task, call_next: Any) -> str:
        del call_next
        return f"instead of {task.type}"

    assert "instead of a" == run(mux, "a")


def test_middleware_that_is_not_a_coroutine_function_is_refused() -> None:
    """It could not await the handler."""
    with pytest.raises(ConfigurationError, match="async def"):
        Mux().use(lambda task, call_next: call_next(task))


def test_handlers_and_middleware_added_later_count_for_types_seen_before() -> None:
    """Found routes are cached only while nothing changes."""
    mux = mux_with("email:")
    assert "email:" == run(mux, "email:deliver")
    mux.handle("email:deliver", named("exact"))
    assert "exact" == run(mux, "email:deliver")


def test_types_from_outside_do_not_fill_the_memory() -> None:
    """Only this many are remembered."""
    mux = mux_with("email:")
    for number in range(11_000):
        mux.route(f"email:{number}")
    assert len(mux._found) <= 10_000
    assert "email:" == run(mux, "email:10999")


def test_a_server_takes_a_router_or_a_function() -> None:
    """One function serves every type."""
    mux = Mux()
    assert mux is make_router(mux)
    assert isinstance(make_router(named("x")), OneRoute)
    with pytest.raises(ConfigurationError, match="not int"):
        make_router(42)  # type: ignore[arg-type]


def test_objects_and_partials_with_coroutines_are_coroutine_handlers() -> None:
    """The kind of the returned value decides."""

    class Handler:
        async def __call__(self, task: Task) -> None:
            del task

    async def function(extra: int, task: Task) -> None:
        del extra, task

    assert is_coroutine_handler(Handler())
    assert is_coroutine_handler(functools.partial(function, 1))
    assert not is_coroutine_handler(lambda task: task)
