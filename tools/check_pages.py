"""Check the Python blocks of README.md and docs/ with mypy strict.

Each block becomes a module in which its lines have the same numbers as on the page.
Names that a block uses without defining them are imported: from `tools/page_names/PAGE.pyi`, from the latest
block of the page that defines them at its top level, from `tools/page_names/every_page.pyi`, from `pyasynq`,
or from the standard library.
A block that begins with `# path/name.py` is that module, which other blocks of its page may import.
A block that awaits outside a function becomes the body of a coroutine function.

A comment above a block leaves it out: `<!-- not type-checked: the reason -->`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import re
import subprocess
import symtable
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyasynq

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT: Final = Path(__file__).resolve().parent.parent
NAMES: Final = "tools/page_names"
FOLDER: Final = ".mypy_cache/pages"

STANDARD: Final = {
    "asyncio": "",
    "json": "",
    **dict.fromkeys(("UTC", "date", "datetime", "timedelta"), "datetime"),
    **dict.fromkeys(
        ("AsyncGenerator", "AsyncIterator", "Awaitable", "Callable", "Sequence"), "collections.abc"
    ),
    "asynccontextmanager": "contextlib",
    "dataclass": "dataclasses",
    **dict.fromkeys(("Any", "Literal"), "typing"),
}
"""Names of the standard library that blocks need not import, with their modules; empty for a module."""

# The reader replaces bodies of `...`, and later blocks use imports of earlier ones.
_RELAXED: Final = '# mypy: disable-error-code="empty-body", implicit-reexport'
_LEFT_OUT: Final = re.compile(r"<!-- not type-checked: (.+) -->")
_OPENING: Final = re.compile(r"( *)```python\s*")
_MODULE: Final = re.compile(r"# ([\w/]+)\.py")
_ERROR: Final = re.compile(r"(.+?):(\d+)(: \w+: .*)")


class Block(NamedTuple):
    """A Python block of a page.

    Attributes:
        line: number of the line of its opening fence.
        left_out: the reason why it is not checked; empty if it is.
    """

    line: int
    source: str
    left_out: str

    @property
    def module(self) -> str:
        """Path of its module within the page's package, without an ending."""
        named = _MODULE.match(self.source)
        return named[1] if named else f"line_{self.line}"


class UnknownNameError(Exception):
    """A block uses a name that has no origin."""


