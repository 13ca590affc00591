"""The page on the architecture names files, functions and floors that exist."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pyasynq"
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
PICTURE = re.search(r"^```\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PATHS = sorted(set(re.findall(r"`([\w./]+(?:\.py|\.lua|\.md|/))(?=[:`])", PAGE)))
PLACES = sorted(set(re.findall(r"`([\w./]+\.py): ([\w.]+)`", PAGE)))


def find(path: str) -> Path:
    """Return a path of the page: those that are not below the package are told from the root."""
    return ROOT / path if path.startswith(("docs/", "tests/", "src/")) else PACKAGE / path


def names_in(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[str]:
    """Yield what a module defines at its top, and what its classes define: `Class.method`."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from names_in(node.body, f"{prefix}{node.name}.")
        targets = node.targets if isinstance(node, ast.Assign) else ()
        for target in (node.target,) if isinstance(node, ast.AnnAssign) else targets:
            if isinstance(target, ast.Name):
                yield prefix + target.id


def is_defined(path: str, name: str) -> bool:
    """Return whether a file defines a name."""
    return name in names_in(ast.parse(find(path).read_text("utf-8")).body)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path: str) -> None:
    """A file, or a folder if it ends in a slash."""
    assert find(path).is_dir() if path.endswith("/") else find(path).is_file()


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_every_name_is_defined_in_its_file(path: str, name: str) -> None:
    """A function, a class, a method, a field or a constant."""
    assert is_defined(path, name)


def test_the_page_names_what_it_tells_of() -> None:
    """The patterns above find what the page writes: a change of its notation must not end the checks."""
    assert len(PATHS) > 40
    assert len(PLACES) > 40
    assert PAGE.count(".py: ") == len(re.findall(r"`[\w./]+\.py: [\w.]+`", PAGE))


@pytest.mark.parametrize(
    "name", ["Processor.rounds", "round", "Processor.Service", "Processors.round", "annotations"]
)
def test_a_name_that_a_file_does_not_define_is_found_out(name: str) -> None:
    """Neither a method without its class, nor what is imported."""
    assert is_defined("_engine/services/processor.py", "Processor.round")
    assert not is_defined("_engine/services/processor.py", name)


def test_the_floors_are_those_that_imports_are_held_to() -> None:
    """All modules, in the order of `pyproject.toml`."""
    assert PICTURE is not None
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
    [layers] = [one["layers"] for one in tools["importlinter"]["contracts"] if one["id"] == "floors"]
    told = [name for line in PICTURE[1].splitlines() for name in line.split("|")[1].split()]

    assert re.findall(r"\w+", " ".join(layers)) == told
