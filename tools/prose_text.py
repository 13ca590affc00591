"""Prose of the project's files: pages, docstrings, comments, message strings and names, as passages."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# A string literal of fewer words is a name or a format rather than a message.
MESSAGE_WORDS: Final = 3
GENERATED_MARKS: Final = ("Generated", "Written by tools/")

# Text that is quoted, not written: code between backticks, and the address of a link.
_QUOTED: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)|(?<=\])\([^)\s]*\)|<!--.*?-->|https?://\S+")
_FENCE: Final = re.compile(r"\s*(`{3,}|~{3,})\s*(\w*)")
_LIST_ITEM: Final = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
_LINK_TARGET: Final = re.compile(r"\[[^\]]+\]: \S+")
_TABLE_RULE: Final = re.compile(r"\s*\|?[\s:|-]+\|?\s*$")
_CELL_BORDER: Final = re.compile(r"(?<!\\)\|")
_SENTENCE_END: Final = re.compile(r"[.!?][\"')*_\]]*\s+(?=[\"'(*_\[`]*[A-Z0-9`])")
_WORD_OF_NAME: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
# Tags, expressions and blocks of a page template; the text between them is prose.
_MARKUP: Final = re.compile(r"<[^<>]*>|\{[{%].*?[%}]\}", re.DOTALL)
# What Markdown or a docstring may put in front of the first word of a sentence.
_DECORATION: Final = re.compile(r"[\s*_\"'(\[]*")


@dataclass
class Passage:
    """Text that is read as one: a paragraph, list item, table cell, heading, comment, message or name."""

    kind: str
    lines: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._starts: list[int] = []
        position = 0
        for _, text in self.lines:
            self._starts.append(position)
            position += len(text) + 1
        joined = " ".join(text for _, text in self.lines)
        self.text = _QUOTED.sub(lambda match: "`" * len(match[0]), joined)

    def line_at(self, position: int) -> int:
        """Return the number of the line that holds this position of the text."""
        return self.lines[bisect_right(self._starts, position) - 1][0]

    def sentences(self) -> Iterator[tuple[int, str]]:
        """Yield each sentence with its position in the text."""
        begin = 0
        for end in [*(match.end() for match in _SENTENCE_END.finditer(self.text)), len(self.text)]:
            sentence = self.text[begin:end]
            decoration = _DECORATION.match(sentence)
            skipped = decoration.end() if decoration else 0
            yield begin + skipped, sentence[skipped:].rstrip()
            begin = end


def read_passages(path: Path) -> list[Passage]:
    """Return the passages of a file; none for a kind of file that holds no prose, or for a generated one."""
    reader = _READERS.get(path.suffix) or _READERS.get(path.name)
    if reader is None:
        return []
    text = path.read_text(encoding="utf-8")
    if any(mark in text[:300] for mark in GENERATED_MARKS):
        return []
    return list(reader(text, 0))


def read_markdown(text: str, offset: int) -> Iterator[Passage]:
    """Yield headings, paragraphs, list items and table cells, and the comments of Python examples."""
    paragraph: list[tuple[int, str]] = []
    for number, line, language in split_fences(text, offset):
        starts_passage = not line.strip() or line.lstrip().startswith(("#", "|")) or _LIST_ITEM.match(line)
        if paragraph and (starts_passage or language is not None):
            yield Passage("text", paragraph)
            paragraph = []
        if language is not None:
            yield from read_python(line, number - 1) if language == "python" else ()
        elif line.lstrip().startswith("|"):
            yield from _read_row(number, line)
        elif line.startswith("#"):
            yield Passage("heading", [(number, line.lstrip("# "))])
        elif line.strip():
            paragraph.append((number, _LIST_ITEM.sub("", line, count=1).strip()))
    if paragraph:
        yield Passage("text", paragraph)


def split_fences(text: str, offset: int) -> Iterator[tuple[int, str, str | None]]:
    """Yield each line outside of fences with its number and None, and each fenced block with its language."""
    fence, language = "", ""
    code: list[str] = []
    for number, line in enumerate(text.splitlines(), offset + 1):
        mark = _FENCE.match(line)
        if not fence and _LINK_TARGET.match(line):
            yield number, "", None
        elif fence and mark and mark[1].startswith(fence):
            yield number - len(code), "\n".join(code), language
            fence = ""
        elif fence:
            code.append(line)
        elif mark:
            fence, language, code = mark[1], mark[2], []
        else:
            yield number, line, None


def _read_row(number: int, line: str) -> Iterator[Passage]:
    if not _TABLE_RULE.match(line):
        for cell in _CELL_BORDER.split(line.strip().strip("|")):
            if cell.strip():
                yield Passage("cell", [(number, cell.strip())])


def read_python(text: str, offset: int) -> Iterator[Passage]:
    """Yield each paragraph of docstrings, and the comments, message strings and defined names."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return  # an excerpt in a page, such as a call with dots
    yield from read_hash_comments(text, offset)
    docstrings = set()
    for node in ast.walk(tree):
        yield from _read_name(node, offset)
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            docstrings.add(id(node.value))
            yield from _paragraphs(text, node.value, offset)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            docstrings.update(id(part) for part in node.values)
            yield from _message(_render_f_string(node), node.lineno + offset)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield from _message(node.value, node.lineno + offset)


