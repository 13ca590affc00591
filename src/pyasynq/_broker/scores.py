"""Scores of sorted sets: whole Unix seconds, unless another program has written something else."""

from __future__ import annotations

import math


def whole_second(score: bytes) -> int | None:
    """Return a score as Redis prints it, rounded up to a whole second; None for an infinite one."""
    number = float(score)
    return math.ceil(number) if math.isfinite(number) else None
