"""Errors as JSON, sent from a child process to its worker.

Pickle is not used, because unpickling can run any code. An error is restored as its own class only if the
worker has already imported that class. Its constructor is not called, unless it is a builtin class. It gets
only the arguments and attributes that JSON supports.
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pyasynq._engine.failure_text import RemoteFailure, find_place, format_text, format_trace, note_elsewhere
from pyasynq._engine.run.outcome import find_cause
from pyasynq.errors import RemoteError

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEEPEST: Final = 20
_LARGEST_VALUE: Final = 10_000
"""Maximum characters of a value: larger arguments and attributes are dropped, longer texts are cut."""


def describe(error: BaseException) -> dict[str, Any]:
    """Return an error as values for JSON, with its causes and the members of its groups."""
    return _describe(error, {id(error), id(find_cause(error))}, 0)


def _describe(error: BaseException, traced: set[int], depth: int) -> dict[str, Any]:
    kind, text = type(error), format_text(error)[:_LARGEST_VALUE]
    fields: dict[str, Any] = {
        "module": kind.__module__,
        "name": kind.__qualname__,
        "text": text,
        "args": list(error.args) if _is_carried(list(error.args)) else [text],
        "attributes": {name: value for name, value in vars(error).items() if _is_carried(value)},
        "place": find_place(error),
        "suppress": error.__suppress_context__,
    }
    if id(error) in traced:
        # Other errors are part of the traceback of the error they caused.
        fields["trace"] = format_trace(error).decode()
    if depth == _DEEPEST:
        return fields
    if error.__cause__ is not None:
        fields["cause"] = _describe(error.__cause__, traced, depth + 1)
    elif error.__context__ is not None and not error.__suppress_context__:
        fields["context"] = _describe(error.__context__, traced, depth + 1)
    if isinstance(error, BaseExceptionGroup):
        fields["members"] = [_describe(member, traced, depth + 1) for member in error.exceptions]
    return fields


def _is_carried(value: object) -> bool:
    """Return whether JSON restores a value unchanged, and is not too long."""
    try:
        text = json.dumps(value)
        return len(text) <= _LARGEST_VALUE and json.loads(text) == value
    except (TypeError, ValueError, RecursionError):
        return False


def revive(fields: Mapping[str, Any]) -> BaseException:
    """Rebuild an error from the JSON of `describe`; a `RemoteError` if its class is not loaded.

    Imports nothing.
    """
    members = [revive(member) for member in fields.get("members", ())]
    error = _make_instance(fields, members)
    if "cause" in fields:
        error.__cause__ = revive(fields["cause"])
    if "context" in fields:
        error.__context__ = revive(fields["context"])
    error.__suppress_context__ = fields["suppress"]
    trace = fields.get("trace", "").encode("utf-8", "replace")
    name = fields["name"].rpartition(".")[2]
    note_elsewhere(error, RemoteFailure(name, fields["text"], fields["place"], trace))
    return error


def _make_instance(fields: Mapping[str, Any], members: list[BaseException]) -> BaseException:
    kind = _find_loaded_class(fields["module"], fields["name"])
    if kind is not None:
        # A class may raise any error when an instance is made in this way.
        with suppress(Exception):
            error = _make(kind, fields, members)
            vars(error).update(fields["attributes"])
            return error
    return RemoteError(f"{fields['module']}.{fields['name']}", fields["text"])


def _make(
    kind: type[BaseException], fields: Mapping[str, Any], members: list[BaseException]
) -> BaseException:
    if issubclass(kind, BaseExceptionGroup):
        # The arguments of an exception group are a text and its members.
        text = fields["args"][0] if len(fields["args"]) > 1 else fields["text"].rpartition(" (")[0]
        return kind.__new__(kind, text, members)
    if kind.__module__ == "builtins":
        # Constructors of builtin errors only store their arguments, some of them in C fields.
        with suppress(TypeError):
            return kind(*fields["args"])
    error = kind.__new__(kind, *fields["args"])
    # A class whose `__new__` returns another type is refused.
    if not isinstance(error, kind):
        raise TypeError(kind.__qualname__)
    return error


def _find_loaded_class(module: str, path: str) -> type[BaseException] | None:
    found: object = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