def _read_name(node: ast.AST, offset: int) -> Iterator[Passage]:
    """Yield the words of a function's or class's name."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        words = _WORD_OF_NAME.findall(node.name)
        yield Passage("name", [(node.lineno + offset, " ".join(words).lower())])


def _render_f_string(node: ast.JoinedStr) -> str:
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "`x`" for part in node.values)


def _message(value: str, number: int) -> Iterator[Passage]:
    if len(value.split()) >= MESSAGE_WORDS:
        yield Passage("message", [(number, " ".join(value.split()))])


def _paragraphs(text: str, node: ast.Constant, offset: int) -> Iterator[Passage]:
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    lines[0] = lines[0].lstrip(" rRuU").lstrip("\"'")
    lines[-1] = lines[-1].rstrip().rstrip("\"'")
    paragraph: list[tuple[int, str]] = []
    for number, line in enumerate(lines, node.lineno + offset):
        if not line.strip() or _LIST_ITEM.match(line):
            if paragraph:
                yield Passage("docstring", paragraph)
            paragraph = []
        if line.strip():
            paragraph.append((number, _LIST_ITEM.sub("", line, count=1).strip()))
    if paragraph:
        yield Passage("docstring", paragraph)


def read_hash_comments(text: str, offset: int) -> Iterator[Passage]:
    """Yield the comments of Python source; comments on successive lines are merged into one passage."""
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            found.append((token.start[0] + offset, token.string.lstrip("#! "), alone))
    yield from _join_comments(found)


def read_template(text: str, offset: int) -> Iterator[Passage]:
    """Yield the text of a page template, line by line, without its tags."""
    plain = _MARKUP.sub(lambda match: "\n" * match[0].count("\n") or " . ", text)
    for number, line in enumerate(plain.splitlines(), offset + 1):
        if line.strip(" ."):
            yield Passage("markup", [(number, line.strip())])


def _line_comments(mark: str) -> Callable[[str, int], Iterator[Passage]]:
    """Return a reader of comments that run from a mark to the end of their line."""
    pattern = re.compile(rf"(?:^|(?<=\s)){re.escape(mark)}+!?(?=\s)(.*)")

    def read(text: str, offset: int) -> Iterator[Passage]:
        found = []
        for number, line in enumerate(text.splitlines(), offset + 1):
            if match := pattern.search(line):
                found.append((number, match[1].strip(), not line[: match.start()].strip()))
        return _join_comments(found)

    return read


def _join_comments(found: list[tuple[int, str, bool]]) -> Iterator[Passage]:
    block: list[tuple[int, str]] = []
    for number, text, alone in found:
        if block and not (alone and block[-1][0] == number - 1 and text):
            yield Passage("comment", block)
            block = []
        if text:
            block.append((number, text))
    if block:
        yield Passage("comment", block)


_READERS: Final[dict[str, Callable[[str, int], Iterator[Passage]]]] = {
    ".py": read_python,
    ".md": read_markdown,
    ".lua": _line_comments("--"),
    ".go": _line_comments("//"),
    ".js": _line_comments("//"),
    ".c": _line_comments("//"),
    ".html": read_template,
    ".sh": _line_comments("#"),
    "run": _line_comments("#"),
    ".toml": _line_comments("#"),
    "Makefile": _line_comments("#"),
}
