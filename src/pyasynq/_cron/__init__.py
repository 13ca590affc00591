"""Cron expressions: :func:`parse_cron` parses one into a :class:`Schedule`, which computes the ticks."""

from pyasynq._cron.expression import parse_cron, uses_location
from pyasynq._cron.schedule import Schedule

__all__ = ["Schedule", "parse_cron", "uses_location"]
