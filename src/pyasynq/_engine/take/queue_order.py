"""Division of free slots among queues, by weight or by strict priority."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class WeightedOrder:
    """Weighted fair queueing: each queue gets its share by weight, to within a few slots, over many rounds.

    Every queue has a balance: it earns its share of the slots of each round and pays for the slots that it
    gets. The highest balances are served first, so that the shares hold even if slots become free one by one.
    https://en.wikipedia.org/wiki/Deficit_round_robin
    """

    __slots__ = ("_balance", "_weights")

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._balance: dict[str, float] = {}
        self.weigh(weights)

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Share slots out by these weights from now on; queues that are still served keep their balances."""
        self._weights = dict(weights)
        self._balance = {queue: self._balance.get(queue, 0.0) for queue in weights}

    def split(self, slots: int, queues: Sequence[str]) -> dict[str, int]:
        """Return the number of slots of each queue, by weight and by the balances of earlier rounds."""
        if len(queues) == 1:
            return {queues[0]: slots}
        total = sum(self._weights[queue] for queue in queues)
        balance = self._balance
        most = len(queues)
        for queue in queues:
            # Queues that run empty and fill again must not accumulate credit against the others.
            kept = max(-most, min(most, balance[queue]))
            balance[queue] = kept + slots * self._weights[queue] / total
        shares: dict[str, int] = {}
        left = slots
        for queue in sorted(queues, key=balance.__getitem__, reverse=True):
            share = min(left, max(0, math.floor(balance[queue])))
            balance[queue] -= share
            shares[queue] = share
            left -= share
        while left:
            # Rounding down leaves at most a few slots, one for each of the highest balances.
            for queue in sorted(queues, key=balance.__getitem__, reverse=True)[:left]:
                balance[queue] -= 1
                shares[queue] += 1
                left -= 1
        return {queue: share for queue, share in shares.items() if share}

    def forget(self, queue: str) -> None:
        """Clear the balance of an empty queue: it earns no credit while it has nothing to run."""
        if queue in self._balance:
            self._balance[queue] = 0.0


class StrictOrder:
    """Strict priority: the queue of the highest priority gets everything until it is empty."""

    __slots__ = ("_ranks",)

    def __init__(self, weights: Mapping[str, int]) -> None:
        self.weigh(weights)

    def weigh(self, weights: Mapping[str, int]) -> None:
        """Rank the queues by these priorities from now on."""
        # Sorting is stable: equal priorities are served in the order of the settings.
        ranked = sorted(weights, key=weights.__getitem__, reverse=True)
        self._ranks = {queue: rank for rank, queue in enumerate(ranked)}

    def split(self, slots: int, queues: Sequence[str]) -> dict[str, int]:
        """Return all slots for the queue of the highest priority."""
        return {min(queues, key=self._ranks.__getitem__): slots}

    def forget(self, queue: str) -> None:
        """Do nothing: strict priority keeps no balances."""
