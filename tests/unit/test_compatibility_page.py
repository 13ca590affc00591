"""The page on compatibility claims nothing without a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "compatibility.md").read_text("utf-8")
HEADER = "| Feature | Go→Python | Python→Go | Mixed | asynqmon | Go CLI |"
DEFINITIONS = re.findall(r'^\[([^\]]+)\]: (\S+) "(\w+)"$', PAGE, re.MULTILINE)
REFERENCE = re.compile(r"\[[^\]]+\]\[([^\]]+)\]")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and line != HEADER
]
WITHOUT_A_TEST = re.compile(r"not tested yet|\u2013|no(: .+)?")


@pytest.mark.parametrize(("name", "file", "test"), DEFINITIONS, ids=lambda part: part)
def test_every_named_test_exists(name: str, file: str, test: str) -> None:
    """The test is in the file that the page links to."""
    path = DOCS / file
    assert path.is_file(), name
    assert re.search(rf"^(async )?def {test}\(", path.read_text("utf-8"), re.MULTILINE), name


def test_every_cell_names_its_test_or_says_that_there_is_none() -> None:
    """Six cells in each row; `no` comes with a reason where others work."""
    assert len(ROWS) > 40
    for row in ROWS:
        assert len(row) == 6, row
        for cell in row[1:]:
            assert REFERENCE.search(cell) or WITHOUT_A_TEST.fullmatch(cell), (row[0], cell)


def test_every_reference_is_defined_once_and_used() -> None:
    """A test that is named for nothing is left over from a row that is gone."""
    defined = [name for name, _, _ in DEFINITIONS]
    assert len(defined) == len(set(defined))
    assert set(REFERENCE.findall(PAGE)) == set(defined)


def test_features_are_told_once() -> None:
    """All tables together."""
    features = [row[0] for row in ROWS]
    assert len(features) == len(set(features))


def test_every_table_has_the_same_columns() -> None:
    """Each section begins with the same header."""
    assert PAGE.count(HEADER) == len(re.findall(r"^\|---", PAGE, re.MULTILINE)) > 5
