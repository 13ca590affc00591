"""Cursor-based pagination of a queue's tasks, the newest first; cursors stay valid while tasks move.

A task that is in a collection from the first page to the last is found once, whatever is added or removed.
Positions shift with each change. So a cursor names a place by the ids or scores next to it, in a different
way for each kind of collection.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from pyasynq._broker.inspecting.cursors import decode_cursor, encode_cursor, list_tag
from pyasynq._broker.inspecting.set_walk import ScorePlace, walk_groups, walk_set
from pyasynq._broker.inspecting.tasks import collection_key, parse_state
from pyasynq._broker.inspecting.walk_reader import MAX_READ, WalkReader
from pyasynq._broker.queue_registry import require_queue
from pyasynq._broker.scripts import INSPECT_READ_TASKS, INSPECT_WALK_LIST
from pyasynq._broker.servers import list_servers
from pyasynq._broker.stored import decode_name
from pyasynq._checks import check_whole
from pyasynq._clock import Instant
from pyasynq._redis.plan import CommandCall, Plan, Replay
from pyasynq.errors import InvalidOptionError
from pyasynq.info import ScanFilter, TaskPage
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyasynq._broker.inspecting.pace import ChunkPace
    from pyasynq._redis.plan import Argument, Reply

MAX_PAGE: Final = 1_000
"""Largest number of tasks in one page."""
_KEPT: Final = 8
"""Number of ids that a cursor holds from each side of its place in a list."""
_KEPT_BYTES: Final = 2_000
"""Maximum bytes of ids that a cursor holds from each side, so that it fits into a URL."""
_REACH: Final = 500
"""Number of ids that one call searches on each side of the expected place."""
_CALLS_TO_OLD: Final = 200
"""Maximum number of calls that search for a cursor's place among older tasks, 1,000 ids each.

Tasks that are taken between two pages shift it there.
"""
_CALLS_TO_NEW: Final = 20
"""Maximum number of calls that search for a cursor's place among newer tasks: requeues shift it there."""
_IDS_AT_ONCE: Final = 20_000
_OVERLAP: Final = 1_000
"""Number of ids that two successive reads of a list share, because ids may leave it in between."""
_MOST_UNKNOWN: Final = 256
Starts: TypeAlias = "Mapping[tuple[str, str], Instant | None]"
"""Start times of active tasks, by queue and id; None if the server does not report them (Go)."""
NO_FILTER: Final = ScanFilter()


class Walk(NamedTuple):
    """Request for one page of a walk.

    Attributes:
        queue: the queue's name.
        state: the tasks' state.
        group: group of aggregating tasks; empty walks through all groups.
        cursor: cursor that the previous page returned; empty for the first page.
        page_size: number of tasks to find, 1,000 at most.
        scan: maximum number of positions to read.
        scan_filter: filter that Redis applies; its bounds of scores need a sorted set.
    """

    queue: str
    state: str
    group: str = ""
    cursor: str = ""
    page_size: int = 30
    scan: int = 1_000
    scan_filter: ScanFilter = NO_FILTER

    def checked_state(self) -> TaskState:
        """Return the state of a walk. Raises `InvalidOptionError` for invalid arguments."""
        is_grouped = self.state == TaskState.AGGREGATING
        state = parse_state(self.state, self.group or ("*" if is_grouped else ""), tuple(TaskState))
        check_whole("page_size", self.page_size, 1)
        check_whole("scan", self.scan, 1)
        if self.page_size > MAX_PAGE:
            raise InvalidOptionError("page_size", self.page_size, f"must be {MAX_PAGE:,} at most")
        return state


def walk_tasks(
    walk: Walk,
    *,
    now: Instant,
    pace: ChunkPace,
    starts: Starts | None = None,
) -> Plan[TaskPage]:
    """Return a page of the tasks of a state, the newest first.

    Args:
        walk: the page.
        now: the current time.
        pace: adapts the number of positions that one call reads.
        starts: start times of active tasks by queue and id; None reads them from the servers' records.
    """
    queue, group, cursor = walk.queue, walk.group, walk.cursor
    state = walk.checked_state()
    tag = list_tag(queue, state.value, group)
    yield from require_queue(queue)
    reader = WalkReader(queue, walk.scan_filter, limit=walk.page_size, scan=walk.scan, now=now, pace=pace)
    if state is TaskState.PENDING:
        place = yield from _walk_list(reader, cursor, tag)
    elif state is TaskState.ACTIVE:
        place = yield from _walk_active(reader, cursor, tag, starts)
    elif state is TaskState.AGGREGATING and not group:
        place = yield from walk_groups(reader, cursor, tag)
    else:
        place = yield from _walk_scores(reader, collection_key(reader.keys, state, group), cursor, tag)
    return TaskPage(tuple(reader.tasks), place, reader.looked_at)


def _walk_scores(reader: WalkReader, key: str, cursor: str, tag: str) -> Plan[str]:
    """Walk a sorted set; return the next cursor: score and id of the last task read, empty at the end."""
    start = ScorePlace(*decode_cursor(cursor, tag, "st")) if cursor else ScorePlace("", "")
    place = yield from walk_set(reader, key, start)
    return encode_cursor(tag, place) if place else ""


