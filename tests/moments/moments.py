"""The moments at which the tests are run: hours, days and zones that a test might depend on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple


class Moment(NamedTuple):
    """A time at which each test begins, and the zone of the machine."""

    time: datetime
    zone: str = "UTC"


# All are past: the times of files stay real, and must not be older than a test that has just made them.
MOMENTS: Final = {
    "midnight": Moment(datetime(2025, 6, 17, 0, 0, 0, tzinfo=UTC)),
    "half-past-eight": Moment(datetime(2025, 6, 17, 8, 30, 0, tzinfo=UTC)),
    "month-end": Moment(datetime(2025, 4, 30, 23, 30, 0, tzinfo=UTC)),
    "leap-day": Moment(datetime(2024, 2, 29, 12, 0, 0, tzinfo=UTC)),
    # Clocks go forward at 01:00 UTC, and back at 01:00 UTC in autumn.
    "to-summer-time": Moment(datetime(2025, 3, 30, 0, 30, 0, tzinfo=UTC), "Europe/Berlin"),
    "from-summer-time": Moment(datetime(2025, 10, 26, 0, 30, 0, tzinfo=UTC), "Europe/Berlin"),
    # Half an hour forward, at 15:30 UTC.
    "half-hour-change": Moment(datetime(2025, 10, 4, 15, 0, 0, tzinfo=UTC), "Australia/Lord_Howe"),
    "new-year": Moment(datetime(2024, 12, 31, 23, 59, 58, tzinfo=UTC)),
    # Local dates are those of the next day and of the day before.
    "zone+14": Moment(datetime(2025, 6, 17, 11, 0, 0, tzinfo=UTC), "Pacific/Kiritimati"),
    "zone-11": Moment(datetime(2025, 6, 17, 8, 0, 0, tzinfo=UTC), "Pacific/Pago_Pago"),
}
