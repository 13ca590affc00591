"""Waiting for what nobody tells of."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 30.0
"""Seconds; much more than anything takes, since other work may share the machine."""


def wait_until(
    condition: Callable[[], object], what: str = "what was waited for", *, seconds: float = PATIENCE
) -> None:
    """Look at a condition until it is true, at most so many seconds; then fail with `what`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(0.02)
