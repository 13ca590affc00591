"""Typed calls: decoded arguments for aggregators, middleware and `enqueue_many`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, ConfigurationError, InvalidOptionError, PayloadDecodingError, Task, TypedCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq._engine.handlers.group_routes import DeclaredAggregator

    CallNext = Callable[[Task], Awaitable[bytes | str | None]]

app = App("redis://production.invalid:6379/0")


@app.task("event:record", queue="low")
async def record(user_id: int, event: str = "login") -> str:
    """A handler with a default."""
    return f"{user_id} {event}"


@app.task("other")
async def other() -> None:
    """A handler of another type."""


def aggregator_of(owner: App, groups: str) -> DeclaredAggregator:
    """Return the aggregator that servers find."""
    return owner.__pyasynq_router__().aggregators()[groups]


def run_route(owner: App, task: Task) -> Any:
    """Run a task as the engine does, without a server."""
    route = owner.__pyasynq_router__().route(task.type)
    assert route is not None
    call: Any = route.call(task)
    return asyncio.run(call)


def test_a_call_is_a_task_that_knows_its_arguments() -> None:
    """With defaults; functions are called with them by name."""
    call = record.task(7)

    assert isinstance(call, Task)
    assert ("event:record", {"queue": "low"}) == (call.type, call.options)
    assert {"user_id": 7, "event": "login"} == call.arguments
    assert (7, "login") == call.apply(lambda *arguments: arguments)
    assert "login of 7" == call.apply(lambda user_id, event="": f"{event} of {user_id}")


def test_a_copy_of_a_call_is_a_call() -> None:
    """With other options, and the original unchanged."""
    call = record.task(7)
    copy = call.with_headers(tenant="a").with_options(queue="high")

    assert ({"user_id": 7, "event": "login"}, {"tenant": "a"}) == (copy.arguments, copy.headers)
    assert ({"queue": "high", "headers": {"tenant": "a"}}, {"queue": "low"}) == (copy.options, call.options)
    assert [TypedCall, Task] == [type(copy), type(Task("t").with_options(queue="a"))]


def test_a_stored_task_is_read_as_a_call_of_its_type_alone() -> None:
    """An argument that does not fit is an error at the first look, as in a handler."""
    assert {"user_id": 1, "event": "a"} == record.read_call(
        Task("event:record", b'{"user_id":1,"event":"a"}')
    ).arguments
    with pytest.raises(ConfigurationError, match="type 'other' is not a call of task 'event:record'"):
        record.read_call(other.task())
    wrong = record.read_call(Task("event:record", b'{"user":1}'))
    with pytest.raises(PayloadDecodingError, match="unknown 'user'"):
        wrong.apply(lambda user_id, event="": user_id)


@pytest.mark.parametrize("plain", [False, True])
def test_an_aggregator_of_a_typed_task_gets_calls(plain: bool) -> None:
    """A plain one stays plain, so that it runs in a thread; the decorated function stays what it was."""
    own = App()
    task = own.task("event:record")(record._declaration.function)

    def join(group: str, calls: list[Any]) -> Task:
        return Task(group, " ".join(call.arguments["event"] for call in calls).encode())

    async def join_async(group: str, calls: list[Any]) -> Task:
        return join(group, calls)

    function: Any = join if plain else join_async
    assert function is task.aggregator("user:*", max_size=5)(function)

    found = aggregator_of(own, "user:*")
    assert (plain, 5) == (found.plain, found.rule.max_size)
    made: Any = found.call("user:1", [Task("event:record", task.task(1, name).payload) for name in "ab"])
    if not plain:
        made = asyncio.run(made)
    assert ("user:1", b"a b") == (made.type, made.payload)


def test_a_group_of_mixed_types_is_an_error() -> None:
    """The tasks stay, since none may be left out of the aggregate unseen."""
    own = App()
    task = own.task("event:record")(record._declaration.function)

    def join(group: str, calls: list[Any]) -> None: ...

    task.aggregator()(join)
    with pytest.raises(ConfigurationError, match="type 'other'"):
        aggregator_of(own, "*").call("g", [Task("event:record"), Task("other")])


def test_wrong_aggregators_of_a_typed_task_are_refused() -> None:
    """Without parentheses, a function of one argument, and one of another rule."""
    own = App()
    task = own.task("event:record")(record._declaration.function)

    with pytest.raises(InvalidOptionError, match=r"write `@task.aggregator\(\)`"):
        task.aggregator(lambda group, calls: None)
    with pytest.raises(ConfigurationError, match="a function of a group's name and its calls"):
        task.aggregator("g")(lambda group: None)
    with pytest.raises(InvalidOptionError, match="max_size"):
        task.aggregator("g", max_size=-1)


def test_middleware_of_a_typed_task_gets_its_calls() -> None:
    """It is inside the middleware of the app, sees no other type, and may change headers."""
    seen: list[Any] = []
    own = App()
    task = own.task("event:record")(record._declaration.function)
    own.task("other")(other._declaration.function)

    @own.use
    async def outer(given: Task, call_next: CallNext) -> Any:
        seen.append(type(given))
        return await call_next(given)

    assert b'"1 a"' == run_route(own, task.task(1, "a"))

    async def check(call: TypedCall[[int, str], str], call_next: CallNext) -> Any:
        seen.append(call.arguments)
        return await call_next(call.with_headers(seen="yes"))

    task.options(queue="low").use(check)

    assert b'"1 a"' == run_route(own, Task("event:record", task.task(1, "a").payload))
    assert run_route(own, Task("other")) is None
    assert [TypedCall, Task, {"user_id": 1, "event": "a"}, Task] == seen


def test_wrong_middleware_of_a_typed_task_is_refused() -> None:
    """As that of an app."""
    with pytest.raises(ConfigurationError, match="must be `async def`, as in `async def m"):
        record.use(lambda call, call_next: None)  # type: ignore[arg-type, return-value]


def test_enqueue_many_takes_calls_of_its_own_task_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the options that they were made with; a call of another type is refused, the others are sent."""
    sent: list[Task] = []

    def enqueue_many(tasks: Any, *, on_error: str) -> list[Any]:
        sent.extend(tasks)
        return [None for _ in sent]

    own = App()
    task = own.task("event:record")(record._declaration.function)
    monkeypatch.setattr(own, "enqueue_many_sync", enqueue_many)
    calls: Any = [task.options(queue="high").task(1), other.task(), {"user_id": 2}]

    monkeypatch.setattr("pyasynq._app.typed_task.check_results", lambda results, on_error: results)
    results = task.enqueue_many_sync(calls)

    assert [{"queue": "high"}, {}] == [one.options for one in sent]
    assert [b'{"user_id":1,"event":"login"}', b'{"user_id":2,"event":"login"}'] == [
        one.payload for one in sent
    ]
    assert [True, False, True] == [one is None for one in results]
    assert "one of the calls is a task of type 'other'" in str(results[1].error)
