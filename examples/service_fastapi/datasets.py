"""The application's table of data sets, in SQLite."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import Any

FILE = os.environ.get("DATASETS_DATABASE", "datasets.sqlite")
_TABLE = """
CREATE TABLE IF NOT EXISTS datasets (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'queued', error TEXT NOT NULL DEFAULT ''
)
"""


def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run a statement in a transaction of its own; return its rows."""
    with closing(sqlite3.connect(FILE)) as connection, connection:
        connection.execute(_TABLE)
        return connection.execute(statement, values).fetchall()


def add(path: str) -> int:
    """Add a data set; return its id."""
    [[new_id]] = run("INSERT INTO datasets (path) VALUES (?) RETURNING id", path)
    return int(new_id)


def begin(dataset: int) -> None:
    """Note that a task works on a data set."""
    run("UPDATE datasets SET state = 'running' WHERE id = ?", dataset)


def end(dataset: int, state: str, error: str) -> None:
    """Note how the task of a data set has ended. The same end may be noted twice."""
    run("UPDATE datasets SET state = ?, error = ? WHERE id = ?", state, error, dataset)


def read(dataset: int) -> dict[str, Any] | None:
    """Return a data set; None if there is none."""
    rows = run("SELECT id, path, state, error FROM datasets WHERE id = ?", dataset)
    return dict(zip(("id", "path", "state", "error"), rows[0], strict=True)) if rows else None
