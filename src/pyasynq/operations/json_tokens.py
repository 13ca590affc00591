"""Positions of JSON tokens, so that single values can be replaced and all other text kept. Pure."""

from __future__ import annotations

import json
import re
from typing import Final

TOKEN: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
"""JSON token: a string, a punctuation mark, a number or a literal."""
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def json_tokens(text: str) -> list[tuple[int, int]] | None:
    """Return the begin and end of each token of a JSON object or list; None for any other text."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    spans: list[tuple[int, int]] = []
    closing: list[str] = []
    end = 0
    for found in TOKEN.finditer(text):
        first, last = found.span()
        if text[end:first].strip():
            return None
        end = last
        spans.append((first, last))
        mark = text[first]
        if mark in "{[":
            closing.append("}" if mark == "{" else "]")
        elif mark in "}]" and (not closing or closing.pop() != mark):
            return None
    return None if closing or text[end:].strip() else spans


def value_end(text: str, spans: list[tuple[int, int]], at: int) -> int:
    """Return the index after the last token of the value whose first token has the index `at`."""
    depth = 0
    for index in range(at, len(spans)):
        mark = text[spans[index][0]]
        depth += (mark in "{[") - (mark in "}]")
        if depth <= 0:
            return index + 1
    return len(spans)


def decode_string(token: str) -> str:
    """Decode a JSON string token, which includes its quotes; return its text."""
    if "\\" not in token:
        return token[1:-1]
    try:
        # A lone surrogate is legal in JSON and cannot be written as UTF-8.
        return _LONE_SURROGATE.sub("\ufffd", str(json.loads(token, strict=False)))
    except ValueError:
        return token[1:-1]
