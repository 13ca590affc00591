"""Outcomes that handlers return or raise for their tasks, in every kind of handler, on a real Redis."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, Archive, Cancel, Control, Mux, Retry, Snooze, Task
from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.events import Outcome
from pyasynq.inspector import Inspector
from tests.fix_engine import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import redis

    from pyasynq.task import TaskInfo
    from tests.factories import Tasks

CONTROLS: dict[str, Callable[[], Control]] = {
    "snooze": lambda: Snooze(timedelta(minutes=10)),
    "retry": lambda: Retry(after=600, spend=False),
    "archive": lambda: Archive("no such user"),
    "cancel": lambda: Cancel("not wanted"),
}
STATES = {"snooze": b"retry", "retry": b"retry", "archive": b"archived", "cancel": None}


def mux_with(kind: str, returned: bool, middleware: bool, seen: list[object]) -> Mux:
    """Return a mux whose handler asks for what the type says."""
    mux = Mux()

    def choose(task: Task) -> Control:
        control = CONTROLS[task.type]()
        if returned:
            return control
        raise control

    async def choose_async(task: Task) -> Control:
        return choose(task)

    for task_type in CONTROLS:
        mux.handle(task_type, choose if kind == "plain" else choose_async)

    async def note(task: Task, call_next: Callable[[Task], Awaitable[Any]]) -> Any:
        try:
            return seen.append(await call_next(task))
        except Exception as error:
            seen.append(type(error))
            raise

    if middleware:
        mux.use(note)
    return mux


@pytest.mark.parametrize("middleware", [False, True])
@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("kind", ["plain", "async"])
@run_async
async def test_returned_and_raised_are_the_same_in_every_handler(
    redis_url: str, tasks: Tasks, kind: str, returned: bool, middleware: bool
) -> None:
    """Middleware gets them raised, in any case."""
    seen: list[object] = []
    async with serving(redis_url, mux_with(kind, returned, middleware, seen)) as running:
        for task_type in CONTROLS:
            await running.client.enqueue(task_type, task_id=task_type, retention=60, max_retry=0)
        outcomes = {name: (await running.finished(name)).outcome for name in CONTROLS}
        await running.settled()
    assert STATES == {name: tasks.fields(name).get("state") for name in CONTROLS}
    assert outcomes == {
        "snooze": Outcome.SNOOZED,
        "retry": Outcome.RETRIED,
        "archive": Outcome.ARCHIVED,
        "cancel": Outcome.REVOKED,
    }
    assert ({Snooze, Retry, Archive, Cancel} if middleware else set()) == set(seen)


@run_async
async def test_middleware_may_choose_the_outcome_of_a_task(redis_url: str, tasks: Tasks) -> None:
    """By what it returns; what stands further out gets it raised."""
    mux, seen = Mux(), []

    @mux.handler("t")
    async def handle(task: Task) -> None:
        del task

    @mux.middleware
    async def outer(task: Task, call_next: Callable[[Task], Awaitable[Any]]) -> Any:
        try:
            return await call_next(task)
        except Archive as control:
            seen.append(control.reason)
            return Snooze(600)

    @mux.middleware
    async def inner(task: Task, call_next: Callable[[Task], Awaitable[Any]]) -> Any:
        await call_next(task)
        return Archive("by middleware")

    async with serving(redis_url, mux) as running:
        await running.client.enqueue("t", task_id="a")
        assert Outcome.SNOOZED is (await running.finished("a")).outcome
        await running.settled()
    assert ["by middleware"] == seen
    assert ["a"] == tasks.ids("retry")


@run_async
async def test_typed_handlers_ask_in_the_same_way(redis_url: str, tasks: Tasks) -> None:
    """Returned in place of a result, or raised; also a class without its parentheses."""
    app = App(redis_url)

    @app.task("returns", retention=60)
    async def returns(name: str) -> str | Snooze | Archive | type[Cancel]:
        return {"a": Snooze(600), "b": Archive("no"), "c": Cancel, "d": "result"}[name]  # type: ignore[return-value]

    @app.task("raises", retention=60)
    def raises(name: str) -> str:
        raise {"e": Snooze(600), "f": Archive("no")}[name]

    async with serving(redis_url, app) as running:
        for name in "abcd":
            await returns.options(task_id=name).enqueue(name)
        for name in "ef":
            await raises.options(task_id=name).enqueue(name)
        for name in "abcdef":
            await running.finished(name)
        await running.settled()
    await app.close()
    states = [tasks.fields(name).get("state") for name in "abcdef"]
    assert [b"retry", b"archived", None, b"completed", b"retry", b"archived"] == states
    assert b'"result"' == tasks.fields("d")["result"]


@run_async
async def test_a_class_that_needs_an_argument_fails_the_task(redis_url: str, tasks: Tasks) -> None:
    """The error of the task names the missing argument."""

    async def handle(task: Task) -> Any:
        del task
        return Snooze

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        assert Outcome.RETRIED is (await running.finished("a")).outcome
        await running.settled()
    assert "missing 1 required positional argument: 'delay'" in error_of(tasks)


def error_of(tasks: Tasks) -> str:
    """Return the error that the message of `a` holds."""
    return decode_task_message(tasks.fields("a")["msg"]).error_msg


@run_async
async def test_a_snoozed_task_runs_again_as_if_it_were_the_first_time(
    redis_url: str, redis_client: redis.Redis, tasks: Tasks
) -> None:
    """Three times, without a retry to spend; only the last run counts."""
    runs = []

    async def handle(task: Task) -> Snooze | None:
        runs.append(task.type)
        return Snooze(0) if len(runs) < 4 else None

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a", max_retry=0)
        await running.recorder.wait(
            type(await running.finished("a")), lambda event: event.outcome is Outcome.SUCCEEDED
        )
        await running.settled()
    assert 4 == len(runs)
    assert {} == tasks.fields("a")
    assert (b"1", None) == (redis_client.get(tasks.keys.processed), redis_client.get(tasks.keys.failed))


@run_async
async def test_what_was_caught_is_the_error_of_a_retry(redis_url: str, tasks: Tasks) -> None:
    """With its place and traceback; `Retry` only says when."""

    async def handle(task: Task) -> None:
        del task
        try:
            raise ConnectionError("429")
        except ConnectionError as error:
            raise Retry(after=600, spend=False) from error

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        await running.settled()
    assert error_of(tasks).startswith("ConnectionError: 429 [test_server_control.py:")
    assert b"Retry" not in tasks.fields("a")["x:trace"]


@pytest.mark.parametrize("raised", [False, True])
@run_async
async def test_the_reason_is_the_error_of_an_archived_task(
    redis_url: str, tasks: Tasks, raised: bool
) -> None:
    """Word for word; the traceback tells where, if there is a where."""

    async def handle(task: Task) -> Archive:
        del task
        if raised:
            raise ValueError("wrapped") from Archive("no such user \ud800")
        return Archive("no such user \ud800")

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        await running.settled()
    assert "no such user ?" == error_of(tasks)
    assert raised is ("x:trace" in tasks.fields("a"))


@run_async
async def test_the_error_handler_hears_of_failures_alone(redis_url: str) -> None:
    """A snooze or a cancel is none."""
    told: list[type[BaseException]] = []
    config = ServerConfig(error_handler=lambda task, error: told.append(type(error)))
    async with serving(redis_url, mux_with("async", True, False, []), config) as running:
        for task_type in CONTROLS:
            await running.client.enqueue(task_type, task_id=task_type)
            await running.finished(task_type)
        await running.settled()
    assert [Retry, Archive] == told


@run_async
async def test_nothing_is_logged_of_a_snooze(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is an ordinary day."""
    caplog.set_level(logging.INFO, "pyasynq")
    async with serving(redis_url, mux_with("async", False, False, [])) as running:
        await running.client.enqueue("snooze", task_id="a")
        await running.finished("a")
        await running.settled()
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


