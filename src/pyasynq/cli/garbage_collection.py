"""Garbage collection of programs that run for long."""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLD: Final = (20_000, 10, 10)
"""Requests and tasks make few cycles: the default of 700 objects would collect every few of them."""


def tune_garbage_collection() -> None:
    """Collect less often, and never look again at what exists by now: modules and settings live on."""
    gc.set_threshold(*_THRESHOLD)
    gc.collect()
    gc.freeze()
