"""The checker of Python blocks of pages: which modules it makes of them, and what it says of their errors."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tools.check_pages import (
    ROOT,
    Page,
    UnknownNameError,
    awaits,
    list_pages,
    name_pages,
    read_blocks,
    read_stub,
    wrap_awaits,
)

if TYPE_CHECKING:
    from pathlib import Path

COMMON = {"client": "from tools.page_names.every_page import client"}


def make_page(folder: Path, text: str) -> Page:
    """Return a page with this text."""
    path = folder / "docs" / "a-page.md"
    path.parent.mkdir()
    path.write_text(dedent(text), encoding="utf-8")
    return Page(path, folder)


def modules(folder: Path, text: str) -> dict[str, list[str]]:
    """Return the lines of the modules of a page with this text, without comments and blank lines."""
    made = make_page(folder, text).modules({}, COMMON)
    return {
        name: [line for line in source.splitlines() if line and not line.startswith("#")]
        for name, source in made.items()
    }


def test_names_come_from_earlier_blocks_from_stubs_and_from_libraries(tmp_path: Path) -> None:
    """In this order, the first that knows a name; later blocks hide earlier ones."""
    page = """
        # A page

        ```python
        app = App()
        client = Client("redis://localhost")
        ```

        ```python
        later = app, client, timedelta, asyncio, Queue
        ```
    """
    _, second = modules(tmp_path, page).values()

    earlier = "from page_a_page.line_4 import"
    [imports, code] = second
    assert "later = app, client, timedelta, asyncio, Queue" == code
    assert {
        "from pyasynq import Queue",
        f"{earlier} app",
        f"{earlier} client",
        "import asyncio",
        "from datetime import timedelta",
    } == set(imports.split("; "))


def test_the_names_of_a_page_come_first(tmp_path: Path) -> None:
    """They say what the page means where a block above has another thing of that name."""
    page = make_page(tmp_path, "#\n```python\napp = 1\n```\n\n```python\nprint(app)\n```\n")

    assert "from stub import app" in page.modules({"app": "from stub import app"}, COMMON)["line_6"]


def test_an_unknown_name_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    """It has page and line of the block, and the file for the name."""
    page = make_page(tmp_path, "# A page\n\n```python\nprint(unheard_of)\n```\n")

    with pytest.raises(
        UnknownNameError, match=r"docs/a-page.md:3: .*'unheard_of'.*tools/page_names/a_page\.pyi"
    ):
        page.modules({}, {})


def test_lines_have_the_numbers_that_they_have_on_the_page(tmp_path: Path) -> None:
    """Also in a block that becomes a coroutine function as a whole, or from a blank line on."""
    text = """
        # A page

        ```python
        await client.ping()
        print("line 6")
        ```

        ```python
        number = 1

        await client.ping()
        print("line 13")
        ```

        ```python
        # shop/tasks.py
        print("line 18")
        ```
    """
    page = make_page(tmp_path, text)
    sources = page.modules({}, COMMON)

    assert ["line_4", "line_9", "shop/tasks"] == list(sources)
    lines = [(number, line) for one in sources.values() for number, line in enumerate(one.splitlines(), 1)]
    found = {int(match[1]): number for number, line in lines if (match := re.search(r'"line (\d+)"', line))}
    assert {6: 6, 13: 13, 18: 18} == found


def test_a_named_block_is_a_module_that_others_import(tmp_path: Path) -> None:
    """Under the name of the page, since other pages have modules of that name too."""
    page = "#\n```python\n# shop/tasks.py\nnumber = 1\n```\n\n```python\nfrom shop.tasks import number\n```\n"

    assert ["from page_a_page.shop.tasks import number"] == modules(tmp_path, page)["line_7"]


def test_a_block_is_left_out_with_a_reason(tmp_path: Path) -> None:
    """The comment is for the next block alone."""
    page = """
        <!-- not type-checked: a reason -->
        ```python
        unknown
        ```

        ```python
        known = 1
        ```
    """
    assert ["line_7"] == list(modules(tmp_path, page))


@pytest.mark.parametrize(
    ("source", "expected"),
    [("a = 1", False), ("await a", True), ("async with a: ...", True), ("async def f(): await a", False)],
)
def test_awaiting_outside_a_function_is_seen(source: str, expected: bool) -> None:
    """Python compiles it only on request."""
    assert expected == awaits(source)


def test_a_name_that_is_bound_before_and_behind_an_await_stays_one_name() -> None:
    """Otherwise the function would have a variable of its own, without the first value."""
    source = "cursor = 0\n\nawait a\ncursor = 1\n"
    wrapped, more = wrap_awaits(source)

    assert 1 == more
    assert wrapped.startswith("async def block() -> None:\n    cursor = 0\n")


def test_errors_are_those_of_pages() -> None:
    """Other lines stay as they are."""
    report = "x/a.py:7: error: wrong  [misc]\nsrc/b.py:1: note: other\n"

    assert "docs/a.md:7: error: wrong  [misc]\nsrc/b.py:1: note: other" == name_pages(
        report, {"x/a.py": "docs/a.md"}
    )


def test_few_blocks_are_left_out() -> None:
    """They need an application of the reader, or join libraries whose types do not fit."""
    left_out = [one for page in list_pages() for one in read_blocks(page.read_text("utf-8")) if one.left_out]

    assert 3 >= len(left_out)


def test_every_name_of_a_page_is_used() -> None:
    """Each stub belongs to a page, and some block of it uses each of its names."""
    pages = {page.name: page for page in map(Page, list_pages())}
    for stub in (ROOT / "tools" / "page_names").glob("*.pyi"):
        names = read_stub(stub)
        used = pages.values() if stub.stem == "every_page" else [pages[stub.stem]]
        text = "\n".join(block.source for page in used for block in page.blocks)
        assert [] == [name for name in names if not name.startswith("_") and name not in text]
