"""The number of attempts that ended in each way, for the line that a worker ends with."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pyasynq.events import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping


class Tally:
    """Counts outcomes. Written and read by the event loop alone.

    Attributes:
        succeeded: a plain number, since nearly all attempts end so.
        others: all other outcomes.
    """

    __slots__ = ("others", "succeeded")

    def __init__(self) -> None:
        self.succeeded = 0
        self.others: Counter[Outcome] = Counter()

    def counts(self) -> Mapping[Outcome, int]:
        """Return the number of attempts by outcome, in the order of `Outcome`."""
        found = {Outcome.SUCCEEDED: self.succeeded + self.others[Outcome.SUCCEEDED]}
        found |= {outcome: self.others[outcome] for outcome in Outcome if outcome is not Outcome.SUCCEEDED}
        return found
