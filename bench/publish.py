"""Write the results of a run between the markers of docs/benchmarks.md, and charts next to the page.

    python -m bench.publish found.json

FILE is what `python -m bench.run --json` has written. Exit code 1 if something had failed in that run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.contestants import Length
from bench.environments import ROOT
from bench.report import charts, facts, tables
from bench.results import Results

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE: Final = ROOT / "docs" / "benchmarks.md"
BEGIN: Final = "<!-- written by bench.publish: begin -->"
END: Final = "<!-- written by bench.publish: end -->"


def generated(results: Results) -> str:
    """Return the generated part of the page, from the results of a run."""
    images = [f"![{name}]({name})" for name in charts(results)]
    return "\n\n".join([facts(results), *images, tables(results, "###")])


def rewritten(page: str, text: str) -> str:
    """Return the page with the text between its markers replaced.

    Raises:
        ValueError: the page does not have exactly one pair of markers.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ValueError(f"the page must have the lines {BEGIN!r} and {END!r} once, in this order")
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite the page, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.publish", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("file", type=Path)
    results = Results.from_json(json.loads(parser.parse_args(arguments).file.read_text()))
    if results.failures:
        print("not published, since this failed:", *results.failures, sep="\n", file=sys.stderr)
        return 1
    if results.facts["length"] == Length.SMOKE.name.lower():
        print("not published: a smoke run measures nothing", file=sys.stderr)
        return 1
    PAGE.write_text(rewritten(PAGE.read_text(), generated(results)))
    for name, chart in charts(results).items():
        (PAGE.parent / name).write_text(chart)
    return 0


if __name__ == "__main__":
    sys.exit(main())
