"""Results as Markdown: a table for each measurement, and notes for the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench import goals
from bench.chart import bars

if TYPE_CHECKING:
    from bench.figures import Figure, Summary
    from bench.results import Results, Row, Table

NOTHING: Final = ""
CHARTED: Final = ("drain", "enqueue")


def markdown(results: Results) -> str:
    """Return the whole report as Markdown."""
    parts = [facts(results), goals.as_markdown(results), tables(results)]
    if results.failures:
        parts.append("## What failed\n\n" + "\n".join(f"- {failure}" for failure in results.failures))
    return "\n\n".join(part for part in parts if part) + "\n"


def tables(results: Results, heading: str = "##") -> str:
    """Return the tables of all measurements, and the list of measured peers."""
    parts = [table_of(table, heading) for table in results.tables.values() if table.rows]
    return "\n\n".join([*parts, peers(results, heading)])


def facts(results: Results) -> str:
    """Return the machine, servers and versions of the measurement."""
    return "\n".join(f"- {name}: {value}" for name, value in results.facts.items())


def table_of(table: Table, heading: str = "##") -> str:
    """Return the table of one measurement."""
    figures = [
        figure for figure in table.figures if any(row.values(figure.name) for row in table.rows.values())
    ]
    comparisons = _comparisons(table, figures)
    headings = ["", *(figure.heading for figure in figures), *comparisons]
    lines = [f"{heading} {table.title}", "", *table.notes, *([""] if table.notes else [])]
    lines += [_line(headings), _line(["---", *["--:"] * (len(headings) - 1)])]
    for row in table.rows.values():
        cells = [shown(row.summary(figure.name), figure.digits) for figure in figures]
        lines.append(
            _line([row.title, *cells, *(_compared(table, row, figures[0], name) for name in comparisons)])
        )
    return "\n".join(lines)


def shown(found: Summary | None, digits: int) -> str:
    """Return a median and its range: `1,234 [1,100-1,300]`."""
    if found is None:
        return NOTHING
    middle = f"{found.median:,.{digits}f}"
    if found.count == 1:
        return middle
    return f"{middle} [{found.least:,.{digits}f}-{found.most:,.{digits}f}]"


def peers(results: Results, heading: str = "##") -> str:
    """Return the setup of each peer, and the fate of its tasks after a crash."""
    if not results.peers:
        return NOTHING
    lines = [f"{heading} Who was measured", "", _line(["", "versions", "set-up", "tasks of a killed worker"])]
    lines.append(_line(["---"] * 4))
    for peer in results.peers.values():
        versions = ", ".join(f"{name} {version}" for name, version in peer["versions"].items())
        lines.append(_line([peer["title"], versions, peer["setup"], peer["after_a_crash"]]))
    return "\n".join(lines)


def charts(results: Results) -> dict[str, str]:
    """Return charts of the main figures, by file name."""
    found = {}
    for key in CHARTED:
        table = results.tables.get(key)
        # A floor belongs to no peer, and would be the longest bar.
        rows = [row for row in table.rows.values() if row.rounds and row.floor is not None] if table else []
        if table and rows:
            found[f"benchmark-{key}.svg"] = bars(table.title.partition(":")[0], rows, table.figures[0])
    return found


def _comparisons(table: Table, figures: list[Figure]) -> list[str]:
    if not figures:
        return []
    found = []
    if any(row.reference in table.rows and table.rows[row.reference].rounds for row in table.rows.values()):
        found.append(f"times {table.compared}")
    if any(row.floor in table.rows for row in table.rows.values()):
        found.append("share of the floor")
    return found


def _compared(table: Table, row: Row, figure: Figure, comparison: str) -> str:
    if comparison == "share of the floor":
        found = table.ratio(figure.name, row.key, row.floor) if row.floor else None
        return f"{found.median:.0%}" if found else NOTHING
    found = table.ratio(figure.name, row.key, row.reference) if row.reference else None
    return f"{found.median:.2f}" if found else NOTHING


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
