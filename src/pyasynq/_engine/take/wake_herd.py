"""Thundering herd: when each of many idle servers looks for a task that Redis has reported to all of them."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

_AT_ONCE: Final = 4
"""Number of servers that ask at once after a report; the others wait a random delay."""
_FIRST_LOOK: Final = 0.001
"""Shortest delay of the other servers, in seconds."""
_LAST_LOOK: Final = 0.25
"""Longest delay, in seconds."""
_LAST_LOOK_A_SERVER: Final = 0.01
"""Longest delay in seconds for each server, where this is shorter."""


class Herd(NamedTuple):
    """Estimate of how many idle servers hear of the same task (thundering herd).

    Each server draws a place in a row. The first few ask at once. The others wait, longer for later places.
    While they wait they are not watching, so one task wakes only a small part of the idle servers.

    The row is at most the number of servers, but an unknown number of these are busy. A server behind the
    first quarter that still finds the task halves its row. A server that finds nothing doubles it.
    Finding a task from a place in front proves nothing; otherwise one server would get more and more tasks.
    """

    row: float = math.inf
    in_front: bool = True
    told: bool = False
    """Whether a report has not been followed by a look."""
    own_change: bool = False
    """Whether the next report may be of this server's own dequeue."""

    def report(self, servers: int, draw: float) -> tuple[Herd, float]:
        """Return the herd after a report, and for how many seconds to leave the task to others.

        Args:
            servers: how many there are, including busy ones and ones with other queues.
            draw: a random number from 0 to 1.
        """
        row = max(_AT_ONCE, min(self.row, servers))
        place = draw * row
        herd = Herd(row, place <= max(_AT_ONCE, row / 4), not self.own_change)
        if place <= _AT_ONCE:
            return herd, 0.0
        last = min(_LAST_LOOK, row * _LAST_LOOK_A_SERVER)
        exponent = math.log(place / _AT_ONCE, row / _AT_ONCE)
        return herd, _FIRST_LOOK * math.pow(last / _FIRST_LOOK, exponent)

    def look(self, *, found: bool) -> Herd:
        """Return the herd after a look for the reported task."""
        if not self.told:
            return self
        if not found:
            return Herd(self.row * 2, self.in_front)
        return Herd(self.row if self.in_front else self.row / 2, self.in_front, own_change=True)
