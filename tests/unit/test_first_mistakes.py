"""Mistakes of people who see the library for the first time: each error names the remedy."""

from __future__ import annotations

import asyncio
import inspect
import sys
import tomllib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import pytest

from pyasynq import (
    App,
    ArgumentsError,
    ConfigurationError,
    InvalidOptionError,
    Queue,
    ServerConfig,
    Task,
    UnknownOptionError,
    WorkerConfig,
    depends,
)
from pyasynq.cli.worker_settings import read_file
from pyasynq.config import GroupRule, SchedulerConfig
from pyasynq.embedded import DataFolderError, EmbeddedServerError, ServerBinaryError, ServerStartError
from pyasynq.errors import UnknownAnnotationError
from pyasynq.testing import use

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


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


async def start(app: Any) -> None:
    """Forget to yield."""


def start_plainly(app: Any) -> Iterator[None]:
    """Forget `async`."""
    yield


@pytest.mark.parametrize(
    ("lifespan", "remedy"),
    [
        (start, "lifespan 'start' has no `yield`: yield once, .* @asynccontextmanager"),
        (start_plainly, "lifespan 'start_plainly' is a plain generator: make it `async def`"),
    ],
)
def test_a_lifespan_that_cannot_be_entered_is_refused_by_the_app(lifespan: Any, remedy: str) -> None:
    """The worker would fail at its start, with a long traceback."""
    with pytest.raises(ConfigurationError, match=remedy):
        App(lifespan=lifespan)


def sweep() -> None:
    """Do nothing."""


@pytest.mark.parametrize("spec", [10, sweep])
def test_cron_without_an_expression_names_one(spec: Any) -> None:
    """Both as a decorator without parentheses, and with a number."""
    with pytest.raises(InvalidOptionError, match=r'spec=.*: must be a cron expression, as in @app.cron\("'):
        App().cron(spec)
    with pytest.raises(InvalidOptionError, match=r"spec=.*: must be a cron expression"):
        App().schedule(spec, Task("t"))


def test_a_number_as_the_name_of_a_task_is_refused_with_an_example() -> None:
    """The number may have been meant for an option."""
    with pytest.raises(InvalidOptionError, match=r"name=5: must be the task's type, as in @app\.task\('"):
        App().task(5)  # type: ignore[call-overload]


def test_a_retry_delay_has_to_take_three_arguments() -> None:
    """Otherwise each retry would log an error and use the default."""
    remedy = "retry_delay=.*: must take three arguments, as in `lambda retried, error, task: 60`"
    with pytest.raises(InvalidOptionError, match=remedy):
        App().task("t", retry_delay=lambda _: 3)(sweep)  # type: ignore[call-overload]
    with pytest.raises(InvalidOptionError, match=remedy):
        ServerConfig(retry_delay=lambda _: 3)  # type: ignore[arg-type]


class Depends:
    """The marker of FastAPI."""


@pytest.mark.parametrize("is_annotated", [False, True])
def test_a_dependency_of_another_library_is_told_our_name(is_annotated: bool) -> None:
    """Its class has the name that FastAPI and FastDepends use."""
    marker: Any = Depends()

    def read(session: int = marker) -> None: ...

    def read_annotated(session: Annotated[Depends, marker]) -> None: ...

    read_annotated.__annotations__ = {"session": Annotated[Depends, marker]}
    with pytest.raises(ConfigurationError, match=r"'session' is a dependency of another .* pyasynq\.depends"):
        App().task("t")(read_annotated if is_annotated else read)


@dataclass
class Card:
    """One of two classes that look the same."""

    number: str


@dataclass
class Invoice:
    """The other one."""

    number: str


def test_a_union_of_classes_names_the_field_that_tells_them_apart() -> None:
    """A tag is the documented way; for other types one has to choose."""

    def pay(by: Card | Invoice) -> None: ...

    def collect(items: list[int] | set[int]) -> None: ...

    with pytest.raises(ConfigurationError, match=r"give each a field .*, such as `kind: Literal"):
        App().task("t")(pay)
    with pytest.raises(ConfigurationError, match="use one of them"):
        App().task("t")(collect)


def none() -> Iterator[int]:
    """Yield nothing."""
    yield from ()


def two() -> Iterator[int]:
    """Yield too often."""
    yield 1
    yield 2


async def none_async() -> AsyncIterator[int]:
    """Yield nothing."""
    for one in list[int]():
        yield one


async def two_async() -> AsyncIterator[int]:
    """Yield too often."""
    yield 1
    yield 2


@pytest.mark.parametrize("provider", [none, two, none_async, two_async])
def test_a_provider_that_does_not_yield_once_is_named(provider: Any) -> None:
    """The error of contextlib does not say whose generator it was."""

    async def read(value: int = depends(provider)) -> None: ...

    how = "does not yield" if "none" in provider.__name__ else "yields more than once"
    task = App().task("t")(read)
    with pytest.raises(ConfigurationError, match=f"provider '{provider.__name__}' {how}: .* yields once"):
        asyncio.run(task())


def test_a_provider_of_a_direct_call_that_does_not_yield_once_is_named() -> None:
    """Plain handlers enter their providers in the same way."""

    def read(value: int = depends(two)) -> None: ...

    with pytest.raises(ConfigurationError, match="provider 'two' yields more than once"):
        App().task("t")(read)()


def test_a_provider_with_a_bare_parameter_is_told_to_give_it_a_default() -> None:
    """Dependencies and contexts alone can be passed."""

    def connect(host: str) -> str:
        return host

    def read(connection: str = depends(connect)) -> None: ...

    with pytest.raises(ConfigurationError, match=r"'host', which is neither .*: give it a default"):
        App().task("t")(read)


def test_middleware_that_is_not_async_is_named() -> None:
    """The remedy is one word."""

    def watch(task: Any, call_next: Any) -> Any: ...

    with pytest.raises(ConfigurationError, match=r"middleware '.*watch' must be `async def`"):
        App().use(watch)


@pytest.mark.parametrize("url", ["redis://localhost:99999/0", "redis-cluster://localhost:99999"])
def test_a_port_out_of_range_is_told_the_range(url: str) -> None:
    """A remedy about special characters alone would mislead."""
    with pytest.raises(ConfigurationError, match=r"malformed .* port: a port is a number from 1 to 65535"):
        App(url)


def open_session() -> int:
    """Return what a handler depends on."""
    return 1


def test_a_dependency_in_a_call_is_told_who_passes_it() -> None:
    """By name or by position."""

    def read(number: int, session: int = depends(open_session)) -> None: ...

    def write(
        number: int, session: int = depends(open_session), *, other: int = depends(open_session)
    ) -> None: ...

    app = App()
    task, two_dependencies = app.task("t")(read), app.task("w")(write)
    with pytest.raises(ArgumentsError, match="task 't': 'session' is a dependency, which the worker passes"):
        task.task(1, session=3)
    with pytest.raises(ArgumentsError, match="too many positional arguments: 'session' is a dependency"):
        task.task(1, 3)
    with pytest.raises(ArgumentsError, match="'session' and 'other' are dependencies, which the worker"):
        two_dependencies.task(1, 3)
    with pytest.raises(ArgumentsError, match=r"missing a required argument: 'number'$"):
        task.task()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "error",
    [UnknownAnnotationError, DataFolderError, EmbeddedServerError, ServerBinaryError, ServerStartError],
)
def test_a_traceback_names_the_module_that_an_error_is_imported_from(error: type) -> None:
    """Not the file in which its class is."""
    assert getattr(sys.modules[error.__module__], error.__name__) is error
    assert "._" not in error.__module__


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
