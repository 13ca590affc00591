"""Keyset pagination of lists that are read as a whole: a cursor names the last item of the previous page."""

from __future__ import annotations

import base64
import binascii
import bisect
from typing import TYPE_CHECKING, Final

from .problem import wrong_value

if TYPE_CHECKING:
    from collections.abc import Sequence

_VERSION: Final = "1:"
_REMEDY: Final = "Pass `next` of the page before, or begin without a cursor."


def page_of_names(names: Sequence[str], cursor: str, limit: int) -> tuple[list[str], str]:
    """Return a page of sorted names after a cursor, and the cursor of the next page (empty on the last).

    Raises:
        ProblemError: for an invalid cursor.
    """
    first = bisect.bisect_right(names, _decode(cursor)) if cursor else 0
    page = list(names[first : first + limit])
    return page, _encode(page[-1]) if first + limit < len(names) else ""


def _encode(name: str) -> str:
    return base64.urlsafe_b64encode((_VERSION + name).encode("utf-8", "surrogateescape")).decode().rstrip("=")


def _decode(cursor: str) -> str:
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise wrong_value("cursor", _REMEDY) from None
    text = data.decode("utf-8", "surrogateescape")
    if not text.startswith(_VERSION):
        raise wrong_value("cursor", _REMEDY)
    return text.removeprefix(_VERSION)
