"""Lazy imports: a package imports a public name when it is first used, as PEP 562 describes."""

import importlib
import sys
from collections.abc import Callable, Mapping


def attach(
    package: str, names_by_module: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    A type checker would accept any name of a package with `__getattr__`: define it only
    `if not TYPE_CHECKING`, and import the names for type checkers otherwise.

    Args:
        package: its `__name__`; its `__all__` has all public names.
        names_by_module: public names of each module of the package, separated by spaces.
            Such a module is imported, too, when it is used as an attribute of the package.
    """
    module_by_name = {name: module for module, names in names_by_module.items() for name in names.split()}
    namespace = vars(sys.modules[package])

    def import_name(name: str) -> object:
        """Import a public name, or a module that defines some. Raises `AttributeError` for other names."""
        if name in module_by_name:
            value = getattr(importlib.import_module(f".{module_by_name[name]}", package), name)
        elif name in names_by_module:
            value = importlib.import_module(f".{name}", package)
        else:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[package])
        namespace[name] = value
        return value

    def list_names() -> list[str]:
        """Return all names, including those not yet imported."""
        return sorted({*namespace, *namespace["__all__"]})

    return import_name, list_names
