"""Search for the app named by `MODULE:APP`, with errors that say where it was searched."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from pyasynq._background.code_places import drop_own_frames, find_user_line
from pyasynq.app import App
from pyasynq.errors import ConfigurationError, PyasynqError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

_IMPORTLIB = importlib.__file__
_ALIKE = 0.75
"""Minimum similarity (0 to 1) of a suggested module: names in a folder are short, and many."""


class AppImportError(ConfigurationError):
    """Error: a module of the user cannot be imported.

    Attributes:
        user_traceback: Python's traceback, from the user's first frame on.
    """

    def __init__(self, message: str, user_traceback: str) -> None:
        super().__init__(message)
        self.user_traceback = user_traceback


def load_app(reference: str, modules: Iterable[str], url: str | None) -> App:
    """Return the app that `MODULE:APP` names, with all modules that declare its tasks.

    Args:
        reference: as for `find_app`.
        modules: modules to import besides those that the app names.
        url: URL of Redis, which replaces the app's own.

    Raises:
        ConfigurationError: if the app or a module cannot be found or imported.
    """
    app = find_app(reference)
    if url is not None:
        app.url = url
    for module in modules:
        load_module(module)
    for module in app.modules:
        load_module(module, named_by="App(modules=)")
    return app


def find_app(reference: str) -> App:
    """Return the app that `MODULE:APP` names; search the current folder first, as for a script in it.

    Raises:
        ConfigurationError: if there is none. The message says what was searched for, and what was found.
    """
    module_name, separator, path = reference.partition(":")
    if not separator or not module_name or not path:
        raise ConfigurationError(
            f"{reference!r} names no app: write MODULE:APP, {_suggest_apps(_read_module_name(module_name))}"
        )
    module = load_module(module_name)
    found: object = module
    looked_in = f"module {module_name!r}"
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ConfigurationError(
                f"{looked_in} was found ({_origin(module)}), but it has no {name!r}"
                f"{_describe_apps(module)}{nearest(name, _find_apps(found))}",
            ) from None
        looked_in = f"{looked_in} {name!r}"
    if isinstance(found, FunctionType):
        raise ConfigurationError(
            f"{reference!r} is a function, not a pyasynq.App: call it in the module, as in app = {path}(), "
            f"and name what it returns{_describe_apps(module)}",
        )
    if not isinstance(found, App):
        raise ConfigurationError(
            f"{reference!r} is of type {type(found).__name__}, not a pyasynq.App{_describe_apps(module)}",
        )
    return found


def find_function(reference: str) -> Callable[..., Any]:
    """Return the function that `MODULE:FUNCTION` names.

    Raises:
        ConfigurationError: if there is none. The message says what was searched for, and what was found.
    """
    module_name, separator, path = reference.partition(":")
    if not separator or not module_name or not path:
        raise ConfigurationError(f"{reference!r} names no function: write MODULE:FUNCTION")
    found: object = load_module(module_name)
    for name in path.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise ConfigurationError(f"module {module_name!r} has no function {path!r}")
    return found


def _suggest_apps(module_name: str) -> str:
    """Return a hint for a reference without an app's name: the apps in the module, if it can be imported."""
    try:
        apps = _find_apps(module := load_module(module_name)) if module_name else []
    except ConfigurationError:
        apps = []
    if apps:
        return "which is one of these: " + ", ".join(f"{module.__name__}:{name}" for name in apps)
    return f"as in {module_name or 'myapp.tasks'}:app"


def load_module(name: str, *, named_by: str = "") -> ModuleType:
    """Import a module; search the current folder first.

    Args:
        name: the module's full name.
        named_by: place that names the module, for errors.

    Raises:
        ConfigurationError: when there is no such module, or importing it raises.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if name.startswith("."):  # a path; Python would take it for a relative import
        raise ConfigurationError(_explain_missing_module(name, name, folder, named_by))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(_explain_missing_module(name, error.name, folder, named_by)) from None
        raise _import_failed(name, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(name, error) from error


def _explain_missing_module(name: str, missing: str, folder: str, named_by: str) -> str:
    found = "" if missing == name else f" (there is no {missing!r})"
    found += f", which {named_by} names" if named_by else ""
    proper = _read_module_name(name)
    if name.startswith(".."):
        hint = ""  # the module is not in the folders that are searched
    elif proper != name:
        hint = f"; write {proper}"
    else:
        alike = get_close_matches(name, _list_modules(folder), n=1, cutoff=_ALIKE)
        hint = f"; did you mean {alike[0]!r}?" if alike else ""
    looked = f"looked in the current folder, {folder}, and in Python's path"
    return f"there is no module {name!r}{found}: {looked}{hint}"


def _list_modules(folder: str) -> list[str]:
    """Return the names of the modules and packages in a folder."""
    return [one.stem for one in Path(folder).iterdir() if one.suffix == ".py" or one.is_dir()]


def _import_failed(name: str, error: BaseException) -> ConfigurationError:
    place = find_user_line(error.__traceback__)
    if isinstance(error, ConfigurationError) and place:
        # Its sentence says what is wrong in the line, so a traceback would only repeat it.
        return ConfigurationError(f"{place}: {error}")
    # Show no frames of these: the mistake is not in pyasynq, the import system or the standard library.
    own = traceback.extract_tb(
        drop_own_frames(error.__traceback__, keep_end=not isinstance(error, PyasynqError))
    )
    frames = [one for one in own if not one.filename.startswith("<") and one.filename != _IMPORTLIB]
    place = f" [{place}]" if place else ""
    if isinstance(error, SyntaxError):
        place = ""  # its message names file and line
    what = f"{type(error).__name__}: {error}{place}"
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    lines += traceback.format_exception_only(error)
    return AppImportError(f"module {name!r} was found, but importing it failed: {what}", "".join(lines))


def _origin(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or "a namespace package"


def _find_apps(found: object) -> list[str]:
    # Read `__dict__`: `dir` and `getattr` could run code of the module's objects.
    return sorted(name for name, value in getattr(found, "__dict__", {}).items() if isinstance(value, App))


def _describe_apps(module: ModuleType) -> str:
    apps = _find_apps(module)
    if not apps:
        return "; there is no App in that module"
    return "; the apps there are: " + ", ".join(f"{module.__name__}:{name}" for name in apps)


def _read_module_name(path: str) -> str:
    return path.removesuffix(".py").replace(os.sep, ".").strip(".")
