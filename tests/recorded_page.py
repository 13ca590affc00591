"""Command line of the programs that record a page of docs/cli: write it, or compare it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def write_or_check(page: Path, program: str, make: Callable[[], str]) -> int:
    """Write a page; with `--check` only compare it, and return 1 if it is not current."""
    name = f"docs/{page.parent.name}/{page.name}"
    parser = argparse.ArgumentParser(description=f"Write {name}.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if the page is not current"
    )
    is_check = parser.parse_args().check
    text = make()
    if not is_check:
        page.write_text(text, "utf-8")
    elif page.read_text("utf-8") != text:
        sys.stderr.write(f"{name} is not current (run: python -m {program})\n")
        return 1
    return 0
