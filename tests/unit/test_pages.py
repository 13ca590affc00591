"""docs/README.md leads to every page."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
SECTIONS = re.split(r"^## ", (DOCS / "README.md").read_text("utf-8"), flags=re.MULTILINE)
PAGES = {path.name for path in DOCS.glob("*.md")} - {"README.md"}


def test_every_page_is_listed_once_under_its_kind() -> None:
    """Tutorial, how-to, reference or explanation; questions above these sections may name it again."""
    listed = [name for section in SECTIONS[1:] for name in re.findall(r"\]\(([\w-]+\.md)\)", section)]

    assert sorted(PAGES) == sorted(listed), "list each page once in docs/README.md"


def test_the_kinds_of_pages_are_told_apart() -> None:
    """The four kinds of Diátaxis, in the order in which a reader needs them."""
    kinds = [section.partition("\n")[0] for section in SECTIONS[1:]]

    assert ["Tutorial", "How-to", "Reference", "Explanation"] == kinds


def test_the_glossary_has_each_word_once_in_order() -> None:
    """A reader finds a word by its letter, and it has one meaning."""
    contributing = (DOCS.parent / "CONTRIBUTING.md").read_text("utf-8")
    rows = contributing.partition("## Glossary")[2].partition("\n## ")[0].splitlines()
    words = [row.split("|")[1].strip() for row in rows if row.startswith("| ")][1:]

    assert len(words) > 50
    assert sorted(set(words)) == words
