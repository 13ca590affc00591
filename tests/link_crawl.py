"""Crawl of a site by its links, which must all lead to something below one address."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

from tests.visiting import links_of

if TYPE_CHECKING:
    import httpx

_FORMS: Final = ("/act", "/bulk", "/examine", "/logout", "/resume", "/limits")
"""Ends of addresses that take forms only."""
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")


class Crawl:
    """Addresses of a site below its start, each kind of page once; the styles and modules too."""

    def __init__(self, start: str) -> None:
        self.start = start
        self.todo = [start]
        self.seen: set[str] = set()

    def read(self, address: str, response: httpx.Response) -> None:
        """Check an answer and note its links."""
        assert response.status_code == 200, address
        if "text/html" not in response.headers["content-type"]:
            return
        for link in links_of(response.text):
            whole = urljoin(address, link)
            if whole.startswith("data:"):
                continue
            assert whole.startswith(self.start), f"{link} on {address}"
            shape = _ID.sub("ID", whole.partition("?")[0])
            if shape not in self.seen and not shape.endswith(_FORMS):
                self.seen.add(shape)
                self.todo.append(whole)
