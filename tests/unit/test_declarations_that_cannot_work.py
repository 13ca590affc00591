"""Declarations that cannot work are refused at once, in words that say what to write."""

from __future__ import annotations

import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from pyasynq import App, Client, Mux, Server, WorkerConfig, sync
from pyasynq._call_shape import takes
from pyasynq.cli import main
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

URL = "redis://localhost:6379/0"


@asynccontextmanager
async def without_app() -> AsyncIterator[None]:
    """A lifespan that takes nothing."""
    yield


@asynccontextmanager
async def with_app(app: App) -> AsyncIterator[None]:
    """A lifespan that takes the app."""
    yield


def test_a_lifespan_without_a_parameter_is_refused_with_what_to_write() -> None:
    """An app's takes the app. (D38)"""
    with pytest.raises(
        ConfigurationError, match=r"lifespan 'without_app' must take one argument, the app: `async def"
    ):
        App(URL, lifespan=without_app)  # type: ignore[arg-type]
    App(URL, lifespan=with_app)


def test_a_lifespan_of_a_server_takes_nothing() -> None:
    """Only that of an app does. (D38)"""
    with pytest.raises(ConfigurationError, match="lifespan 'with_app' of a Server must take no argument"):
        Server(URL, lifespan=with_app)  # type: ignore[arg-type]
    Server(URL, lifespan=without_app)
    Server(URL, lifespan=partial(with_app, App(URL)))


async def one_argument(task: Any) -> None:
    """Middleware that forgets the next call."""


async def three_arguments(task: Any, call_next: Any, extra: Any) -> None:
    """Middleware that wants too much."""


@pytest.mark.parametrize("middleware", [one_argument, three_arguments])
@pytest.mark.parametrize(
    "use",
    [
        lambda one: App(URL, middleware=[one]),
        lambda one: App(URL).use(one),
        lambda one: Mux().use(one),
        lambda one: App(URL, client_middleware=[one]),
        lambda one: App(URL).use_client(one),
        lambda one: Client(URL, middleware=[one]),
        lambda one: Client(URL).use(one),
        lambda one: sync.Client(URL).use(one),
    ],
)
def test_middleware_of_the_wrong_arity_is_refused_at_the_declaration(
    use: Callable[[Any], object], middleware: Any
) -> None:
    """It would fail every task. (D38)"""
    with pytest.raises(ConfigurationError, match=r"`async def m\(task, call_next\)`, and '.*' does not take"):
        use(middleware)


def test_a_class_method_is_refused_with_what_to_write() -> None:
    """An object that is not a function is refused too. (D38)"""
    app = App(URL)
    with pytest.raises(ConfigurationError, match=r"Shop.deliver' is a classmethod, .* declare a function"):

        class Shop:
            @app.task("deliver")
            @classmethod
            def deliver(cls) -> None: ...

    with pytest.raises(ConfigurationError, match=r"a task is a function, and this is a int: write @app.task"):
        app.task("five")(5)  # type: ignore[call-overload]


def test_what_does_not_tell_its_parameters_is_taken() -> None:
    """Some functions of C have no signature."""
    assert takes(dict.fromkeys, 1)
    assert takes(type, 7)


# Words of other libraries.


@pytest.mark.parametrize("word", ["delay", "send", "kiq", "defer"])
def test_words_of_other_libraries_are_answered_with_ours(word: str) -> None:
    """Still as an `AttributeError`, so that `hasattr` says no. (D39)"""
    app = App(URL)

    @app.task("email:deliver")
    async def deliver(user_id: int) -> None: ...

    assert not hasattr(deliver, word)
    with pytest.raises(
        AttributeError,
        match=rf"no attribute '{word}': write `await deliver\.enqueue\(\.\.\.\)`, or `deliver\.enqueue_sync",
    ) as caught:
        getattr(deliver, word)(1)
    assert (word, deliver) == (caught.value.name, caught.value.obj)


def test_options_have_their_word_too() -> None:
    """Celery's `apply_async` takes them; anything else is an ordinary error. (D39)"""
    app = App(URL)

    @app.task("email:deliver")
    def deliver(user_id: int) -> None: ...

    with pytest.raises(AttributeError, match=r"write `await deliver\.options\(process_in=\.\.\.\)\.enqueue"):
        getattr(deliver, "apply_async")  # noqa: B009 - type checkers know that there is none
    with pytest.raises(AttributeError, match=r"no attribute 'nonsense'$"):
        getattr(deliver, "nonsense")  # noqa: B009 - as above


# The command line.


def test_ping_without_a_url_says_how_to_give_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows of no app. (D38)"""
    monkeypatch.delenv("PYASYNQ_REDIS_URL", raising=False)
    result = CliRunner().invoke(main, ["ping"])
    assert 2 == result.exit_code
    assert "which Redis? Give --redis redis://localhost:6379/0" in result.stderr
    assert "MODULE:APP" not in result.stderr


def test_python_m_pyasynq_is_the_command() -> None:
    """Its short option for the version works too. (D38)"""
    done = subprocess.run([sys.executable, "-m", "pyasynq", "-V"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pyasynq 0.")


@pytest.mark.parametrize(
    "option", ["-c, --concurrency", "-q, --queues", "-p, --processes", "-b, --burst", "-l, --log-level"]
)
def test_frequent_options_have_short_names(option: str) -> None:
    """The help shows both. (D38)"""
    assert option in CliRunner().invoke(main, ["worker", "--help"]).output


def test_a_server_without_queues_is_refused() -> None:
    """A `WorkerConfig` may name no queues, but only an app has others for it."""
    with pytest.raises(ConfigurationError, match=r"use app\.server\(config\), or name queues"):
        Server(URL, WorkerConfig())
