"""Table of paths, which finds the route and the path parameters of a request by its undecoded path."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from pyasynq.web.locations import route_path

from .problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Scope


class PathRoute(Protocol):
    """Interface of a route in a `PathTable`: its HTTP method and its path."""

    @property
    def method(self) -> str:
        """HTTP method."""

    @property
    def path(self) -> str:
        """Path template, with path parameters in braces: `/queues/{queue}:pause`."""


_R = TypeVar("_R", bound=PathRoute)

_SEGMENT: Final = re.compile(r"\{(\w+)\}")


class _Matcher(NamedTuple, Generic[_R]):
    pattern: re.Pattern[str]
    routes: dict[str, _R]
    """Routes of the path, by HTTP method."""


class PathTable(Generic[_R]):
    """Route table of the API, by path and method.

    Args:
        routes: all routes.
        hint: sentence for the 404 response to an unknown path; it names the list of all paths.
    """

    def __init__(self, routes: Iterable[_R], hint: str) -> None:
        self._hint = hint
        self._matchers = _compile_matchers(routes)
        self._plain = {
            path: routes for path, (pattern, routes) in self._matchers.items() if not pattern.groups
        }
        """Routes of paths without path parameters, which need no search."""

    def find(self, method: str, path: str) -> tuple[_R, dict[str, str]]:
        """Return the route of a request, and its decoded path parameters by name.

        Raises:
            ProblemError: the path is unknown (404), or its routes have other methods (405).
        """
        wanted = "GET" if method == "HEAD" else method
        routes, names = self._match(path)
        if wanted in routes:
            return routes[wanted], names
        allow = ", ".join(sorted({*routes, *(["HEAD"] if "GET" in routes else [])}))
        remedy = f"Use {allow}. A colon that belongs to a name is sent as %3A."
        raise ProblemError(
            405, "method_not_allowed", "This path has other methods.", remedy, headers={"Allow": allow}
        )

    def _match(self, path: str) -> tuple[dict[str, _R], dict[str, str]]:
        """Return the routes of a path by HTTP method, and its decoded path parameters by name."""
        if path in self._plain:
            return self._plain[path], {}
        for pattern, routes in self._matchers.values():
            if match := pattern.fullmatch(path):
                return routes, {name: _decode(text) for name, text in match.groupdict().items()}
        raise ProblemError(404, "no_such_path", "There is no such path.", self._hint)


def raw_path(scope: Scope) -> str:
    """Return the undecoded path below the application's root, so that `%2F` does not split a name."""
    path = route_path(scope)
    sent = bytes(scope.get("raw_path") or b"").partition(b"?")[0]
    if b"%" not in sent:
        return path
    whole = str(scope["path"])
    if unquote_to_bytes(sent) != whole.encode("utf-8", "surrogateescape"):
        return path
    root = whole[: len(whole) - len(path)] if whole.endswith(path) else ""
    segments = sent.decode("ascii", "replace").split("/")
    return "/" + "/".join(segments[1 + root.count("/") :])


def _compile_matchers(routes: Iterable[_R]) -> dict[str, _Matcher[_R]]:
    """Return a matcher for each path; paths that end in an action, such as `:run`, come first."""
    found: dict[str, _Matcher[_R]] = {}
    for route in sorted(routes, key=lambda one: ":" not in one.path):
        if route.path not in found:
            found[route.path] = _Matcher(_compile_path(route.path), {})
        found[route.path].routes[route.method] = route
    return found


def _compile_path(path: str) -> re.Pattern[str]:
    pieces = _SEGMENT.split(path)
    return re.compile(
        "".join(f"(?P<{piece}>[^/]+)" if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))
    )


def _decode(segment: str) -> str:
    return unquote_to_bytes(segment.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
