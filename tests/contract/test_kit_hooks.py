"""Hooks of an app under test: the kit's worker calls them, and their errors are seen."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq import App, AttemptEnd


def failing_app() -> App:
    """Return an app whose task `fail` is archived at once."""
    app = make_app()

    @app.task("fail", max_retry=0)
    async def fail() -> None:
        raise ValueError("no")

    return app


def test_hooks_are_called_before_a_drain_returns() -> None:
    """Coroutines and plain functions; the latter in the thread of the test, as plain handlers are."""
    app, called = failing_app(), []

    @app.on_error
    async def on_error(end: AttemptEnd) -> None:
        called.append(("error", end.task_type, str(end.error)))

    @app.on_archived
    def on_archived(end: AttemptEnd) -> None:
        called.append(("archived", end.task_type, threading.current_thread().name))

    with sound_kit(app) as kit:
        app.tasks["fail"].enqueue_sync()
        kit.drain_sync(raises=False)

    assert ["error", "archived"] == [kind for kind, *_ in called]
    assert [("error", "fail", "no"), ("archived", "fail", threading.current_thread().name)] == called


@run_async
async def test_hooks_are_called_in_a_coroutine_too() -> None:
    """Also when one task is performed."""
    app, called = make_app(), []

    @app.task("sum")
    async def add(one: int, other: int) -> int:
        return one + other

    @app.on_success
    def on_success(end: AttemptEnd) -> None:
        called.append(end.task_type)

    with sound_kit(app) as kit:
        attempt = await kit.perform(add, one=1, other=2)

    assert (3, ["sum"]) == (attempt.result, called)


def test_what_a_hook_enqueues_runs_in_the_same_drain() -> None:
    """Hooks are part of the work that is due."""
    app, told = failing_app(), []

    @app.task("tell")
    async def tell(what: str) -> None:
        told.append(what)

    @app.on_error
    async def on_error(end: AttemptEnd) -> None:
        await tell.enqueue(end.task_type)

    with sound_kit(app) as kit:
        app.tasks["fail"].enqueue_sync()
        kit.drain_sync(raises=False)

    assert ["fail"] == told


def test_an_error_of_a_hook_is_raised() -> None:
    """A worker only logs it."""
    app = make_app()

    @app.task("succeed")
    async def succeed() -> None: ...

    @app.on_success
    async def on_success(end: AttemptEnd) -> None:
        raise LookupError(end.task_type)

    with sound_kit(app) as kit:
        succeed.enqueue_sync()
        with pytest.raises(LookupError, match="succeed"):
            kit.drain_sync()


def test_hooks_of_the_worker_are_called_around_each_call() -> None:
    """The kit's worker lives as long as a drain, and so does the lifespan."""
    app, called = make_app(), []
    app.on_worker_start(lambda: called.append("start"))
    app.on_worker_stop(lambda: called.append("stop"))

    with sound_kit(app) as kit:
        kit.drain_sync()
        kit.advance_sync(seconds=5)

    assert ["start", "stop"] * 2 == called
