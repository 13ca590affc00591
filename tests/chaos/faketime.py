"""The clock of a server, moved from outside by libfaketime, where that is installed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_FOLDERS: Final = (Path("/usr/lib"), Path("/usr/lib64"), Path("/usr/local/lib"))
# Debian has a folder for each kind of processor.
_PLACES: Final = ("faketime/libfaketimeMT.so.1", "*/faketime/libfaketimeMT.so.1")
_CACHE_SECONDS: Final = 1


def library() -> Path | None:
    """Return the library that answers instead of the system when a program asks for the time."""
    found = (path for folder in _FOLDERS for place in _PLACES for path in folder.glob(place))
    return next(found, None)


class MovedClock:
    """The wall clock of one program; its monotonic clock stays right.

    Args:
        file: says by how much the clock is off; written here, and read by the program once a second.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.move(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that the program is started with."""
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(_CACHE_SECONDS),
            # The name depends on the version.
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def move(self, seconds: int) -> None:
        """Have the program take it for this many seconds later than it is."""
        # Renamed, or the program may read half of it.
        written = self._file.with_suffix(".new")
        written.write_text(f"{seconds:+d}\n", "ascii")
        written.replace(self._file)


def is_off_by(server_seconds: int, seconds: int) -> bool:
    """Return whether a Unix time is about this many seconds later than that of this process."""
    return abs(server_seconds - time.time() - seconds) < 5 * _CACHE_SECONDS
