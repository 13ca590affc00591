"""Figures of one Python source file, computed from its tokens alone."""

from __future__ import annotations

import io
import tokenize
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_INVISIBLE: Final = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER})


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Figures of one source file. Without functions, the longest one is `""` with 0 lines."""

    lines: int
    functions: int
    classes: int
    longest_function: str
    longest_function_lines: int
    imports: tuple[str, ...]
    """Sorted top-level names of the imported modules, without relative imports."""


def analyze_file(path: Path) -> SourceFacts:
    """Tokenize one source file and return its figures.

    Raises:
        SyntaxError: for an encoding that does not exist, and for bad indentation.
        UnicodeDecodeError: for bytes that do not fit the encoding.
        tokenize.TokenError: for a string or bracket that is never closed.
        OSError: when the file cannot be read.
    """
    # Decode the file here: from Python 3.12 on, the tokenizer treats undecodable bytes as the end of the
    # file.
    with tokenize.open(path) as file:
        text = file.read()
    return analyze_tokens(tokenize.generate_tokens(io.StringIO(text).readline))


def analyze_tokens(tokens: Iterable[tokenize.TokenInfo]) -> SourceFacts:
    """Return the figures of one file's tokens."""
    reader = _Reader()
    statement: list[tokenize.TokenInfo] = []
    for token in tokens:
        if token.type == tokenize.ERRORTOKEN and not token.string.isspace():
            # Python 3.11 returns unreadable text as an ERRORTOKEN; later versions raise this error
            # themselves.
            message = f"unreadable text {token.string[:20]!a} at line {token.start[0]}"
            raise tokenize.TokenError(message, token.start)
        if token.type == tokenize.INDENT:
            reader.depth += 1
        elif token.type == tokenize.DEDENT:
            reader.depth -= 1
        elif token.type == tokenize.NEWLINE or (token.type == tokenize.OP and token.string == ";"):
            reader.read(statement, token.start[0])
            statement = []
        elif token.type not in _INVISIBLE:
            statement.append(token)
    return reader.facts()


@dataclass(slots=True)
class _Function:
    name: str
    depth: int
    first_line: int


class _Reader:
    """Parser of one file's statements, with a stack of the enclosing functions."""

    def __init__(self) -> None:
        self.depth = 0
        self._open: list[_Function] = []
        self._last_line = 0
        self._functions = 0
        self._classes = 0
        self._longest = ("", 0)
        self._imports: set[str] = set()

    def read(self, statement: list[tokenize.TokenInfo], last_line: int) -> None:
        if not statement:
            return
        self._close_functions(self.depth)
        self._last_line = last_line
        words = [token.string for token in statement]
        if words[0] == "async":
            words = words[1:]
        if words[:1] == ["def"]:
            self._functions += 1
            self._open.append(_Function(words[1], self.depth, statement[0].start[0]))
        elif words[:1] == ["class"]:
            self._classes += 1
        elif words[:1] in (["import"], ["from"]):
            self._imports.update(_modules(words))

    def _close_functions(self, depth: int) -> None:
        # A function ends at the last statement before one that is not indented deeper than its `def`.
        while self._open and self._open[-1].depth >= depth:
            function = self._open.pop()
            lines = self._last_line - function.first_line + 1
            if lines > self._longest[1]:
                self._longest = (function.name, lines)

    def facts(self) -> SourceFacts:
        self._close_functions(0)
        return SourceFacts(
            lines=self._last_line,
            functions=self._functions,
            classes=self._classes,
            longest_function=self._longest[0],
            longest_function_lines=self._longest[1],
            imports=tuple(sorted(self._imports)),
        )


def _modules(words: list[str]) -> list[str]:
    if words[0] == "from":
        return words[1:2] if words[1:2] and words[1].isidentifier() else []
    # A dotted name follows `import` and each comma; its first word is the module.
    return [word for before, word in pairwise(words) if before in {"import", ","}]
