"""Print how large files, functions, classes and argument lists are: a smell test that never fails.

Median, 95th percentile, maximum and the five largest of each, over src/pyasynq without generated files.
"""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "pyasynq"
LARGEST = 5
# What the first lines of a file say that a program wrote.
GENERATED_MARKS = ("Generated", "Written by tools/")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Size(NamedTuple):
    """The size of one thing and where it stands."""

    size: int
    where: str


def main() -> None:
    """Measure the package and print the report."""
    measured = measure(PACKAGE)
    print(f"{'':<20}{'count':>7}{'median':>8}{'95 %':>7}{'most':>7}")
    for name, sizes in measured.items():
        print(summary(name, sizes))
    for name, sizes in measured.items():
        print(f"\nlargest {name}:")
        for size, where in sorted(sizes, reverse=True)[:LARGEST]:
            print(f"{size:>6}  {where}")


def summary(name: str, sizes: list[Size]) -> str:
    """Return one line of the table."""
    numbers = sorted(size for size, _ in sizes)
    if not numbers:
        return f"{name:<20}{0:>7}"
    columns = (percentile(numbers, 50), percentile(numbers, 95), numbers[-1])
    return f"{name:<20}{len(numbers):>7}" + "".join(
        f"{column:>{width}}" for column, width in zip(columns, (8, 7, 7), strict=True)
    )


def percentile(ordered: list[int], percent: int) -> int:
    """Return the smallest number that at least `percent` % of the numbers do not exceed."""
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def measure(folder: Path) -> dict[str, list[Size]]:
    """Return the sizes of everything below a folder, by what was measured."""
    measured: dict[str, list[Size]] = {
        "lines of a file": [],
        "lines of a function": [],
        "lines of a class": [],
        "arguments": [],
    }
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(mark in text[:300] for mark in GENERATED_MARKS):
            continue
        name = str(path.relative_to(folder))
        measured["lines of a file"].append(Size(len(text.splitlines()), name))
        for node in ast.walk(ast.parse(text, name)):
            if isinstance(node, ast.ClassDef):
                measured["lines of a class"].append(_size_of(node, name))
            elif isinstance(node, Function):
                measured["lines of a function"].append(_size_of(node, name))
                measured["arguments"].append(Size(argument_count(node), _where(node, name)))
    return measured


def argument_count(function: Function) -> int:
    """Return how many arguments a caller may pass; `self` and `cls` are not among them."""
    arguments = function.args
    named = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if named[:1] in (["self"], ["cls"]):
        del named[0]
    return len(named) + (arguments.vararg is not None) + (arguments.kwarg is not None)


def _size_of(node: Function | ast.ClassDef, name: str) -> Size:
    return Size((node.end_lineno or node.lineno) - node.lineno + 1, _where(node, name))


def _where(node: Function | ast.ClassDef, name: str) -> str:
    return f"{name}:{node.lineno} {node.name}"


if __name__ == "__main__":
    main()
