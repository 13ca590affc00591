"""Split a Lua 5.1 script into tokens, for the tools that read scripts."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

_TOKEN = re.compile(
    r"""
    (?P<skipped> \s+ | \A\#![^\n]* | --\[(?P<c>=*)\[.*?\](?P=c)\] | --[^\n]* )
  | (?P<string>  "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | \[(?P<s>=*)\[.*?\](?P=s)\] )
  | (?P<number>  0[xX][0-9a-fA-F]+ | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)? )
  | (?P<name>    [A-Za-z_]\w* )
  | (?P<symbol>  \.\.\. | \.\. | == | ~= | <= | >= | [-+*/%^\#<>=(){}\[\];:,.] )
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = ("skipped", "string", "number", "name", "symbol")


class LuaSyntaxError(Exception):
    """Error: a script uses Lua 5.1 syntax that our tools do not support."""


class Token(NamedTuple):
    """A string, number, name (keywords are names), symbol, or the end of the file (an empty text)."""

    kind: str
    text: str
    start: int
    end: int


def tokens_of(source: str) -> list[Token]:
    """Return the tokens of a script, without space, comments and the `#!` line; the last is its end."""
    tokens, position = [], 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            fail(source, position, "no Lua token begins here")
        kind = next(kind for kind in _KINDS if match[kind] is not None)
        if kind != "skipped":
            tokens.append(Token(kind, match[0], match.start(), match.end()))
        position = match.end()
    return [*tokens, Token("end of file", "", len(source), len(source))]


def fail(source: str, position: int, problem: str) -> NoReturn:
    """Raise a LuaSyntaxError that names the line and shows the text at that place."""
    line = source.count("\n", 0, position) + 1
    message = f"line {line}: {problem}: {source[position : position + 40]!r}"
    raise LuaSyntaxError(message)
