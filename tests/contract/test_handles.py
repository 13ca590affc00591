"""Handles that look and act, merged headers and options, and middleware of one task or queue."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import (
    App,
    CancelReason,
    ConfigurationError,
    InvalidOptionError,
    Task,
    TaskNotFoundError,
    TaskStateError,
    context,
)
from pyasynq.info import CancelStatus
from pyasynq.task import TaskState
from tests.fix_engine import serving
from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

LATER = datetime(2100, 1, 1, tzinfo=UTC)


@run_async
async def test_a_handle_looks_at_its_task_and_acts_on_it(redis_url: str) -> None:
    """State, description and progress are fresh; each act is that of the inspector."""
    async with App(redis_url) as app:

        @app.task("t")
        async def act() -> None: ...

        handle = await act.options(process_in=60).enqueue()
        assert TaskState.SCHEDULED is await handle.state()
        await handle.reschedule(LATER)
        assert LATER == (await handle.info()).next_process_at
        await handle.run_now()
        assert TaskState.PENDING is await act.handle(handle.id).state()
        assert TaskState.SCHEDULED is handle.enqueued.state
        assert None is await handle.progress()
        assert CancelStatus.NOT_ACTIVE is (await handle.cancel()).status
        with pytest.raises(TaskStateError):
            await handle.run_now()
        await handle.delete()
        with pytest.raises(TaskNotFoundError):
            await handle.info()
        async with app.inspector() as inspector:
            assert [] == await inspector.list_tasks("default", "pending")


def test_a_blocking_handle_does_the_same(redis_url: str) -> None:
    """The blocking handle is for threads and scripts."""
    app = App(redis_url)

    @app.task("t")
    def act() -> None: ...

    handle = act.options(process_in=60).enqueue_sync()
    assert TaskState.SCHEDULED is handle.state()
    handle.reschedule(LATER)
    assert LATER == handle.info().next_process_at
    handle.run_now()
    assert None is handle.progress()
    assert CancelStatus.NOT_ACTIVE is act.handle_sync(handle.id).cancel().status
    handle.delete()
    with pytest.raises(TaskNotFoundError):
        handle.state()
    with app.inspector_sync() as inspector:
        assert [] == inspector.list_tasks("default", "pending")
    app.close_sync()


def list_calls(handle: Any) -> list[Callable[[], Any]]:
    """Return a call of each method of a handle, blocking or not."""
    names = ("info", "state", "progress", "cancel", "delete", "run_now")
    calls = [getattr(handle, name) for name in names]
    return [*calls, partial(handle.reschedule, LATER), partial(handle.result, 0.1)]


@pytest.mark.parametrize("is_known_queue", [False, True])
@run_async
async def test_a_handle_of_an_unknown_task_says_that_the_task_is_missing(
    redis_url: str, is_known_queue: bool
) -> None:
    """Also if the queue has never had a task."""
    async with App(redis_url) as app:

        @app.task("t")
        async def act() -> None: ...

        if is_known_queue:
            await act.enqueue()
        handle = act.handle("unknown")
        for call in list_calls(handle):
            with pytest.raises(TaskNotFoundError, match="cannot find task with id=unknown"):
                await call()


@pytest.mark.parametrize("is_known_queue", [False, True])
def test_a_blocking_handle_of_an_unknown_task_says_so_too(redis_url: str, is_known_queue: bool) -> None:
    """Each method raises the same error."""
    app = App(redis_url)

    @app.task("t")
    def act() -> None: ...

    if is_known_queue:
        act.enqueue_sync()
    handle = act.handle_sync("unknown")
    for call in list_calls(handle):
        with pytest.raises(TaskNotFoundError, match="cannot find task with id=unknown"):
            call()
    app.close_sync()


@run_async
async def test_a_handle_cancels_what_runs(redis_url: str) -> None:
    """And waits for its end; the handler is told why."""
    app = App(redis_url)
    seen: list[CancelReason | None] = []

    @app.task("t")
    async def wait() -> None:
        context().progress(1, 2)
        try:
            await asyncio.sleep(3_600)
        finally:
            seen.append(context().cancelled.reason)

    async with serving(redis_url, app) as running:
        handle = await wait.enqueue()
        while await handle.state() is not TaskState.ACTIVE:
            await running.next_round("heartbeater")
        result = await handle.cancel("archive", wait=20)
        assert CancelStatus.ENDED is result.status
    assert TaskState.ARCHIVED is await handle.state()
    assert [CancelReason.CANCEL] == seen
    await app.close()


def test_a_kit_lends_its_clock_to_handles() -> None:
    """They look at the test's database, in its time."""
    app = make_app()

    @app.task("t")
    def act() -> None: ...

    with sound_kit(app) as kit:
        handle = act.options(process_in=60).enqueue_sync()
        assert kit.now + timedelta(seconds=60) == handle.info().next_process_at


def test_headers_and_options_of_a_typed_task_are_merged() -> None:
    """Later ones win, name by name; the declared task stays as it is."""
    app = App()

    @app.task("t", headers={"a": "1", "b": "1"}, max_retry=3)
    def act() -> None: ...

    changed = act.with_headers({"b": "2"}, c="2").with_options(queue="low").with_headers(d="3")

    assert {"a": "1", "b": "2", "c": "2", "d": "3"} == changed.declared_options["headers"]
    assert ("low", 3) == (changed.declared_options["queue"], changed.declared_options["max_retry"])
    assert {"a": "1", "b": "1"} == act.declared_options["headers"]
    with pytest.raises(InvalidOptionError, match="headers"):
        act.with_headers({"x": 3})  # type: ignore[dict-item]


def named(name: str, seen: list[str]) -> Callable[[Task, Any], Any]:
    """Return middleware that says that it was called."""

    async def middleware(task: Task, call_next: Any) -> Any:
        seen.append(name)
        return await call_next(task)

    return middleware


def test_middleware_of_a_task_is_inside_that_of_its_queue_and_of_the_app() -> None:
    """In the order in which it was added; tasks of other types and queues have none of it."""
    app = make_app()
    seen: list[str] = []
    app.use(named("app", seen))
    app.use(named("queue", seen), queues=["mail"])

    @app.task("t", queue="mail", middleware=[named("outer", seen), named("inner", seen)])
    def act() -> None:
        seen.append("run")

    @app.task("other")
    def other() -> None:
        seen.append("run other")

    with sound_kit(app) as kit:
        act.enqueue_sync()
        kit.drain_sync()
        other.enqueue_sync()
        kit.drain_sync()

    assert ["app", "queue", "outer", "inner", "run", "app", "run other"] == seen


def test_middleware_that_cannot_be_is_refused_at_the_declaration() -> None:
    """As that of the app; one name of a queue is not several."""
    app = App()
    with pytest.raises(ConfigurationError, match="must be `async def`"):
        app.task("t", middleware=[lambda task: None])  # type: ignore[list-item, misc]
    with pytest.raises(InvalidOptionError, match="queues"):
        app.use(named("m", []), queues="mail")


@pytest.mark.parametrize("word", ["apply_async", "configure", "kicker", "schedule"])
def test_words_of_other_libraries_are_answered_with_options_that_exist(word: str) -> None:
    """The advice can be typed as it stands."""
    app = App()

    @app.task("t")
    def act() -> None: ...

    with pytest.raises(AttributeError, match="process_in=") as caught:
        getattr(act, word)
    assert "delay=" not in str(caught.value)
