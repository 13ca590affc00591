"""Garbage collection settings of commands and of long-running programs."""

from __future__ import annotations

import atexit
import gc
from typing import Final

_THRESHOLD: Final = (20_000, 10, 10)
"""Thresholds of the garbage collector for long-running programs, as `gc.set_threshold` takes them.

Requests, tasks and imports make few cycles: the default of 700 objects would collect too often.
"""


_SHORT_COMMAND_THRESHOLD: Final = (100_000, 10, 10)
"""Thresholds for a short command, which ends before it has made 100,000 objects (about 10 MB)."""


def collect_less_often() -> None:
    """Raise the thresholds of Python's garbage collector, so that it runs less often."""
    gc.set_threshold(*_THRESHOLD)


def collect_hardly_ever() -> None:
    """Raise the thresholds further, for a short command: it reads something, prints it and ends."""
    gc.set_threshold(*_SHORT_COMMAND_THRESHOLD)


def skip_last_collection() -> None:
    """Let this process end without a last garbage collection, which takes a fifth of a short command's time.

    The operating system frees the memory. Finalizers of objects in reference cycles do not run then; Python
    does not promise to run them at exit.
    """
    atexit.register(gc.freeze)


def tune_garbage_collection() -> None:
    """Raise the collector's thresholds, and exclude all present objects, such as modules (`gc.freeze`)."""
    collect_less_often()
    gc.collect()
    gc.freeze()
