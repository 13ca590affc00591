"""Addresses of pages: escaped names in paths, and relative links that work under every prefix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Scope

_SPECIAL: Final = re.compile(rb"[^a-zA-Z0-9\-_.:@]")
_ESCAPED_BYTE: Final = re.compile("~([0-9A-F]{2})")
UNKNOWN_PATH: Final = "/{path:path}"
"""Route of all paths that match no other route (catch-all)."""
_ROOT: Final = "/"


def to_segment(name: str) -> str:
    """Encode a name as one segment of a path; special bytes become `~` and two hex digits.

    Servers and proxies decode `%2F` before an application sees it, which would split a name with a slash. All
    of them leave the tilde unchanged.
    """
    data = name.encode("utf-8", "surrogateescape")
    text = _SPECIAL.sub(lambda match: b"~%02X" % match[0][0], data).decode()
    return "~2E" + text[1:] if text.startswith(".") else text


def from_segment(segment: str) -> str:
    """Decode a name from a path segment; a segment not written by `to_segment` is returned unchanged."""
    data = _ESCAPED_BYTE.sub(lambda match: chr(int(match[1], 16)), segment)
    try:
        return data.encode("latin-1").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return segment


def to_task_key(queue: str, task_id: str) -> str:
    """Encode queue and id of a task as one value of a form, `queue/id`, both as segments of a path."""
    return f"{to_segment(queue)}/{to_segment(task_id)}"


def from_task_key(key: str) -> tuple[str, str]:
    """Decode queue and id of a task from a value that `to_task_key` has returned."""
    queue, _, task_id = key.partition("/")
    return from_segment(queue), from_segment(task_id)


def route_path(scope: Scope) -> str:
    """Return the path below the dashboard's root, as the router sees it."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    if root and (path == root or path.startswith(f"{root}/")):
        path = path[len(root) :]
    return path or _ROOT


class Links:
    """Links of one page, relative to it, so that they work behind a proxy with any path prefix.

    Args:
        path: the page's own path below the dashboard's root, such as `/queues/emails`.
        query: the parameters in its address.
    """

    def __init__(self, path: str, query: Mapping[str, str]) -> None:
        self.path = path or _ROOT
        self.query = dict(query)
        self._up = "../" * (self.path.count("/") - 1) or "./"

    def to(self, *names: str, **query: object) -> str:
        """Return the address of a page: `to("queues", name, state="retry")`; without names, the overview.

        A parameter that is None or empty is left out.
        """
        path = self._up + "/".join(to_segment(name) for name in names)
        return path + _query_text({key: value for key, value in query.items() if value not in {None, ""}})

    def here(self, **changes: object) -> str:
        """Return the address of this page with some parameters changed; None removes one."""
        merged = {**self.query, **changes}
        kept = {key: value for key, value in merged.items() if value not in {None, ""}}
        own = self.path.rpartition("/")[2] or "./"
        # Otherwise a colon would make the part before it a scheme, such as `javascript:` (RFC 3986).
        return ("./" if ":" in own else "") + own + _query_text(kept)

    def own(self) -> str:
        """Return the page's own address below the root, for forms that return to this page."""
        return self.path + _query_text(self.query)

    def back(self, address: str) -> str:
        """Return the address of one of our pages, as named in a form; the overview for any other text.

        So a form cannot redirect to another site (open redirect).
        """
        path = address.partition("?")[0]
        is_own = (
            address.startswith("/")
            and not path.startswith(("//", "/\\"))
            and ":" not in path.partition("/")[0]
        )
        has_controls = any(ord(character) <= 0x20 or character == "\\" for character in address)
        return self.to() + address[1:] if is_own and not has_controls else self.to()

    def asset(self, name: str, version: str) -> str:
        """Return the address of a static file; it contains the version, so the file can be cached forever."""
        return f"{self._up}static/{version}/{name}"


def _query_text(query: Mapping[str, object]) -> str:
    # A lone surrogate stands for a byte that is not UTF-8, and is encoded as this byte again.
    return "?" + urlencode(query, errors="surrogateescape") if query else ""
