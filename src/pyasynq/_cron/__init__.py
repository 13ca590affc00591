"""Cron expressions: :func:`parse_cron` parses one into a :class:`Schedule`, which computes the ticks."""

from pyasynq._cron.expression import parse_cron, read_fields, uses_location
from pyasynq._cron.schedule import CalendarSchedule, IntervalSchedule, Schedule

__all__ = ["CalendarSchedule", "IntervalSchedule", "Schedule", "parse_cron", "read_fields", "uses_location"]