def list_pages(root: Path = ROOT) -> list[Path]:
    """Return the pages whose blocks are checked."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def read_blocks(page: str) -> list[Block]:
    """Return the Python blocks of a page."""
    blocks: list[Block] = []
    lines = iter(enumerate(page.splitlines(), start=1))
    reason = ""
    for number, line in lines:
        opening = _OPENING.fullmatch(line)
        if opening is None:
            if line.strip():
                left_out = _LEFT_OUT.fullmatch(line.strip())
                reason = left_out[1] if left_out else ""
            continue
        code: list[str] = []
        for _, inner in lines:
            if inner.strip() == "```":
                break
            code.append(inner.removeprefix(opening[1]))
        blocks.append(Block(number, "\n".join(code) + "\n", reason))
        reason = ""
    return blocks


def awaits(source: str) -> bool:
    """Return whether a block has an `await` outside a function."""
    code = compile(source, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return bool(code.co_flags & inspect.CO_COROUTINE)


def wrap_awaits(source: str) -> tuple[str, int]:
    """Return a block as a module, and how many lines more it has.

    Statements from the first one that awaits become the body of a coroutine function. A blank line or a
    comment before them becomes its head. Without such a line, the function has the whole block and a line
    more.
    """
    lines = source.splitlines()
    for statement in ast.parse(source).body:
        if awaits(ast.unparse(statement)):
            first = statement.lineno - 1
            break
    else:
        return source, 0
    head, tail = "\n".join(lines[: first - 1]), "\n".join(lines[first:])
    is_free = first > 0 and (not lines[first - 1] or lines[first - 1].startswith("#"))
    if is_free and not find_defined_names(head) & find_defined_names(_to_function(tail), "block"):
        return f"{head}\n{_to_function(tail)}\n", 0
    return f"{_to_function(source)}\n", 1


def _to_function(source: str) -> str:
    return f"async def block() -> None:\n{textwrap.indent(source, '    ')}"


def find_defined_names(source: str, function: str = "") -> set[str]:
    """Return the names that a module binds at its top level, or its one function in its body."""
    table = symtable.symtable(source, "module", "exec")
    if function:
        table = table.lookup(function).get_namespace()
    return {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}


def find_free_names(source: str) -> set[str]:
    """Return the names that a module uses and does not bind, without those of Python itself."""

    def walk(table: symtable.SymbolTable) -> Iterator[str]:
        for one in table.get_symbols():
            if one.is_referenced() and (one.is_global() or table.get_type() == "module"):
                yield one.get_name()
        for inner in table.get_children():
            yield from walk(inner)

    used = set(walk(symtable.symtable(source, "block", "exec")))
    return used - find_defined_names(source) - set(dir(builtins)) - {"__name__", "__file__"}


def read_stub(path: Path) -> dict[str, str]:
    """Return the names that the stub of a page defines, each with its import."""
    if not path.exists():
        return {}
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    defined = find_defined_names(path.read_text("utf-8"))
    imported = {
        alias.asname or alias.name
        for statement in ast.parse(path.read_text("utf-8")).body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for alias in statement.names
    }
    annotated = {
        statement.target.id
        for statement in ast.parse(path.read_text("utf-8")).body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }
    return {name: f"from {module} import {name}" for name in (defined | annotated) - imported}


class Page:
    """The modules of one page.

    Args:
        path: the Markdown file.
        root: the folder of the project.
    """

    def __init__(self, path: Path, root: Path = ROOT) -> None:
        name = path.relative_to(root).with_suffix("").as_posix().removeprefix("docs/")
        self.name = re.sub(r"\W", "_", name).lower()
        self.package = f"page_{self.name}"
        self.path = path.relative_to(root).as_posix()
        self.blocks = read_blocks(path.read_text("utf-8"))

    def modules(self, stub: Mapping[str, str], common: Mapping[str, str]) -> dict[str, str]:
        """Return the source of each module by its path, without an ending.

        Args:
            stub: import of each name that the page's readers have.
            common: those of the readers of any page.

        Raises:
            UnknownNameError: a name has no origin.
        """
        named = {block.module.partition("/")[0] for block in self.blocks if _MODULE.match(block.source)}
        earlier: dict[str, str] = {}
        modules: dict[str, str] = {}
        for block in self.blocks:
            if block.left_out:
                continue
            source, lines_before = wrap_awaits(self._rewrite_imports(block.source, named))
            modules[block.module] = self._build(block, source, {**common, **earlier, **stub}, lines_before)
            where = f"from {self.package}.{block.module.replace('/', '.')} import"
            earlier |= {name: f"{where} {name}" for name in find_defined_names(source) - {"block"}}
        return modules

    def _rewrite_imports(self, source: str, named: Iterable[str]) -> str:
        """Rewrite imports of modules that are blocks of this page, so that they are found."""
        for top in named:
            source = re.sub(
                rf"^(\s*)from {top}([. ])", rf"\1from {self.package}.{top}\2", source, flags=re.MULTILINE
            )
        return source

    def _build(self, block: Block, source: str, known: Mapping[str, str], lines_before: int) -> str:
        """Return a module whose lines have the numbers that they have on the page."""
        imports = [self._find_import(name, block, known) for name in sorted(find_free_names(source))]
        before = [_RELAXED, "; ".join(imports)]
        padding = [""] * (block.line - lines_before - len(before))
        return "\n".join([*before, *padding, source])

    def _find_import(self, name: str, block: Block, known: Mapping[str, str]) -> str:
        if name in known:
            return known[name]
        if name in pyasynq.__all__:
            return f"from pyasynq import {name}"
        if name in STANDARD:
            module = STANDARD[name]
            return f"from {module} import {name}" if module else f"import {name}"
        raise UnknownNameError(
            f"{self.path}:{block.line}: the block uses {name!r}, which it does not define: "
            f"import it there, or declare it in {NAMES}/{self.name}.pyi"
        )


def write_modules(folder: Path) -> dict[str, str]:
    """Write the modules of all pages; return the page of each file.

    Raises:
        UnknownNameError: a name of some block has no origin.
    """
    pages: dict[str, str] = {}
    common = read_stub(ROOT / NAMES / "every_page.pyi")
    for path in list_pages():
        page = Page(path)
        stub = read_stub(ROOT / NAMES / f"{page.name}.pyi")
        for module, source in page.modules(stub, common).items():
            file = folder / page.package / f"{module}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            # An unchanged file keeps its time, so that mypy need not read it again.
            if not file.exists() or file.read_text("utf-8") != source:
                file.write_text(source, encoding="utf-8")
            pages[file.relative_to(ROOT).as_posix()] = page.path
    return pages


def run_mypy(files: Iterable[str]) -> tuple[str, int]:
    """Return what mypy prints about these files, and its exit code."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-warn-unused-configs", *files]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": FOLDER},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr, done.returncode


def name_pages(report: str, pages: Mapping[str, str]) -> str:
    """Return mypy's report with the names of pages in place of the files made from them."""
    lines = []
    for line in report.splitlines():
        found = _ERROR.fullmatch(line)
        lines.append(f"{pages[found[1]]}:{found[2]}{found[3]}" if found and found[1] in pages else line)
    return "\n".join(lines)


def main() -> int:
    """Check all pages; return 1 if a block has an error."""
    try:
        pages = write_modules(ROOT / FOLDER)
    except UnknownNameError as error:
        print(error)
        return 1
    report, code = run_mypy(sorted(pages))
    print(name_pages(report, pages) if code else f"{len(pages)} Python blocks of pages have no type errors")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
