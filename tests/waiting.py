"""Polling of conditions that emit no event, and comparison of TTLs that decrease meanwhile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 30.0
"""Default limit of a wait in seconds: generous, because other work may share the machine."""


def set_to(seconds: int) -> Any:
    """Return what equals a TTL that was set to these seconds at most 30 s, or half of them, ago."""
    late = min(PATIENCE, seconds / 2)
    return pytest.approx(seconds - late / 2, abs=late / 2) if seconds > 0 else seconds


def wait_until(
    condition: Callable[[], object], what: str = "what was waited for", *, seconds: float = PATIENCE
) -> None:
    """Poll a condition until it is true; after this many seconds, fail with the text `what`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(0.02)
