"""When nothing is recovered because Redis has just come back."""

from __future__ import annotations

from pyasynq._engine.services.recoverer import QuietTime

LEASE = 30


def test_connections_that_break_all_the_time_do_not_hold_recovery_off() -> None:
    """A connection that comes back every three seconds is quiet for one lease of two, and no longer. (D19)"""
    quiet = QuietTime(LEASE, until=0.0)
    held = []
    for now in range(1_000, 1_600, 3):
        quiet.begin(now)
        held.append(quiet.holds(now))
    assert len(held) / 2 == held.count(True)


def test_an_outage_a_minute_after_the_last_one_makes_it_quiet_again() -> None:
    """Each quiet time lasts as long as one lease."""
    quiet = QuietTime(LEASE, until=0.0)
    for now in (1_000, 1_060):
        quiet.begin(now)
        assert (True, True, False) == (quiet.holds(now), quiet.holds(now + 29), quiet.holds(now + 30))
