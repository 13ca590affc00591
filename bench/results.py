"""Results of a run, and their JSON form."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Self

from bench.figures import Figure, Summary, ratio, summary


@dataclass
class Row:
    """Figures of one contestant in one measurement.

    Attributes:
        floor: key of the row with the theoretical limit of this server.
        reference: the key of the row that this one is compared with.
        rounds: figures by round; a round that failed is missing.
    """

    key: str
    title: str
    floor: str | None = None
    reference: str | None = None
    rounds: dict[int, dict[str, float]] = field(default_factory=dict)

    def values(self, figure: str) -> dict[int, float]:
        """Return one figure, by round."""
        return {at: found[figure] for at, found in self.rounds.items() if figure in found}

    def summary(self, figure: str) -> Summary | None:
        """Return the median and range of a figure; None if it was not measured."""
        values = list(self.values(figure).values())
        return summary(values) if values else None


@dataclass
class Table:
    """All rows of one measurement.

    Attributes:
        compared: reference of the comparison, as text for a heading.
        notes: notes for the reader.
    """

    key: str
    title: str
    figures: tuple[Figure, ...]
    compared: str = ""
    notes: tuple[str, ...] = ()
    rows: dict[str, Row] = field(default_factory=dict)

    def ratio(self, figure: str, row: str, other: str) -> Summary | None:
        """Compare a figure of two rows round by round; None if either is missing."""
        if row not in self.rows or other not in self.rows:
            return None
        return ratio(self.rows[row].values(figure), self.rows[other].values(figure))


@dataclass
class Results:
    """A whole run.

    Attributes:
        facts: about the machine, the servers and the run.
        peers: description of each peer.
        failures: one line for each failure.
    """

    facts: dict[str, str]
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, Table] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return all results as JSON, with the figures of each round and their summaries."""
        return {
            "facts": self.facts,
            "peers": self.peers,
            "failures": self.failures,
            "measurements": [_table_as_json(table) for table in self.tables.values()],
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Read the JSON of `as_json`."""
        results = cls(found["facts"], found["peers"], {}, found["failures"])
        for table in found["measurements"]:
            results.tables[table["key"]] = _table_from_json(table)
        return results


def _table_from_json(found: dict[str, Any]) -> Table:
    rows = {
        row["key"]: Row(
            row["key"],
            row["title"],
            row["floor"],
            row["reference"],
            {int(at): figures for at, figures in row["rounds"].items()},
        )
        for row in found["rows"]
    }
    figures = tuple(Figure(**figure) for figure in found["figures"])
    return Table(found["key"], found["title"], figures, found["compared"], tuple(found["notes"]), rows)


def _table_as_json(table: Table) -> dict[str, Any]:
    rows = []
    for row in table.rows.values():
        summaries = {figure.name: row.summary(figure.name) for figure in table.figures}
        rows.append(
            {
                "key": row.key,
                "title": row.title,
                "floor": row.floor,
                "reference": row.reference,
                "summary": {name: asdict(found) for name, found in summaries.items() if found},
                "rounds": {str(at): found for at, found in row.rounds.items()},
            }
        )
    return {
        "key": table.key,
        "title": table.title,
        "figures": [asdict(figure) for figure in table.figures],
        "compared": table.compared,
        "notes": list(table.notes),
        "rows": rows,
    }
