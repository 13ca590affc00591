"""The state of an app: what its lifespan yields, in handlers, hooks and tests."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, ServerConfig, ServerStateError, WorkerConfig
from pyasynq.testing import task_context
from tests.fix_kit import make_app, sound_kit
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@asynccontextmanager
async def open_pool(_app: App) -> AsyncGenerator[dict[str, int], None]:
    """Stands for a pool of connections."""
    yield {"size": 10}


def check_no_state(app: App) -> None:
    """Raise unless reading the state is an error."""
    with pytest.raises(ServerStateError, match="no worker of this app runs in this process"):
        _ = app.state


@pytest.mark.parametrize("plain", [False, True])
def test_a_handler_reads_what_the_lifespan_yields(plain: bool) -> None:
    """In a coroutine and in a thread; not before, and not afterwards."""
    app = make_app(lifespan=open_pool)

    def act() -> int:
        return int(app.state["size"])

    async def act_async() -> int:
        return act()

    task: Any = app.task("t")(act if plain else act_async)
    check_no_state(app)
    with sound_kit(app) as kit:
        task.enqueue_sync()
        assert [10] == [attempt.result for attempt in kit.drain_sync()]
        check_no_state(app)


def test_an_app_without_a_lifespan_has_none() -> None:
    """As `context().state`."""
    app = make_app()
    seen: list[object] = []
    task: Any = app.task("t")(lambda: seen.append(app.state))
    with sound_kit(app) as kit:
        task.enqueue_sync()
        kit.drain_sync()
    assert [None] == seen


@run_async
async def test_a_worker_has_the_state_from_its_first_hook_to_its_last(redis_url: str) -> None:
    """Also in hooks for ends of attempts."""
    app = App(redis_url, lifespan=open_pool)
    seen: list[tuple[str, int]] = []
    app.on_worker_start(lambda: seen.append(("start", app.state["size"])))
    app.on_worker_stop(lambda: seen.append(("stop", app.state["size"])))

    @app.task("t")
    async def act() -> None:
        seen.append(("handler", app.state["size"]))

    await act.enqueue()
    assert 0 == await app.server(ServerConfig(burst=True)).run(app, signals=False)

    assert [("start", 10), ("handler", 10), ("stop", 10)] == seen
    check_no_state(app)


def test_a_test_gives_a_state_without_a_worker() -> None:
    """A handler that is called as a function reads it."""
    app = make_app(lifespan=open_pool)

    @app.task("t")
    def act() -> int:
        return int(app.state["size"])

    with task_context(state={"size": 3}):
        assert 3 == act()


@run_async
async def test_a_worker_in_a_program_runs_the_scheduler_of_its_settings(redis_url: str) -> None:
    """Only a tick of the scheduler enqueues the one task after which this worker ends."""
    app = App(redis_url, worker=WorkerConfig(with_scheduler=True, max_tasks=1))
    ran: list[int] = []
    app.cron("@every 1s")(app.task("tick")(lambda: ran.append(1)))
    assert 0 == await app.server().run(app, signals=False)
    assert [1] == ran