async def described(url: str, task_id: str = "a") -> TaskInfo:
    """Return what the inspector says of a task."""
    async with Inspector(url) as inspector:
        return await inspector.task_info("default", task_id)


@run_async
async def test_the_inspector_tells_of_each_attempt_that_did_not_succeed(redis_url: str) -> None:
    """The attempt has its time, server, outcome and the start of the error; a kept success keeps them."""
    runs = []

    async def handle(task: Task) -> Snooze | str:
        runs.append(task)
        if len(runs) == 1:
            raise ValueError("broken " + "x" * 500)
        return Snooze(0) if len(runs) == 2 else "done"

    config = ServerConfig(retry_delay=lambda retried, error, task: 0)
    async with serving(redis_url, handle, config) as running:
        await running.client.enqueue("t", task_id="a", retention=60)
        finished = type(await running.finished("a"))
        await running.recorder.wait(finished, lambda event: event.outcome is Outcome.SUCCEEDED)
        await running.settled()
        engine = running.server._engine
        assert engine is not None
        server_id = engine.server_id
    first, second = (await described(redis_url)).attempts
    assert ("retried", "snoozed") == (first.outcome, second.outcome)
    assert first.error.startswith("ValueError: broken xxx")
    assert 200 == len(first.error)
    assert "snoozed for 0 s" == second.error
    assert server_id == first.server_id == second.server_id
    assert first.started_at is not None
    assert first.started_at <= first.ended_at


@run_async
async def test_an_attempt_that_was_not_made_is_not_told_of(redis_url: str) -> None:
    """A type without a handler, left to other servers."""
    async with serving(redis_url, Mux(), ServerConfig(on_unknown="return")) as running:
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        await running.settled()
    assert () == (await described(redis_url)).attempts
