"""Counting the tasks in the groups of a queue in parts, so that no call keeps Redis busy for long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import INSPECT_FORGET_GROUPS, INSPECT_GROUPS
from pyasynq._broker.stored import display_name
from pyasynq._checks import check_whole, parse_whole_number
from pyasynq._redis.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import InvalidOptionError
from pyasynq.info import GroupInfo, GroupPage

if TYPE_CHECKING:
    from pyasynq._clock import Instant

_PAGE_SIZE: Final = 500
"""Number of groups in one call: about a millisecond of Redis' time."""

_MOST_ON_PAGE: Final = 1_000
_CURSORS: Final = 2**64

PAGES_AT_ONCE: Final = 10
"""Number of pages that one query about a queue counts."""

FIRST_PAGE: Final = b"0"


class GroupCount(NamedTuple):
    """Number of tasks in the groups of a queue, and the time when the counting began."""

    tasks: int
    at: Instant


@dataclass(slots=True)
class _Pass:
    """One pass of counting through all groups of a queue, page by page."""

    at: Instant
    cursor: bytes = FIRST_PAGE
    groups: int = 0
    tasks: int = 0


class GroupCounts:
    """Counts of queues with more than 1,000 groups: each query continues where the previous one ended.

    Written and read by the inspector that it belongs to.
    """

    def __init__(self) -> None:
        self._passes: dict[str, _Pass] = {}
        self._complete: dict[str, GroupCount] = {}

    def count(self, queue: str, groups: int, now: Instant, pages: int = PAGES_AT_ONCE) -> Plan[GroupCount]:
        """Count the tasks in the next pages of 500 groups; return the last complete count, or an estimate.

        `groups` is the number of groups of the queue.
        """
        current = self._passes.pop(queue, None) or _Pass(now)
        for _ in range(pages):
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
        """Delete the stored count of a queue that has few groups now: these are counted in one call."""
        self._passes.pop(queue, None)
        self._complete.pop(queue, None)


def read_page(queue: str, cursor: bytes, page_size: int = _PAGE_SIZE) -> Plan[tuple[bytes, dict[bytes, int]]]:
    """Return the next cursor, `0` after the last page, and the sizes of about 500 groups by their names."""
    keys = queue_keys(queue)
    args = (keys.group_prefix, cursor, page_size)
    following, *reply = yield ScriptCall(INSPECT_GROUPS, (keys.groups,), args, Replay.SAFE)
    return following, dict(zip(reply[::2], reply[1::2], strict=True))


def list_group_page(queue: str, cursor: str, page_size: int) -> Plan[GroupPage]:
    """Return a page of the groups of a queue, and their total number.

    Raises:
        InvalidOptionError: for a cursor that is not a 64-bit number, and for an invalid page size.
    """
    check_whole("page_size", page_size, 1)
    if page_size > _MOST_ON_PAGE:
        raise InvalidOptionError("page_size", page_size, f"must be {_MOST_ON_PAGE:,} at most")
    number = parse_whole_number(cursor) if cursor else 0
    if number is None or number >= _CURSORS:
        raise InvalidOptionError("cursor", cursor, "must be the cursor of a page of groups, or empty")
    yield from require_queue(queue)
    groups = queue_keys(queue).groups
    total = yield CommandCall(("SCARD", groups), groups, Replay.SAFE)
    following, sizes = yield from read_page(queue, b"%d" % number, page_size)
    found = tuple(GroupInfo(display_name(name), size) for name, size in sizes.items())
    return GroupPage(found, "" if following == FIRST_PAGE else following.decode(), int(total))


def describe_groups(queue: str) -> Plan[list[GroupInfo]]:
    """Describe the groups of a queue, by name."""
    yield from require_queue(queue)
    sizes = yield from read_group_sizes(queue)
    return [GroupInfo(name, size) for name, size in sizes.items()]


def read_group_sizes(queue: str) -> Plan[dict[str, int]]:
    """Return the displayed names of the groups, sorted, and how many tasks wait in each."""
    found = yield from scan_groups(queue)
    return dict(sorted((display_name(name), size) for name, size in found.items()))


def scan_groups(queue: str) -> Plan[dict[bytes, int]]:
    """Return the stored names of the groups, and how many tasks wait in each; 500 groups in one call."""
    found: dict[bytes, int] = {}
    cursor, page = yield from read_page(queue, FIRST_PAGE)
    found |= page
    while cursor != FIRST_PAGE:
        cursor, page = yield from read_page(queue, cursor)
        found |= page
    return found


def forget_empty_groups(queue: str) -> Plan[int]:
    """Remove the names of groups without tasks; return the number of tasks in the other groups."""
    keys = queue_keys(queue)
    cursor, tasks = FIRST_PAGE, 0
    while True:
        args = (keys.group_prefix, cursor, _PAGE_SIZE)
        cursor, found = yield ScriptCall(INSPECT_FORGET_GROUPS, (keys.groups,), args, Replay.SAFE)
        tasks += int(found)
        if cursor == FIRST_PAGE:
            return tasks
