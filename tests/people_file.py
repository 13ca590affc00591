"""A credentials file of the dashboard with an operator, a token and an expired token."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from pyasynq.web.auth.credentials import password_line, token_line

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "correct horse battery"


def write_people(folder: Path, queues: str = "*") -> Path:
    """Write the file; `queues` is the pattern of the queues that the operator `mira` sees."""
    file = folder / "people"
    lines = [
        password_line("mira", "operator", queues, PASSWORD),
        token_line("ci", "viewer", "*", date(2099, 1, 1), "pyasynq_good"),
        token_line("old", "viewer", "*", date(2020, 1, 1), "pyasynq_expired"),
    ]
    file.write_text("\n".join(lines) + "\n")
    return file
