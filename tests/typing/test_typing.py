"""mypy and pyright find nothing in good.py, and in bad.py exactly what its comments say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

# A type checker reads the whole package first.
pytestmark = pytest.mark.long

FOLDER = Path(__file__).parent
SOURCES = FOLDER.parent.parent / "src"
CACHE = FOLDER.parent.parent / ".mypy_cache" / "typing"
PROGRAMS = {FOLDER / "good.py", FOLDER / "bad.py"}


def marked_lines(program: Path) -> set[int]:
    """Return the numbers of the lines that carry `# E:`."""
    lines = program.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if "# E: " in line}


def mypy_errors(cache: Path) -> dict[Path, set[int]]:
    """Return the lines that mypy finds wrong, strictly, in each program.

    Args:
        cache: what mypy knows of unchanged files from earlier runs; an empty one costs ten seconds.
    """
    command = [sys.executable, "-m", "mypy", "--config-file=", "--strict", "--no-error-summary"]
    options = [
        "--follow-imports=silent",
        f"--cache-dir={cache}",
        "--python-version=3.11",
        "--show-absolute-path",
    ]
    found = subprocess.run(
        [*command, *options, "--show-absolute-path", *map(str, sorted(PROGRAMS))],
        env={**os.environ, "MYPYPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not found.stderr
    errors: dict[Path, set[int]] = {program: set() for program in PROGRAMS}
    for match in re.finditer(r"^(.+?):(\d+): error:", found.stdout, re.MULTILINE):
        errors[Path(match[1])].add(int(match[2]))
    return errors


def pyright_errors() -> dict[Path, set[int]]:
    """Return the lines that pyright finds wrong, strictly, in each program."""
    found = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(FOLDER)],
        capture_output=True,
        text=True,
        check=False,
    )
    errors: dict[Path, set[int]] = {program: set() for program in PROGRAMS}
    for one in json.loads(found.stdout)["generalDiagnostics"]:
        if one["severity"] == "error":
            errors[Path(one["file"])].add(one["range"]["start"]["line"] + 1)
    return errors


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def errors(request: pytest.FixtureRequest) -> dict[Path, set[int]]:
    """The findings of each type checker in turn."""
    if request.param == "mypy":
        return mypy_errors(CACHE)
    return pyright_errors()


def test_right_arguments_and_options_are_not_errors(errors: dict[Path, set[int]]) -> None:
    """Not one finding in good.py, which also asserts the types of what comes back."""
    assert set() == errors[FOLDER / "good.py"]


def test_wrong_arguments_and_options_are_errors_on_their_lines(errors: dict[Path, set[int]]) -> None:
    """Each marked line of bad.py and no other."""
    marked = marked_lines(FOLDER / "bad.py")
    assert len(marked) > 25
    assert marked == errors[FOLDER / "bad.py"]


def test_the_example_of_a_shop_is_strict_under_pyright() -> None:
    """An application with all features; mypy checks it together with the package."""
    project = str(FOLDER / "shop.pyrightconfig.json")
    found = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", project],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(found.stdout)
    assert 5 < report["summary"]["filesAnalyzed"]
    assert [] == [
        f"{one['file']}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in report["generalDiagnostics"]
        if one["severity"] == "error"
    ]
