"""Cron expressions: :func:`parse_cron` reads one, and the :class:`Schedule` says when it is due next."""

from pyasynq._cron.expression import goes_by_location, parse_cron
from pyasynq._cron.schedule import Schedule

__all__ = ["Schedule", "goes_by_location", "parse_cron"]
