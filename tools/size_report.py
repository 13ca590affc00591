"""Print the sizes of files, functions, classes and argument lists, and how modules depend on each other.

Median, 95th percentile, maximum and the five largest of each size, over src/pyasynq without generated files.
Besides: import cycles, public names that several modules define, and what a task passes in the engine.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import math
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "pyasynq"
LARGEST = 5
# Modules through which a task passes between dequeue and settle.
ENGINE_PATH = ("_engine/services/processor.py", "_engine/take/", "_engine/run/", "_engine/settle/")
# Text in the first lines of a generated file.
GENERATED_MARKS = ("Generated", "Written by tools/")
# Fields of syntax nodes that hold statements, or the nodes around them: handlers and cases.
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Size(NamedTuple):
    """The size of one module, class or function, and its location."""

    size: int
    where: str


class Structure(NamedTuple):
    """Entanglement of a package: import cycles and repeated names."""

    cycles: list[list[str]]
    """Import cycles: groups of modules that import one another."""
    repeated: dict[str, list[str]]
    """Public names that several modules define, with these modules."""
    path: tuple[int, int]
    """Number of modules and of classes between dequeue and settle."""


def main() -> None:
    """Measure the package and print the report."""
    with paused_collector():
        modules = read_modules(PACKAGE)
        measured = measure(modules)
        structure = examine(modules)
    print(f"{'':<20}{'count':>7}{'median':>8}{'95 %':>7}{'most':>7}")
    for name, sizes in measured.items():
        print(summary(name, sizes))
    for name, sizes in measured.items():
        print(f"\nlargest {name}:")
        for size, where in sorted(sizes, reverse=True)[:LARGEST]:
            print(f"{size:>6}  {where}")
    print(f"\n{len(structure.cycles):>6}  import cycles, those for type checkers included")
    for cycle in structure.cycles:
        print(f"        {', '.join(cycle)}")
    print(f"{len(structure.repeated):>6}  public names that several modules define")
    for name, paths in structure.repeated.items():
        print(f"        {name}: {', '.join(paths)}")
    path_modules, path_classes = structure.path
    print(f"{path_modules:>6}  modules and {path_classes} classes between dequeue and settle")


@contextlib.contextmanager
def paused_collector() -> Iterator[None]:
    """Keep the garbage collector from walking syntax trees, which takes longer than to parse them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def examine(modules: dict[str, ast.Module]) -> Structure:
    """Return the import cycles, repeated names and path lengths of the modules."""
    return Structure(import_cycles(modules), repeated_names(modules), engine_path(modules))


def read_modules(folder: Path) -> dict[str, ast.Module]:
    """Return the syntax trees of all files that a person wrote, by their paths in the folder."""
    modules = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(mark in text[:300] for mark in GENERATED_MARKS):
            name = path.relative_to(folder).as_posix()
            modules[name] = ast.parse(text, name)
    return modules


def engine_path(modules: dict[str, ast.Module]) -> tuple[int, int]:
    """Return how many modules and classes a task passes between dequeue and settle."""
    trees = [
        tree
        for name, tree in modules.items()
        if name.startswith(ENGINE_PATH) and not name.endswith("__init__.py")
    ]
    return len(trees), sum(isinstance(node, ast.ClassDef) for tree in trees for node in tree.body)


def repeated_names(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Return the public functions, classes and constants that several modules define, with these modules."""
    definitions: dict[str, list[str]] = {}
    for path, tree in modules.items():
        for name in set(_defined_names(tree)):
            definitions.setdefault(name, []).append(path)
    return {name: paths for name, paths in sorted(definitions.items()) if len(paths) > 1}


def _defined_names(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Function):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            names = []
        yield from (name for name in names if not name.startswith("_"))


def import_cycles(modules: dict[str, ast.Module]) -> list[list[str]]:
    """Return the groups of modules that import one another, at run time or for type checkers."""
    files = {_module_name(path): path for path in modules}
    imports = {path: _imported_files(tree, files) - {path} for path, tree in modules.items()}
    reachable = {path: _reachable(path, imports) for path in modules}
    groups = {
        tuple(sorted(other for other in reachable[path] if path in reachable[other])) for path in modules
    }
    return sorted(list(group) for group in groups if len(group) > 1)


def _reachable(path: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [path]
    while waiting:
        for other in imports[waiting.pop()] - found:
            found.add(other)
            waiting.append(other)
    return found


def _module_name(path: str) -> str:
    return ".".join(["pyasynq", *path.removesuffix(".py").removesuffix("/__init__").split("/")])


def _imported_files(tree: ast.Module, files: dict[str, str]) -> set[str]:
    """Return the files that a module imports; `from package import module` counts as importing the module."""
    found = set()
    for node in _statements(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(files.get(name) or files.get(node.module, ""))
    return found - {""}


def _statements(block: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements below a node; skip expressions, which contain no statements."""
    for field in _BLOCKS:
        for inner in getattr(block, field, ()):
            if isinstance(inner, ast.stmt):
                yield inner
            yield from _statements(inner)


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


def measure(modules: dict[str, ast.Module]) -> dict[str, list[Size]]:
    """Return the sizes of modules, classes and functions, by kind of measure."""
    measured: dict[str, list[Size]] = {
        "lines of a file": [],
        "lines of a function": [],
        "lines of a class": [],
        "arguments": [],
    }
    for name, tree in modules.items():
        measured["lines of a file"].append(Size(_line_count(tree), name))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                measured["lines of a class"].append(_size_of(node, name))
            elif isinstance(node, Function):
                measured["lines of a function"].append(_size_of(node, name))
                measured["arguments"].append(Size(argument_count(node), _where(node, name)))
    return measured


def _line_count(tree: ast.Module) -> int:
    """Return the number of the last line with a statement."""
    return max((node.end_lineno or node.lineno for node in tree.body), default=0)


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
