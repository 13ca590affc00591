"""Check of JSON nesting before parsing: parsers fail at different depths, and some crash."""

from __future__ import annotations

import re
from typing import Final

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def is_deeper(content: bytes, levels: int) -> bool:
    """Return whether the objects and lists of JSON are nested deeper than this many levels."""
    if content.count(b"[") + content.count(b"{") <= levels:
        return False
    depth = 0
    for token in _TOKEN.finditer(content):
        if token[0] in {b"[", b"{"}:
            depth += 1
            if depth > levels:
                return True
        elif token[0] in {b"]", b"}"}:
            depth -= 1
    return False
