"""Glob patterns of queue names: `*` matches any text, `?` one character, all else only itself."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

EVERYTHING: Final = "*"
"""The pattern that matches every name."""

_WILDCARDS: Final = {"*": ".*", "?": "."}


@lru_cache(maxsize=1_024)
def _compile(pattern: str) -> re.Pattern[str]:
    # Adjacent stars would make the match exponential.
    parts = re.split(r"([*?])", re.sub(r"\*+", "*", pattern))
    return re.compile("".join(_WILDCARDS.get(part) or re.escape(part) for part in parts), re.DOTALL)


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name matches at least one of the patterns."""
    # A loop, because a generator is slower, and a page calls this several times for each queue and running
    # task.
    for pattern in patterns:  # noqa: SIM110 - twice as fast
        if _matches(name, pattern):
            return True
    return False


def _matches(name: str, pattern: str) -> bool:
    return pattern == EVERYTHING or _compile(pattern).fullmatch(name) is not None
