"""Settings that all processes of a run with mixed versions share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pyasynq

QUEUE: Final = "mixed"
LIMITED_QUEUE: Final = "mixed-limited"
GROUPED_QUEUE: Final = "mixed-grouped"
QUEUES: Final = (QUEUE, LIMITED_QUEUE, GROUPED_QUEUE)
LIMIT: Final = 3
"""How many tasks of the limited queue may run at once."""
RECORDS_VARIABLE: Final = "MIXED_RECORDS"
"""The folder of the records."""


def leave_mark(folder: Path) -> None:
    """Write down which installation of the package this process runs."""
    (folder / f"{os.getpid()}.version").write_text(str(Path(pyasynq.__file__).parent))


def read_marks(folder: Path) -> dict[int, Path]:
    """Return by process id from where each process has the package."""
    return {int(path.stem): Path(path.read_text()) for path in folder.glob("*.version")}
