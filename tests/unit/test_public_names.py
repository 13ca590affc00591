from __future__ import annotations

import ast
import inspect
import types
from collections import Counter
from pathlib import Path

import pyasynq

EXPORTED: list[str] = list(getattr(pyasynq, "__all__", []))


def imported_names() -> list[str]:
    """Return every public name that `pyasynq/__init__.py` imports, as often as it does."""
    tree = ast.parse(Path(inspect.getfile(pyasynq)).read_text(encoding="utf-8"))
    return [
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for name in (alias.asname or alias.name for alias in node.names)
        if not name.startswith("_") and name != "TYPE_CHECKING"
    ]


def in_reading_order(name: str) -> tuple[bool, bool, str]:
    """Order constants before classes before functions, as the linter does."""
    return (not name.isupper(), not name[0].isupper(), name)


def test_each_public_name_is_exported_exactly_once() -> None:
    """A name has one module, so it is never ambiguous."""
    counted = Counter(imported_names())

    assert {} == {name: count for name, count in counted.items() if count > 1}
    assert len(set(EXPORTED)) == len(EXPORTED)


def test_no_two_public_names_mean_the_same_object() -> None:
    """One concept, one name."""
    exported = [getattr(pyasynq, name) for name in EXPORTED]
    objects = Counter(id(value) for value in exported if callable(value))

    assert [] == [name for name in EXPORTED if objects[id(getattr(pyasynq, name))] > 1]


def test_all_is_complete_and_every_name_in_it_exists() -> None:
    """Each name that can be imported without an underscore is a promise, and every promise is listed."""
    present = {
        name
        for name, value in vars(pyasynq).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    } - {"TYPE_CHECKING", "annotations"}

    assert set() == {*present, *imported_names()} - set(EXPORTED)
    assert [] == [name for name in EXPORTED if not hasattr(pyasynq, name)]


def test_all_is_sorted() -> None:
    """A reader finds a name where it must be."""
    public = [name for name in EXPORTED if not name.startswith("_")]

    assert sorted(public, key=in_reading_order) == public
