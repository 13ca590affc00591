from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import App, ConfigurationError, InvalidOptionError, Mux, Server
from pyasynq._engine.executor.order import Program, find_handler
from pyasynq._engine.handlers.routes import make_router
from tests import child_tasks
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

app = App("redis://localhost:1/0")


def rebound() -> None:
    """Be declared, and not keep the name."""


other = app.task("rebound", executor="process")(rebound)


def program(function: Callable[..., Any]) -> Program:
    """Return the program of a function that stands for itself."""
    return Program("task 'x'", function, lambda found: found is function, dict)


def test_a_handler_is_found_by_the_name_that_it_is_given() -> None:
    """Typed tasks and handlers of a mux alike, and methods of no object."""
    assert "tests.child_tasks:where" == _reference(child_tasks.app, "where")
    assert "tests.child_tasks:plain_handler" == _reference(child_tasks.mux, "mux:plain")
    assert find_handler("tests.child_tasks:where") is child_tasks.where
    assert find_handler("tests.child_tasks:Order.__eq__") == child_tasks.Order.__eq__


def test_a_name_that_is_not_there_is_an_error_of_the_import() -> None:
    """The child may have another version of the module."""
    with pytest.raises(ImportError, match=r"'tests\.child_tasks' has no 'nothing' in a child process"):
        find_handler("tests.child_tasks:nothing")


def _local() -> Callable[..., Any]:
    def local() -> None:
        pass

    return local


@pytest.mark.parametrize(
    ("function", "name"),
    [(lambda: None, "<lambda>"), (_local(), "local"), (functools.partial(rebound), "partial")],
    ids=["lambda", "nested", "partial"],
)
def test_what_has_no_name_cannot_run_in_a_child(function: Callable[..., Any], name: str) -> None:
    """The error says what to do."""
    with pytest.raises(ConfigurationError, match=f"(?s){name}.* has no name .* top level of a module"):
        program(function).reference()


def test_a_function_of_the_main_module_cannot_run_in_a_child() -> None:
    """The module has another name there, and would run twice."""

    def function() -> None:
        pass

    function.__module__, function.__qualname__ = "__main__", "function"

    with pytest.raises(ConfigurationError, match=r"'__main__'.*move 'function' to another module"):
        program(function).reference()


@run_async
async def test_a_server_does_not_start_with_a_handler_that_a_child_would_not_find() -> None:
    """It is found out before any task is taken, and before Redis is asked."""
    with pytest.raises(ConfigurationError, match="test_child_orders:rebound, which is something else"):
        await Server("redis://localhost:1/0").start(app)


def test_an_executor_is_a_process_or_none() -> None:
    """A misspelt one is an error where it stands."""
    with pytest.raises(InvalidOptionError, match="executor=<str>: must be 'process', or None"):
        App().task("x", executor="thread")(rebound)  # type: ignore[call-overload]
    with pytest.raises(InvalidOptionError, match="executor=<str>: must be 'process', or None"):
        Mux().handle("x", lambda task: None, executor="thread")  # type: ignore[arg-type]


def _reference(router: App | Mux, task_type: str) -> str:
    route = make_router(router).route(task_type)
    assert route is not None
    assert route.program is not None
    return route.program.reference()
