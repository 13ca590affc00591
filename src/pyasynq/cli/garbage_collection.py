"""Garbage collection settings of long-running programs."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLD: Final = (20_000, 10, 10)
"""Requests and tasks make few cycles: the default of 700 objects would collect every few of them."""


def tune_garbage_collection() -> None:
    """Collect less often, and freeze all existing objects, such as modules and settings."""
    gc.set_threshold(*_THRESHOLD)
    gc.collect()
    gc.freeze()
