"""All measurements, in the order of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.measurements.drain import DRAIN, PAYLOADS

if TYPE_CHECKING:
    from bench.measurements.shape import Measurement

MEASUREMENTS: tuple[Measurement, ...] = (DRAIN, PAYLOADS)
