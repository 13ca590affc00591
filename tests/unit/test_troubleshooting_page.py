"""docs/troubleshooting.md explains messages as the code writes them."""

from __future__ import annotations

import ast
import logging
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyasynq._engine.logs import _LINES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pyasynq"
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
MESSAGES = re.findall(r"^### `(.*)`$", PAGE, re.MULTILINE)
PLACEHOLDER = re.compile(r"%[-\d.,]*[a-z]|\{[^{}]*\}")


def normalize(text: str) -> str:
    """Write each part of a message that varies as `…`."""
    return re.sub(r"…+", "…", PLACEHOLDER.sub("…", text))


def render(node: ast.AST) -> str | None:
    """Return the text of a string literal or an f-string, with `…` for its expressions."""
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        return "".join(str(part) for part in parts)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _messages_of_the_code() -> Iterator[str]:
    for path in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            text = render(node)
            if text is not None and id(node) not in docstrings:
                yield " ".join(normalize(text).split())


@cache
def messages_of_the_code() -> str:
    """Return all strings of the package, except docstrings. Each process that collects tests imports this."""
    return "\n".join(set(_messages_of_the_code()))


@pytest.mark.parametrize("message", MESSAGES)
def test_every_heading_is_a_message_of_the_code(message: str) -> None:
    """A final `…` leaves out the rest of the message."""
    assert message.removesuffix("…").rstrip() in messages_of_the_code()


@pytest.mark.parametrize("line", [text for kind, level, text in _LINES if level >= logging.WARNING])
def test_every_warning_of_a_worker_is_explained(line: str) -> None:
    """A warning whose text comes with its event is explained under the text."""
    text = " ".join(normalize(line).split())
    explained = [message for message in MESSAGES if message.removesuffix("…").rstrip() in text]

    assert text == "…" or explained, "give it a heading in docs/troubleshooting.md"


def test_a_changed_message_is_noticed() -> None:
    """The patterns find the headings, and a message that the code does not have is not found."""
    assert len(MESSAGES) > 40
    assert "the handler was not found for task" not in messages_of_the_code()
