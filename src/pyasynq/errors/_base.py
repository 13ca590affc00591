"""The root of all errors, their pickling, and values that errors do not show."""

import re
from datetime import datetime, timedelta
from difflib import get_close_matches
from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class PyasynqError(Exception):
    """Base of all errors of pyasynq. They can be pickled and copied, as process pools do."""

    def __reduce__(self) -> "tuple[Any, ...]":
        # The default would call the class with the message alone, which most of these classes do not accept.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[PyasynqError], args: tuple[Any, ...], attributes: dict[str, Any]) -> PyasynqError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


def error_code(error: PyasynqError) -> str:
    """Return the code of an error, by which programs recognise it: `task_not_found`."""
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def nearest(name: str, known: "Iterable[str]") -> str:
    """Return ``"; did you mean 'x'?"`` for the known name most similar to `name`, or an empty string."""
    found = get_close_matches(name, list(known), n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


def describe_value(value: object) -> str:
    """Return the text for a value in an error: numbers, bools and datetimes as they are, others by type.

    Strings, bytes and objects are never shown, because they may be a misplaced payload or a part of one.
    """
    if value is None or type(value) in _SHOWN or (type(value) is int and abs(value) < _LONG_NUMBER):
        return repr(value)
    if isinstance(value, type):
        return value.__qualname__
    # A function's name shows no value; a partial has no name, and holds arguments.
    name = f" {value.__qualname__}" if isinstance(value, FunctionType) else ""
    return f"<{type(value).__qualname__}{name}>"


_SHOWN = frozenset({bool, float, timedelta, datetime})
_LONG_NUMBER = 10**18
"""Smallest integer of which errors show only the type, since Python formats at most 4,300 digits."""
