"""Mistakes of people who see the library for the first time: each error names the remedy."""

from __future__ import annotations

import inspect
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from pyasynq import (
    App,
    ArgumentsError,
    ConfigurationError,
    InvalidOptionError,
    Queue,
    ServerConfig,
    UnknownOptionError,
    WorkerConfig,
    depends,
)
from pyasynq.cli.worker_settings import read_file
from pyasynq.config import GroupRule, SchedulerConfig
from pyasynq.testing import use


def test_a_task_that_cron_has_declared_below_is_told_the_order() -> None:
    """`@app.cron` alone declares a task, so `@app.task` above it would declare a second one."""
    app = App()

    def sweep() -> None: ...

    declared = app.cron("@hourly")(sweep_named := app.task("sweep")(sweep))
    assert declared is sweep_named
    with pytest.raises(ConfigurationError, match=r"'sweep' is declared already: .* below @app.cron"):
        app.task("again")(declared)


def test_a_schedule_without_arguments_names_the_call_that_takes_them() -> None:
    """`cron` has no place for arguments."""
    app = App()

    def report(user_id: int) -> None: ...

    with pytest.raises(ArgumentsError, match=r"'user_id'; .* app\.schedule\('@hourly', handler\.task"):
        app.cron("@hourly")(app.task("report")(report))


def test_middleware_of_a_task_is_a_list() -> None:
    """One function is not."""

    async def middleware(task: Any, call_next: Any) -> Any:
        return await call_next(task)

    with pytest.raises(InvalidOptionError, match=r"give a list, as in middleware=\[m\]"):
        App().task("t", middleware=middleware)  # type: ignore[call-overload]


def test_a_provider_that_was_called_is_refused_with_the_remedy() -> None:
    """`depends` calls it itself."""
    with pytest.raises(InvalidOptionError, match="give it without calling it"):
        depends(3)  # type: ignore[call-overload]


def test_only_a_provider_of_the_app_can_be_overridden() -> None:
    """Otherwise a misspelt override would leave the real one in place."""
    app = App("redis://production")

    def open_pool() -> int:
        return 1

    def begin(pool: int = depends(open_pool)) -> int:
        return pool

    def close() -> int:
        return 0

    @app.task("t")
    def read(session: int = depends(begin)) -> int:
        return session

    with use(app) as kit:
        kit.override(open_pool, 5)
        assert 5 == kit.perform_sync(read).result
        with pytest.raises(ConfigurationError, match=r"no task of the app depends on '.*close'"):
            kit.override(close, 5)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ('redis = "redis://host"', "or set PYASYNQ_REDIS_URL"),
        ("[queues]\nmail = {wieght = 3}", "did you mean 'weight'?"),
        ("[queues]\nmail = {xyz = 3}", "there are weight, "),
    ],
)
def test_a_wrong_line_of_a_file_names_the_remedy(text: str, remedy: str) -> None:
    """As far as the name tells what was meant."""
    with pytest.raises(click.UsageError) as raised:
        read_file(Path("worker.toml"), tomllib.loads(text))
    assert remedy in raised.value.message


class Shop(App):
    """An app with a constructor of its own."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)


@pytest.mark.parametrize(
    ("build", "name", "message"),
    [
        (Queue, "concurrency", "Queue has no option 'concurrency'; did you mean 'max_run'?"),
        (Queue, "weight", "Queue has no option 'weight'; did you mean 'priority'?"),
        (Queue, "xyz", "Queue has no option 'xyz'; the options are burst, max_run, ordered, "),
        (WorkerConfig, "proceses", "WorkerConfig has no option 'proceses'; did you mean 'processes'?"),
        (ServerConfig, "concurency", "ServerConfig has no option 'concurency'; did you mean 'concurrency'?"),
        (ServerConfig, "xyz", "ServerConfig has no option 'xyz'; help(ServerConfig) lists them"),
        (partial(replace, WorkerConfig()), "lgging", "WorkerConfig has no option 'lgging'; did you mean "),
        (SchedulerConfig, "zone", "SchedulerConfig has no option 'zone'; the options are "),
        (GroupRule, "max_sise", "GroupRule has no option 'max_sise'; did you mean 'max_size'?"),
        (App, "concurrency", "App has no option 'concurrency'; write worker=WorkerConfig(concurrency=...)"),
        (App, "location", "App has no option 'location'; write scheduler_config=SchedulerConfig(location"),
        (Shop, "lifespam", "App has no option 'lifespam'; did you mean "),
        (App().task, "concurrency", "there is no option 'concurrency'; did you mean 'max_run'?"),
    ],
)
def test_a_misspelt_argument_is_suggested(build: Any, name: str, message: str) -> None:
    """Also the names of other libraries, and settings that another object takes."""
    with pytest.raises(UnknownOptionError) as raised:
        build(**{name: 3})
    assert str(raised.value).startswith(message)


def test_another_wrong_call_of_a_constructor_keeps_its_error() -> None:
    """Python's own says what is wrong, and so does the error of a value."""
    with pytest.raises(TypeError, match="positional argument"):
        App("redis://a", "redis://b")  # type: ignore[call-arg]
    with pytest.raises(InvalidOptionError, match="max_run=0"):
        Queue(max_run=0)
    assert "max_run" in inspect.signature(Queue).parameters


@pytest.mark.parametrize(
    "name", ["on_error", "on_retry", "on_archived", "on_success", "on_worker_start", "on_worker_stop"]
)
def test_a_hook_is_declared_without_parentheses(name: str) -> None:
    """`@app.on_error()` calls the method without a hook."""
    with pytest.raises(ConfigurationError, match=rf"write @app\.{name} above the hook, without parentheses"):
        getattr(App(), name)()
