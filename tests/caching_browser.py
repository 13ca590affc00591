"""A browser's view of a page's weight: the styles and modules that it loads, and its HTTP cache."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx

_NEEDED: Final = re.compile(r'<(?:link rel="stylesheet"|script)[^>]* (?:href|src)="([^"]+)"')
_IMPORTED: Final = re.compile(r'^(?:import|export)\b[^;]*? from "([^"]+)"', re.MULTILINE)


class CachingBrowser:
    """A browser that keeps what it may, and counts the bytes of the bodies that it loads.

    It accepts compressed bodies, and counts them as they are sent.

    Args:
        visitor: sends the requests.
    """

    def __init__(self, visitor: httpx.AsyncClient) -> None:
        self._visitor = visitor
        self._kept: dict[httpx.URL, str] = {}
        self.loaded: dict[str, int] = {}
        """Bytes of each body that the newest visit has loaded, by path."""

    async def visit(self, address: str) -> int:
        """Load a page and all that it needs; return the sum of the bytes."""
        self.loaded = {}
        page = self._visitor.base_url.join(address)
        todo = [page.join(name) for name in _NEEDED.findall(await self._load(page))]
        seen: set[httpx.URL] = set()
        while todo:
            asset = todo.pop()
            if asset not in seen:
                seen.add(asset)
                todo += [asset.join(name) for name in _IMPORTED.findall(await self._load(asset))]
        return sum(self.loaded.values())

    async def _load(self, address: httpx.URL) -> str:
        """Return the text at an address, from the cache if its headers have allowed that."""
        if address in self._kept:
            return self._kept[address]
        response = await self._visitor.get(address)
        assert response.status_code == 200, address
        self.loaded[address.path] = response.num_bytes_downloaded
        # Whatever is not immutable counts as loaded again: that is the most that a browser may load.
        if "immutable" in response.headers["cache-control"]:
            self._kept[address] = response.text
        return response.text
