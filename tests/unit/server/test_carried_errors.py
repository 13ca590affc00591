from __future__ import annotations

import json
import sys
import types
from typing import Self

import pytest

from pyasynq import Archive, LeaseExpiredError, RemoteError, Retry, SkipRetry, Snooze, TaskNotFoundError
from pyasynq._engine.executor.carried_error import describe, revive
from pyasynq._engine.failure_text import error_line, format_trace, own_traceback
from pyasynq._engine.run.outcome import find_cause, find_control_flow
from tests.bad_errors import BAD_ERRORS


class DeclinedError(Exception):
    def __init__(self, amount: int) -> None:
        super().__init__("declined", amount)
        self.amount = amount
        self.connection = object()
        self.pair = (1, 2)

    def __str__(self) -> str:
        return f"declined: {self.amount} by {self.connection is not None}"


class SelfishError(Exception):
    def __new__(cls, *args: object) -> Self:
        raise RuntimeError("not like this")


def raised(error: BaseException) -> BaseException:
    """Return the error after it was raised, as a handler does."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - whatever it is
        return caught


def carried(error: BaseException) -> BaseException:
    """Return what comes out at the other end."""
    return revive(json.loads(json.dumps(describe(error))))


def test_an_error_keeps_its_class_its_arguments_and_what_json_can_carry() -> None:
    """So that rules by exception class and delays by attribute work. Its constructor is not called."""
    error = carried(raised(DeclinedError(5)))

    assert isinstance(error, DeclinedError)
    assert (("declined", 5), 5) == (error.args, error.amount)
    assert not hasattr(error, "connection")
    assert not hasattr(error, "pair")  # JSON would make a list of it


def test_message_and_traceback_are_those_of_the_process_where_it_was_raised() -> None:
    """They are written down as if the handler had run in a thread."""
    original = raised(DeclinedError(5))
    line, trace = error_line(original), format_trace(original)

    error = raised(carried(original))

    assert line == error_line(error)
    assert "DeclinedError: declined: 5 by True [test_carried_errors.py:" in line
    assert trace == format_trace(error)
    assert b"Traceback" in trace
    assert own_traceback(error) is None


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(2, "No such file"),
        KeyError("name"),
        SystemExit(3),
        StopIteration(4),
        TaskNotFoundError("default", "a"),
        LeaseExpiredError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_builtin_errors_and_those_of_pyasynq_are_equal_to_what_was_raised(error: BaseException) -> None:
    """All attributes that their constructors set are equal too."""
    other = carried(error)

    assert (type(error), error.args, str(error)) == (type(other), other.args, str(other))
    for name in ("errno", "code", "value", "task_id", "queue"):
        assert getattr(error, name, None) == getattr(other, name, None)


def test_a_class_that_the_worker_has_not_imported_comes_as_a_remote_error() -> None:
    """Nothing is imported for it."""
    module = types.ModuleType("somewhere.else")
    sys.modules[module.__name__] = module
    kind = type("OddError", (ValueError,), {"__module__": module.__name__})
    module.OddError = kind  # type: ignore[attr-defined]
    fields = describe(raised(kind("no")))
    del sys.modules[module.__name__]

    error = revive(fields)

    assert isinstance(error, RemoteError)
    assert ("somewhere.else.OddError", "no") == (error.type_name, error.text)
    assert error_line(error).startswith("OddError: no [test_carried_errors.py:")


def test_a_name_without_an_error_class_comes_as_a_remote_error() -> None:
    """An object under that name is neither called nor instantiated."""
    fields = {**describe(ValueError("no")), "module": "builtins", "name": "exit"}

    assert isinstance(revive(fields), RemoteError)


def test_a_class_that_refuses_to_be_made_comes_as_a_remote_error() -> None:
    """Its own methods may raise what they like."""
    original = Exception.__new__(SelfishError)
    fields = describe(original)

    assert isinstance(revive(fields), RemoteError)


def test_arguments_that_json_cannot_carry_are_replaced_by_the_text() -> None:
    """The reader sees what it said."""
    error = carried(ValueError(object))

    assert ("<class 'object'>",) == error.args


@pytest.mark.parametrize("wish", [Snooze(5), Retry(6, spend=False), Archive("x"), SkipRetry("y")], ids=repr)
def test_the_outcome_of_the_task_is_read_as_from_the_original_error(wish: BaseException) -> None:
    """Raised, as a cause, and in a group."""
    outer = ValueError("outer")
    outer.__cause__ = wish

    for error in (wish, outer, BaseExceptionGroup("all", [wish])):
        found = find_control_flow(carried(error))
        assert type(wish) is type(found)
        assert vars(wish).items() <= vars(found).items()


def test_the_error_that_a_retry_was_raised_from_is_the_one_that_is_told() -> None:
    """The error keeps its own line and traceback."""
    try:
        try:
            raise DeclinedError(7)
        except DeclinedError as error:
            raise Retry(5) from error
    except Retry as retry:
        other = carried(retry)
        expected = format_trace(find_cause(retry))

    told = find_cause(other)

    assert error_line(told).startswith("DeclinedError: declined: 7")
    assert expected == format_trace(told)


def test_the_context_of_a_bare_retry_is_told_and_a_suppressed_one_is_not() -> None:
    """A `Retry` raised in `except` has the handled error as its cause; with `from None` it has none."""

    def retry(*, suppress: bool) -> BaseException:
        try:
            try:
                raise KeyError("hidden")
            except KeyError:
                if suppress:
                    raise Retry(5) from None
                raise Retry(5)  # noqa: B904 - that is the point
        except Retry as error:
            return carried(error)

    assert isinstance(find_cause(retry(suppress=False)), KeyError)
    assert isinstance(find_cause(retry(suppress=True)), Retry)


def test_groups_keep_their_members() -> None:
    """Groups within groups keep their members too."""
    group = ExceptionGroup("outer", [ValueError("a"), ExceptionGroup("inner", [KeyError("b")])])

    error = carried(group)

    assert isinstance(error, ExceptionGroup)
    assert ("outer", "inner") == (error.message, error.exceptions[1].message)
    assert [ValueError, ExceptionGroup] == [type(member) for member in error.exceptions]


def test_a_chain_without_end_is_cut() -> None:
    """A frame has an end."""
    error: BaseException = ValueError("innermost")
    for number in range(100):
        outer = ValueError(str(number))
        outer.__cause__ = error
        error = outer

    depth, other = 0, carried(error)
    while other.__cause__ is not None:
        depth, other = depth + 1, other.__cause__

    assert 20 == depth


@pytest.mark.parametrize("make", BAD_ERRORS.values(), ids=BAD_ERRORS)
def test_errors_whose_own_methods_raise_are_carried_too(make: type[BaseException]) -> None:
    """A task is settled, whatever its handler has raised."""
    original = raised(make())

    assert error_line(original) == error_line(carried(original))
