"""The wall clock of a program and of all that it starts, moved from outside; see moved_clock.c."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_SOURCE: Final = Path(__file__).with_suffix(".c")
_FORMAT: Final = struct.Struct("=q")
_NANOSECONDS: Final = 1_000_000_000


def build_library(folder: Path) -> Path:
    """Compile the library into a folder and return its path.

    Raises:
        FileNotFoundError: when there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("moving the clock needs a C compiler: apt-get install gcc")
    library = folder / "moved_clock.so"
    subprocess.run(
        [compiler, "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, _SOURCE, "-ldl"], check=True
    )
    return library


class MovedClock:
    """The offset of a moved clock, in a file that the programs map.

    Args:
        file: holds the offset in nanoseconds; made when it is missing.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        if not file.exists():
            file.write_bytes(_FORMAT.pack(0))

    def environment(self, library: Path) -> Mapping[str, str]:
        """Return the variables that programs are started with."""
        return {"LD_PRELOAD": str(library), "MOVED_CLOCK_FILE": str(self._file)}

    def set_to(self, moment: datetime) -> None:
        """Make it this time now, in all programs that use the clock.

        The caller's own clock is moved by the offset, or the offset is still 0.
        """
        with self._file.open("r+b") as file:
            (offset,) = _FORMAT.unpack(file.read())
            file.seek(0)
            # Written in place, because the file is mapped.
            file.write(_FORMAT.pack(offset + round(moment.timestamp() * _NANOSECONDS) - time.time_ns()))
