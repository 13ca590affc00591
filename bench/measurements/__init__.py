"""All measurements, in the order of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.measurements.depth import DEPTH, ELSEWHERE_ACTIVE
from bench.measurements.drain import DRAIN, PAYLOADS
from bench.measurements.enqueue import ENQUEUE
from bench.measurements.idle import IDLE
from bench.measurements.pickup import PICK_UP
from bench.measurements.recovery import RECOVERY
from bench.measurements.slots import SLOTS
from bench.measurements.wakes import WAKES

if TYPE_CHECKING:
    from bench.measurements.shape import Measurement

MEASUREMENTS: tuple[Measurement, ...] = (
    DRAIN,
    ENQUEUE,
    PICK_UP,
    IDLE,
    WAKES,
    DEPTH,
    ELSEWHERE_ACTIVE,
    SLOTS,
    PAYLOADS,
    RECOVERY,
)
