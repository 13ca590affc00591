"""Packages whose public names are imported when they are first used."""

from __future__ import annotations

import ast
import importlib
import inspect
from typing import TYPE_CHECKING, Any

import pytest

import pyasynq
from pyasynq import events, info, operations
from pyasynq.operations import query

if TYPE_CHECKING:
    from types import ModuleType

PACKAGES = (pyasynq, events, info, operations, query)


def _imports_for_type_checkers(package: ModuleType) -> set[str]:
    tree = ast.parse(inspect.getsource(package))
    guarded = next(
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return {alias.name for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_the_lists_of_names_agree(package: Any) -> None:
    """Imports for type checkers, names by module, and `__all__`."""
    lazy = {name for names in package._EXPORTS_BY_MODULE.values() for name in names.split()}
    assert lazy == _imports_for_type_checkers(package)
    assert lazy <= set(package.__all__)
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_each_name_is_the_one_of_its_module(package: Any) -> None:
    """A name that a module lacks would fail only when somebody uses it."""
    for module, names in package._EXPORTS_BY_MODULE.items():
        for name in names.split():
            assert getattr(package, name) is getattr(
                importlib.import_module(f".{module}", package.__name__), name
            )


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_an_unknown_name_is_an_attribute_error(package: ModuleType) -> None:
    """The error has the name and the package, so that Python suggests a similar name."""
    with pytest.raises(
        AttributeError, match=f"module '{package.__name__}' has no attribute 'Opertor'"
    ) as caught:
        package.Opertor  # noqa: B018 - the access is what is tested
    assert (caught.value.name, caught.value.obj) == ("Opertor", package)
