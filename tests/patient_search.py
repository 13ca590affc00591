"""The command line; its searches print their matches as one list, however long they take."""

from __future__ import annotations

from typing import Final

from pyasynq.cli import main, search

_HOUR: Final = 3_600

if __name__ == "__main__":
    search._LEAST_SECONDS = _HOUR  # type: ignore[misc]
    main()
