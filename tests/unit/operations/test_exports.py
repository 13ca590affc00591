"""The public names of `pyasynq.operations`, which are imported when they are first used."""

from __future__ import annotations

import ast
import inspect

import pytest

from pyasynq import operations


def test_the_three_lists_of_names_are_one() -> None:
    """Imports for type checkers, modules by name, and `__all__`."""
    tree = ast.parse(inspect.getsource(operations))
    checked = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    assert sorted(checked) == sorted(operations._MODULE_BY_EXPORT) == sorted(operations.__all__)


@pytest.mark.parametrize("name", operations.__all__)
def test_each_name_can_be_imported(name: str) -> None:
    """From the module that the list names."""
    assert getattr(operations, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The error is the same as for any other module."""
    with pytest.raises(AttributeError, match="has no attribute 'Opertor'"):
        operations.Opertor  # type: ignore[attr-defined] # noqa: B018 - the access is what is tested
