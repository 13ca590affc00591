"""Positions of tasks in a long pending list, so that a script removes many tasks in one walk through it.

Redis removes from the middle of a list by comparing every id from one end on: about 10 ns an id. So a call
removes many tasks in one walk, and takes as many as can be removed in a few milliseconds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pyasynq._broker.arguments import chunks
from pyasynq._broker.stored import decode_name
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq._wire.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence


_IDS_AT_ONCE: Final = 5_000
"""Number of ids in one reply: about 0.2 ms of Redis' time."""
_OVERLAP: Final = 200
"""Number of ids that two successive reads share: they show how many ids were added at the left meanwhile."""
MOST_WALKED: Final = 600_000
"""Number of ids that one call walks through: about 6 ms of Redis' time."""
_EACH: Final = 3_000
"""Cost of handling one task, in ids that Redis could walk through in the same time."""
_FEW: Final = 20
"""Number of tasks below which sorting them by position is not worth it."""
PLACE_ATTEMPTS: Final = 3
"""Number of reads of a list to locate tasks; after these, Redis walks the list once for each task."""


class Hints(NamedTuple):
    """Expected positions of pending tasks in the list, for a script that removes them.

    Attributes:
        anchor: id that the positions count from; empty for none.
        places: for each id of the call, its distance to the right of the anchor, or `-` if unknown. `*` lets
            Redis search the whole list for each id.
    """

    anchor: str = ""
    places: str = ""


NO_HINTS: Final = Hints()
"""No hints: for tasks that are near an end of the list, or not pending."""
WALK: Final = Hints(places="*")
"""Hints that make Redis search the whole list, for tasks whose position could not be determined."""

TakePlan: TypeAlias = "Callable[[Sequence[str], Hints], Plan[bool]]"
"""Function that makes a plan, which acts on all given tasks in one call.

The plan returns False if a task was not found; then nothing was changed.
"""


class PendingPlaces:
    """Positions of tasks in a pending list when it was read, adjusted for later removals.

    Args:
        anchor: id that the places count from; empty if there was none.
        length: number of ids in the list, from the anchor on.
        places: distance of each task from the anchor, in ids to the right.
    """

    def __init__(self, anchor: str = "", length: int = 0, places: dict[str, int] | None = None) -> None:
        self._anchor = anchor
        self._length = length
        self._places = places or {}
        self._removed: list[int] = []

    def _find(self, task_id: str) -> int | None:
        place = self._places.get(task_id)
        return None if place is None else place - bisect_left(self._removed, place)

    def hints(self, ids: Iterable[str]) -> Hints:
        """Return the hints with which a script finds these tasks."""
        places = [self._find(task_id) for task_id in ids]
        if all(place is None for place in places):
            return NO_HINTS
        return Hints(self._anchor, " ".join("-" if place is None else str(place) for place in places))

    def fit(self, ids: Sequence[str]) -> int:
        """Return how many tasks, from the first of `ids` on, one call may remove; at least 1."""
        length = self._length - len(self._removed)
        left = right = 0
        most = MOST_WALKED
        for number, task_id in enumerate(ids):
            place = self._find(task_id)
            if place is not None and place < length / 2:
                left = max(left, place)
            elif place is not None:
                right = max(right, length - place)
            walked = left + right + _EACH * number
            # A list may be so long that one task takes longer; further ones on the way cost little.
            most = max(most, walked + _EACH * 50) if number == 0 else most
            if walked > most:
                return number
        return len(ids)

    def remove(self, ids: Iterable[str]) -> None:
        """Adjust the positions after these tasks have been removed from the list."""
        for task_id in ids:
            place = self._places.pop(task_id, None)
            if place is not None:
                insort(self._removed, place)

    def order(self, ids: Iterable[str]) -> list[str]:
        """Sort ids by the distance from the nearer end of the list, so that many fit into one call."""
        length = self._length - len(self._removed)

        def depth(task_id: str) -> tuple[bool, int]:
            place = self._find(task_id)
            if place is None:
                return False, 0
            return place >= length / 2, min(place, length - place)

        return sorted(ids, key=depth)


def find_places(queue: str, ids: Collection[str]) -> Plan[PendingPlaces]:
    """Find the positions of tasks in a queue's pending list, which may shift during the search."""
    pending = queue_keys(queue).pending
    wanted = {task_id.encode("utf-8", "surrogateescape") for task_id in ids}
    places: dict[str, int] = {}
    tail: dict[bytes, int] = {}
    anchor = ""
    first = base = 0
    while True:
        command = ("LRANGE", pending, first, first + _IDS_AT_ONCE - 1)
        found = yield CommandCall(command, pending, Replay.SAFE)
        if first == 0:
            base = next((at for at, task_id in enumerate(found) if task_id not in wanted), 0)
            anchor = decode_name(found[base]) if found else ""
        known = next((at for at, task_id in enumerate(found) if task_id in tail), None)
        if known is not None:
            # Ids that were added since the last read have shifted all positions.
            base = first + known - tail[found[known]]
        for at, task_id in enumerate(found, first - base):
            if task_id in wanted:
                places.setdefault(decode_name(task_id), at)
        if len(found) < _IDS_AT_ONCE or len(places) == len(wanted):
            length = yield CommandCall(("LLEN", pending), pending, Replay.SAFE)
            return PendingPlaces(anchor, int(length) - base, places)
        first += _IDS_AT_ONCE - _OVERLAP
        tail = {task_id: at for at, task_id in enumerate(found[-_OVERLAP:], first - base)}


def order_by_place(queue: str, ids: Sequence[str]) -> Plan[list[str]]:
    """Sort ids by distance from the nearer end of the pending list, if the list is long.

    In this order many tasks fit into one call. In a short list the given order is kept.
    """
    pending = queue_keys(queue).pending
    if len(ids) < _FEW or (yield CommandCall(("LLEN", pending), pending, Replay.SAFE)) < MOST_WALKED // 10:
        return list(ids)
    return (yield from find_places(queue, ids)).order(ids)


def take_in_calls(queue: str, ids: Sequence[str], take: TakePlan, *, most: int) -> Plan[None]:
    """Act on tasks in chunks that Redis handles within a few milliseconds, however long the pending list is.

    Tasks near an end of the list need no hints. For the others the list is read first, so that `take` can
    tell the script where they are. If a task was not found there `PLACE_ATTEMPTS` times, Redis walks the list
    for it.

    Args:
        queue: the queue's name.
        ids: ids of the tasks.
        take: function that makes the plan for one chunk.
        most: maximum number of tasks in one chunk.
    """
    left = list(ids)
    for chunk in chunks(ids, most=most):
        if not (yield from take(chunk, NO_HINTS)):
            break
        del left[: len(chunk)]
    failures = 0
    while left:
        places = yield from find_places(queue, left)
        left = places.order(left)
        failures += 1
        while left:
            chunk = left[: min(most, places.fit(left[:most]))]
            if not (yield from take(chunk, places.hints(chunk))):
                if failures < PLACE_ATTEMPTS:
                    break
                for task_id in chunk:
                    if not (yield from take([task_id], places.hints([task_id]))):
                        yield from take([task_id], WALK)
            failures = 0
            places.remove(chunk)
            del left[: len(chunk)]
