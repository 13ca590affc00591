"""The figures that the demo reads from a source file's tokens."""

from __future__ import annotations

import ast
import io
import tokenize
from typing import TYPE_CHECKING

import pytest

from pyasynq.cli.demo.analysis import SourceFacts, analyze_file, analyze_tokens
from pyasynq.cli.demo.sources import find_sources, plant_broken_files, standard_library

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SOURCE = '''\
"""A module."""
import os, sys.path as path
from collections.abc import Mapping
from . import sibling
from .other import thing


class Shop:
    @property
    def name(self) -> str:  # one line of code
        return "shop"

    async def open(
        self,
    ) -> None:
        def inner() -> None: ...

        inner()


x = 1  # ends every block
'''


def _analyze(source: str) -> SourceFacts:
    return analyze_tokens(tokenize.generate_tokens(io.StringIO(source).readline))


def test_functions_classes_and_lines_are_counted() -> None:
    """Methods, coroutines and inner functions count; lines end with the last statement."""
    facts = _analyze(SOURCE)
    assert (3, 1) == (facts.functions, facts.classes)
    assert 21 == facts.lines


def test_the_longest_function_reaches_from_def_to_its_last_statement() -> None:
    """Decorators before and blank lines after it are not counted."""
    facts = _analyze(SOURCE)
    assert ("open", 6) == (facts.longest_function, facts.longest_function_lines)


def test_imports_are_top_level_names_without_relative_ones() -> None:
    """`import a.b` is an import of `a`; `from .x` stays in the package."""
    assert ("collections", "os", "sys") == _analyze(SOURCE).imports


def test_imports_are_found_wherever_a_statement_may_stand() -> None:
    """A statement after a semicolon or inside a block is a statement."""
    assert ("json", "re") == _analyze("x = 1; import json\nif x:\n    import re\n").imports


def test_an_empty_file_has_no_figures() -> None:
    """No statement, no line."""
    assert SourceFacts(0, 0, 0, "", 0, ()) == _analyze("")


def test_the_figures_agree_with_the_syntax_tree() -> None:
    """The tokens match those of Python's own parser, on a package of the standard library."""
    for path in find_sources(standard_library() / "asyncio"):
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
        functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        lengths = [(node.end_lineno or 0) - node.lineno + 1 for node in functions]
        facts = analyze_file(path)
        expected = (
            len(functions),
            sum(isinstance(node, ast.ClassDef) for node in nodes),
            max(lengths, default=0),
        )
        assert expected == (facts.functions, facts.classes, facts.longest_function_lines), path


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("bad_encoding.py", (SyntaxError, UnicodeDecodeError)),
        ("inconsistent_dedent.py", IndentationError),
        ("unclosed_string.py", (tokenize.TokenError, SyntaxError)),
    ],
)
def test_each_planted_file_is_broken_in_its_own_way(
    name: str, error: type[Exception] | tuple[type[Exception], ...], tmp_path: Path
) -> None:
    """The files of the package fail as their names say."""
    planted = {path.name: path for path in plant_broken_files(tmp_path / "planted")}
    with pytest.raises(error):
        analyze_file(planted[name])


def test_exactly_three_files_are_planted(tmp_path: Path) -> None:
    """The summary counts on three."""
    assert 3 == len(plant_broken_files(tmp_path / "planted"))


def test_a_string_that_ends_with_its_line_is_an_error() -> None:
    """Python 3.11's tokenizer hands out such a quote as a token instead of raising."""
    with pytest.raises((tokenize.TokenError, SyntaxError)):
        _analyze("x = 'abc\n")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that makes an empty file at a relative path."""

    def write(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return path

    return write


def test_sources_are_python_files_outside_installed_and_hidden_folders(
    tmp_path: Path, write: Callable[[str], Path]
) -> None:
    """Packages of others and caches are not the folder's own sources."""
    wanted = (write("a.py"), write("pkg/b.py"))
    for name in ("site-packages/c.py", ".venv/d.py", "pkg/__pycache__/e.py", "f.txt"):
        write(name)
    assert wanted == find_sources(tmp_path)
