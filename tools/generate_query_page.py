"""Write the table of fields in docs/query.md from the table that queries are read with.

python tools/generate_query_page.py           write it
python tools/generate_query_page.py --check   say whether it is current; exit code 1 if not
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from pyasynq.operations.query import FIELDS, Field
from pyasynq.task import TaskState

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "query.md"
TABLE: Final = re.compile(r"(?<=<!-- fields -->\n).*?(?=<!-- end of fields -->)", re.DOTALL)


def table() -> str:
    """Return the table of fields as Markdown."""
    head = ("Field", "Example", "Compared with", "States", "How it is answered")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += [_row(field) for field in FIELDS.values()]
    return "\n".join(lines) + "\n"


def _row(field: Field) -> str:
    if field.has_path:
        name = f"{field.name}…:"
    else:
        name = field.name if field.kind.name == "FLAG" else f"{field.name}:"
    states = [state.value for state in TaskState if state in field.states]
    cells = [
        f"`{name}`" + (" \N{LOCK}" if field.is_private else ""),
        f"`{field.example}`",
        f"{field.meaning}: {field.kind.value}" if field.kind.name != "FLAG" else field.meaning,
        "all" if len(states) == len(TaskState) else ", ".join(states),
        field.answered.value,
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def page_with_table(text: str) -> str:
    """Return the page with the table that the code has now."""
    if not TABLE.search(text):
        raise ValueError(f"{PAGE.name} has no place for the table of fields")
    return TABLE.sub(lambda _: table(), text)


def main(arguments: list[str]) -> int:
    """Write or check the table; return the exit code."""
    text = PAGE.read_text("utf-8")
    wanted = page_with_table(text)
    if text == wanted:
        return 0
    if "--check" in arguments:
        sys.stderr.write("docs/query.md does not have the fields of the code: run `make sync`\n")
        return 1
    PAGE.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
