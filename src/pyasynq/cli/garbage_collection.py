"""Garbage collection settings of commands and of long-running programs."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLD: Final = (20_000, 10, 10)
"""Requests, tasks and imports make few cycles: the default of 700 objects would collect every few of them."""


def collect_less_often() -> None:
    """Raise the thresholds of Python's garbage collector, so that it runs less often."""
    gc.set_threshold(*_THRESHOLD)


def tune_garbage_collection() -> None:
    """Raise the collector's thresholds, and exclude existing objects, such as modules (`gc.freeze`)."""
    collect_less_often()
    gc.collect()
    gc.freeze()
