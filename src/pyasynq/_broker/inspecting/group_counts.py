"""Counting the tasks in the groups of a queue in parts, so that no call keeps Redis busy for long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import INSPECT_FORGET_GROUPS, INSPECT_GROUPS
from pyasynq._broker.stored import shown
from pyasynq._redis.plan import Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq.info import GroupInfo

if TYPE_CHECKING:
    from pyasynq._clock import Instant

_PAGE_SIZE: Final = 500
"""Groups in one call: about a millisecond of Redis' time."""

PAGES_AT_ONCE: Final = 10
"""How many pages one question about a queue counts."""

FIRST_PAGE: Final = b"0"


class GroupCount(NamedTuple):
    """How many tasks are in the groups of a queue, and when the counting began."""

    tasks: int
    at: Instant


@dataclass(slots=True)
class _Pass:
    """One count that goes through all groups of a queue, page by page."""

    at: Instant
    cursor: bytes = FIRST_PAGE
    groups: int = 0
    tasks: int = 0


class GroupCounts:
    """The counts of queues with more than 1,000 groups: each question goes on where the one before ended.

    Written and read by the inspector that it belongs to.
    """

    def __init__(self) -> None:
        self._passes: dict[str, _Pass] = {}
        self._complete: dict[str, GroupCount] = {}

    def count(self, queue: str, groups: int, now: Instant) -> Plan[GroupCount]:
        """Count up to 5,000 groups more; return the last complete count, or what the part so far suggests.

        `groups` is how many there are.
        """
        current = self._passes.pop(queue, None) or _Pass(now)
        for _ in range(PAGES_AT_ONCE):
            current.cursor, sizes = yield from read_page(queue, current.cursor)
            current.groups += len(sizes)
            current.tasks += sum(sizes.values())
            if current.cursor == FIRST_PAGE:
                self._complete[queue] = GroupCount(current.tasks, current.at)
                return self._complete[queue]
        self._passes[queue] = current
        known = self._complete.get(queue)
        if known is not None:
            return known
        average = current.tasks / max(1, current.groups)
        return GroupCount(round(average * groups), current.at)

    def forget(self, queue: str) -> None:
        """Forget what was counted of a queue that has few groups by now."""
        self._passes.pop(queue, None)
        self._complete.pop(queue, None)


def read_page(queue: str, cursor: bytes) -> Plan[tuple[bytes, dict[bytes, int]]]:
    """Return the next cursor, `0` after the last page, and the sizes of about 500 groups by their names."""
    keys = queue_keys(queue)
    args = (keys.group_prefix, cursor, _PAGE_SIZE)
    following, *reply = yield ScriptCall(INSPECT_GROUPS, (keys.groups,), args, Replay.SAFE)
    return following, dict(zip(reply[::2], reply[1::2], strict=True))


def describe_groups(queue: str) -> Plan[list[GroupInfo]]:
    """Describe the groups of a queue, by name."""
    yield from require_queue(queue)
    sizes = yield from group_sizes(queue)
    return [GroupInfo(name, size) for name, size in sizes.items()]


def group_sizes(queue: str) -> Plan[dict[str, int]]:
    """Return the names of the groups, sorted, and how many tasks wait in each; 500 groups in one call."""
    found: dict[bytes, int] = {}
    cursor, page = yield from read_page(queue, FIRST_PAGE)
    found |= page
    while cursor != FIRST_PAGE:
        cursor, page = yield from read_page(queue, cursor)
        found |= page
    return dict(sorted((shown(name), size) for name, size in found.items()))


def forget_empty_groups(queue: str) -> Plan[int]:
    """Forget the names of groups without tasks; return how many tasks the others have."""
    keys = queue_keys(queue)
    cursor, tasks = FIRST_PAGE, 0
    while True:
        args = (keys.group_prefix, cursor, _PAGE_SIZE)
        cursor, found = yield ScriptCall(INSPECT_FORGET_GROUPS, (keys.groups,), args, Replay.SAFE)
        tasks += int(found)
        if cursor == FIRST_PAGE:
            return tasks
