"""Path convertors of the routes (Starlette)."""

from __future__ import annotations

from typing import Final

from starlette.convertors import Convertor, register_url_convertor


class _Rest(Convertor[str]):
    """Path convertor for the rest of a path, with any content: Starlette's `path` ends at a line break."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """Return the rest of the path unchanged."""
        return value

    def to_string(self, value: str) -> str:
        """Return the rest of the path unchanged."""
        return value


register_url_convertor("rest", _Rest())

REST: Final = "{path:rest}"
"""Placeholder in a route's path that matches the rest of the path."""
