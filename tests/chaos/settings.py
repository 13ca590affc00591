"""Environment variables of the workers of the chaos runs, and offsets of their clocks."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

QUEUE: Final = "chaos"
"""The first queue, and the only one in most scenarios."""
RECORDS_VARIABLE: Final = "CHAOS_RECORDS"
"""The folder of the records."""
ENGINE_VARIABLE: Final = "CHAOS_ENGINE"
"""Fields of the engine's settings that are changed, as JSON."""
CLOCK_VARIABLE: Final = "CHAOS_CLOCK"
"""If it is set, each process takes the time with the seconds in a file of its own added."""

HANG_VARIABLE: Final = "CHAOS_HANG"
"""The file that says where the lifespan of a worker hangs: `start`, `end` or nowhere; unset for nowhere."""

OFFSET: Final = struct.Struct("d")


def queue_names(number: int) -> list[str]:
    """Return the names of a scenario's queues."""
    return [QUEUE, *(f"{QUEUE}-{place}" for place in range(1, number))]


def environment(
    url: str, folder: Path, engine: Mapping[str, float], *, clocks: bool = False, hangs: bool = False
) -> dict[str, str]:
    """Return the variables of a worker."""
    variables = {
        "PYASYNQ_REDIS_URL": url,
        RECORDS_VARIABLE: str(folder),
        ENGINE_VARIABLE: json.dumps(engine),
    }
    if clocks:
        variables[CLOCK_VARIABLE] = "1"
    if hangs:
        variables[HANG_VARIABLE] = str(hang_file(folder))
    return variables


def hang_file(folder: Path) -> Path:
    """Return the file that says where lifespans hang."""
    return folder / "hang"


def hanging_file(folder: Path, pid: int) -> Path:
    """Return the file that a process makes when its lifespan hangs."""
    return folder / f"hanging-{pid}"


def clock_file(folder: Path, pid: int | None = None) -> Path:
    """Return the file with the seconds by which the clock of a process, this one unless named, is off."""
    return folder / f"clock-{os.getpid() if pid is None else pid}"


def set_clock(folder: Path, pid: int, seconds: float) -> None:
    """Let the clock of a process jump so far from the right time."""
    with clock_file(folder, pid).open("r+b") as file:
        file.write(OFFSET.pack(seconds))
