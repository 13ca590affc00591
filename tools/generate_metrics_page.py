"""Write the tables of metrics in docs/metrics.md from the table that collectors fill.

python tools/generate_metrics_page.py           write them
python tools/generate_metrics_page.py --check   say whether they are current; exit code 1 if not
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from pyasynq.metrics.families import FAMILIES, Family, MetricType, Origin

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
TABLES: Final = re.compile(r"(?<=<!-- metrics -->\n).*?(?=<!-- end of metrics -->)", re.DOTALL)


def tables() -> str:
    """Return a table for each process that counts metrics, as Markdown."""
    parts = []
    for origin in Origin:
        rows = [_row(family) for family in FAMILIES.values() if family.origin is origin]
        parts.append(
            f"\nFrom {origin.value}:\n\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n"
            + "\n".join(rows)
        )
    return "\n".join(parts) + "\n\n"


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    text = family.help
    if family.kind is MetricType.HISTOGRAM:
        text += f" Buckets: {', '.join(f'{bound:g}' for bound in family.bounds)}."
    return f"| `{family.name}` | {family.kind.value} | {labels} | {text} |"


def page_with_tables(text: str) -> str:
    """Return the page with the tables that the code has now."""
    if not TABLES.search(text):
        raise ValueError(f"{PAGE.name} has no place for the tables")
    return TABLES.sub(lambda _: tables(), text)


def main(arguments: list[str]) -> int:
    """Write or check the tables; return the exit code."""
    text = PAGE.read_text("utf-8")
    wanted = page_with_tables(text)
    if text == wanted:
        return 0
    if "--check" in arguments:
        sys.stderr.write("docs/metrics.md does not have the metrics of the code: run `make sync`\n")
        return 1
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
