"""Walks through sorted sets: by score and id, the highest first; and through all groups of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.inspecting.cursors import decode_cursor, encode_cursor
from pyasynq._broker.inspecting.walk_reader import MAX_READ, WalkReader
from pyasynq._broker.scripts import INSPECT_WALK_SET
from pyasynq._broker.stored import decode_name, scan_names
from pyasynq._redis.plan import CommandCall, Plan, Replay

if TYPE_CHECKING:
    from collections.abc import Sequence

_SORTED_GROUPS: Final = 10_000
"""Largest number of groups that are walked in order of their names; more are walked in SSCAN's order."""
_NAMES_AT_ONCE: Final = 500
_FIRST_PAGE: Final = "0"


class ScorePlace(NamedTuple):
    """A position in a sorted set: score and id of the last task that was read; empty at the start."""

    score: str
    task_id: str


_START: Final = ScorePlace("", "")


class _GroupPlace(NamedTuple):
    """A position in a walk through the groups of a queue.

    Attributes:
        page: the cursor of the page of names; None if all names are read and sorted.
        group: the last group that was read; empty at the start of a page.
        score, task_id: the last task of this group that was read; None at the end of the group.
    """

    page: str | None
    group: str
    score: str | None
    task_id: str | None


def walk_set(reader: WalkReader, key: str, place: ScorePlace) -> Plan[ScorePlace | None]:
    """Read tasks from a position on until the reader is full; return the new position, None at the end."""
    while True:
        args = (*place, reader.low, reader.high, reader.count, reader.most, MAX_READ, *reader.texts)
        looked_at, more, task_id, score, *found = yield from reader.call(INSPECT_WALK_SET, key, *args)
        reader.add(looked_at, found)
        if not more:
            return None
        place = ScorePlace(score.decode(), decode_name(task_id))
        if reader.is_full:
            return place


def walk_groups(reader: WalkReader, cursor: str, tag: str) -> Plan[str]:
    """Read tasks of all groups of a queue until the reader is full; return the cursor, empty at the end."""
    place = yield from _begin(reader, cursor, tag)
    while True:
        following, names = yield from _read_names(reader, place.page)
        place = yield from _walk_named(reader, names, place)
        if reader.is_full and (place.score is not None or following is not None or _are_left(names, place)):
            return encode_cursor(tag, place)
        if following is None:
            return ""
        place = _GroupPlace(following, "", None, None)


def _begin(reader: WalkReader, cursor: str, tag: str) -> Plan[_GroupPlace]:
    if cursor:
        return _GroupPlace(*decode_cursor(cursor, tag, "TtST"))
    groups = reader.keys.groups
    count = yield CommandCall(("SCARD", groups), groups, Replay.SAFE)
    return _GroupPlace(None if count <= _SORTED_GROUPS else _FIRST_PAGE, "", None, None)


def _read_names(reader: WalkReader, page: str | None) -> Plan[tuple[str | None, list[bytes]]]:
    """Return the cursor of the next page of names, None after the last, and the names of a page, sorted."""
    groups = reader.keys.groups
    if page is None:
        return None, sorted((yield from scan_names(groups)))
    command = ("SSCAN", groups, page, "COUNT", _NAMES_AT_ONCE)
    following, names = yield CommandCall(command, groups, Replay.SAFE)
    text = following.decode()
    return None if text == _FIRST_PAGE else text, sorted(names)


def _walk_named(reader: WalkReader, names: Sequence[bytes], place: _GroupPlace) -> Plan[_GroupPlace]:
    """Walk through groups until the reader is full; return the place reached.

    Each group counts as at least one examined position, even if it is empty.
    """
    at = place.group.encode("utf-8", "surrogateescape")
    for name in names:
        is_current = name == at and place.score is not None
        if name < at or (name == at and not is_current):
            continue
        start = ScorePlace(place.score or "", place.task_id or "") if is_current else _START
        before = reader.looked_at
        group = decode_name(name)
        reached = yield from walk_set(reader, reader.keys.group(group), start)
        reader.looked_at = max(reader.looked_at, before + 1)
        place = _GroupPlace(place.page, group, *(reached or (None, None)))
        if reader.is_full:
            break
    return place


def _are_left(names: Sequence[bytes], place: _GroupPlace) -> bool:
    return bool(names) and names[-1] > place.group.encode("utf-8", "surrogateescape")
