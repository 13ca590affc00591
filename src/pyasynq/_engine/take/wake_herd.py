"""Many idle servers are told of one task, and one of them gets it: when to look for it."""

from __future__ import annotations

import math
import random
from typing import Final

_AT_ONCE: Final = 4
"""So many ask at once, of however many there are: enough that one of them soon has the task."""
_FIRST_LOOK: Final = 0.001
_LAST_LOOK: Final = 0.25
_LAST_LOOK_A_SERVER: Final = 0.01
"""Where they are fewer, the last one looks sooner; in seconds, like the others."""


class Rivals:
    """How long a server lets others be first at a task that all of them were told of.

    Each draws a place in a row. The first few ask for the task at once. The others look for it ever later,
    since it is most likely gone, and until they look they are not told of the next one: a task wakes a small
    part of those who are idle.

    The row is as long as there are servers, but nobody knows how many of them are busy. Whoever has stood
    behind the first quarter and still finds the task has fewer rivals, and takes the row to be half as long
    next time; who finds nothing takes it to be twice as long. To get a task from a place in front proves
    nothing, or one server would get ever more of them.
    """

    __slots__ = ("_in_front", "_own_change", "_row", "_told")

    def __init__(self) -> None:
        self._row = math.inf
        self._in_front = True
        self._told = False
        self._own_change = False

    def told(self, servers: int) -> float:
        """Note a report of a task; return how many seconds to let pass before looking for it.

        Args:
            servers: how many there are, with those that are busy or have other queues.
        """
        self._told = not self._own_change
        self._own_change = False
        self._row = row = max(_AT_ONCE, min(self._row, servers))
        place = random.uniform(0.0, row)  # noqa: S311 - spreads load
        self._in_front = place <= max(_AT_ONCE, row / 4)
        if place <= _AT_ONCE:
            return 0.0
        last = min(_LAST_LOOK, row * _LAST_LOOK_A_SERVER)
        return _FIRST_LOOK * math.pow(last / _FIRST_LOOK, math.log(place / _AT_ONCE, row / _AT_ONCE))

    def looked(self, *, found: bool) -> None:
        """Note whether there was a task, if one was reported."""
        if not self._told:
            return
        self._told = False
        if not found:
            self._row *= 2
            return
        if not self._in_front:
            self._row /= 2
        # To take it has changed the queue, too, and that may be reported next.
        self._own_change = True