def _walk_list(reader: WalkReader, cursor: str, tag: str) -> Plan[str]:
    """Walk the pending list, a queue that grows at one end and is taken from at the other; return the cursor.

    The cursor holds the ids next to its place on both sides, and the number of older tasks that were still to
    be read. The search begins where the place is if no task has been taken, and goes on step by step towards
    the end from which tasks are taken. If none of the ids is found, they have been taken, and so has every
    older task: the walk has ended.
    """
    left: int | str = ""
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    if cursor:
        left, before, after = decode_cursor(cursor, tag, "nii")
    while True:
        reply = yield from _find_and_read(reader, left, before, after)
        if reply is None:
            return ""
        _, looked_at, left, ids_before, ids_after, *found = reply
        reader.add(looked_at, found)
        before, after = _kept_ids(reversed(ids_before)), _kept_ids(ids_after)
        if not left:
            return ""
        if reader.is_full:
            return encode_cursor(tag, (left, before, after))


def _kept_ids(ids: Iterable[bytes]) -> list[str]:
    """Return the ids next to a place that fit into a cursor, at least the nearest one."""
    kept: list[str] = []
    size = 0
    for task_id in ids:
        size += len(task_id)
        if kept and size > _KEPT_BYTES:
            break
        kept.append(decode_name(task_id))
    return kept


def _find_and_read(
    reader: WalkReader, left: int | str, before: Sequence[str], after: Sequence[str]
) -> Plan[Reply]:
    """Find a cursor's place and return the script's reply there; None if none of its ids is in the list."""
    sides: list[Argument] = []
    for kind, ids in (("before", before), ("after", after)):
        for task_id in ids:
            sides += (kind, task_id.encode("utf-8", "surrogateescape"))
    places: list[int | str] = [left]
    for place in places:
        args = (place, _REACH, reader.count, reader.most, MAX_READ, _KEPT, *sides, *reader.texts)
        reply = yield from reader.call(INSPECT_WALK_LIST, reader.keys.pending, *args)
        if reply[0]:
            return reply
        if len(places) == 1:
            places += _other_places(int(left), reply[2])
    return None


def _other_places(left: int, length: int) -> list[int]:
    """Return the positions to try next: towards the end from which tasks are taken, then the other way."""
    step = 2 * _REACH
    left = min(left, length)
    on = range(left - step, -_REACH, -step)
    back = range(left + step, length + _REACH, step)
    return [*(max(0, place) for place in on[:_CALLS_TO_OLD]), *back[:_CALLS_TO_NEW]]


def _walk_active(reader: WalkReader, cursor: str, tag: str, starts: Starts | None) -> Plan[str]:
    """Walk active tasks by their start, the newest first; return the next cursor, empty at the end.

    There are at most as many as workers have slots, so all ids are read for each page. A server's heartbeat
    reports the start of a task within five seconds. Tasks without a known start come first; the cursor holds
    hashes of those that were looked at.
    """
    started, last, unknown = decode_cursor(cursor, tag, "NTi") if cursor else (None, None, [])
    queue = reader.keys.queue
    if starts is None:
        starts = yield from read_starts()
    met = set(unknown)
    place = None if last is None else _start_order(started, last)
    entries = []
    for task_id in (yield from _read_ids(reader.keys.active)):
        start = starts.get((queue, task_id))
        order = _start_order(None if start is None else start.to_microseconds(), task_id)
        if (place is None or order > place) and _digest(task_id) not in met:
            entries.append(order)
    entries.sort()
    at = 0
    while at < len(entries) and not reader.is_full:
        ids = [task_id for *_, task_id in entries[at : at + reader.count]]
        looked_at = yield from _read_tasks(reader, ids)
        unknown += [_digest(task_id) for is_known, _, task_id in entries[at : at + looked_at] if not is_known]
        at += looked_at
    if at == len(entries):
        return ""
    is_known, negative_start, last = entries[at - 1]
    return encode_cursor(tag, (-negative_start if is_known else None, last, unknown[-_MOST_UNKNOWN:]))


def _start_order(started: int | None, task_id: str) -> tuple[bool, int, str]:
    return started is not None, -max(0, started or 0), task_id


def _digest(task_id: str) -> str:
    return f"{zlib.crc32(task_id.encode('utf-8', 'surrogateescape')):x}"


def read_starts() -> Plan[Starts]:
    """Return the start times of the tasks that live servers run, by queue and id."""
    servers = yield from list_servers()
    return {
        (worker.queue, worker.task_id): (
            None if worker.start_time is None else Instant.from_datetime(worker.start_time)
        )
        for server in servers
        for worker in server.workers
    }


def _read_ids(key: str) -> Plan[list[str]]:
    """Return the ids of a list, from the left, complete for ids that stay in the list during the read."""
    found: dict[bytes, None] = {}
    first = 0
    while True:
        command = ("LRANGE", key, first, first + _IDS_AT_ONCE - 1)
        ids = yield CommandCall(command, key, Replay.SAFE)
        found.update(dict.fromkeys(ids))
        if len(ids) < _IDS_AT_ONCE:
            return [decode_name(task_id) for task_id in found]
        first += _IDS_AT_ONCE - _OVERLAP


def _read_tasks(reader: WalkReader, ids: Sequence[str]) -> Plan[int]:
    """Read tasks by their ids; return the number of ids that were read."""
    pairs: list[Argument] = []
    for task_id in ids:
        pairs += ("id", task_id.encode("utf-8", "surrogateescape"))
    args = (reader.most, MAX_READ, *pairs, *reader.texts)
    looked_at, *found = yield from reader.call(INSPECT_READ_TASKS, reader.keys.lease, *args)
    reader.add(looked_at, found)
    return int(looked_at)
