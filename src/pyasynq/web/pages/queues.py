"""The list of queues: filtered, sorted and paged on the server."""

from __future__ import annotations

import asyncio
import fnmatch
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.errors import QueueNotFoundError
from pyasynq.operations import find_declared_max_run
from pyasynq.web import formats
from pyasynq.web.page import Page
from pyasynq.web.pages.pagination import Pagination, paginate, read_filter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from pyasynq.info import QueueInfo, ServerInfo
    from pyasynq.web.page import PageRequest

_T = TypeVar("_T")

_REPORTS_AT_ONCE: Final = 2
_LONG_WAIT: Final = timedelta(minutes=10)
_VERY_LONG_WAIT: Final = timedelta(hours=1)
_MUCH_FAILS: Final = 0.2


class QueueCapacity(NamedTuple):
    """Number of live servers that take from a queue, and of their slots."""

    servers: int
    slots: int
    max_run: int | None = None
    """Limit that all of these servers declare; the largest, if they differ."""


_NO_CAPACITY: Final = QueueCapacity(0, 0)


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """Health of a queue in one word, such as `Failing` or `Idle`, with symbol and color tone."""

    word: str
    symbol: str
    tone: str
    kind: str
    """`trouble`, `paused`, `idle` or `busy`, for the filter chips."""


@dataclass(frozen=True, slots=True)
class QueueRow:
    """View model of a queue in a list."""

    key: str
    name: str
    href: str
    state: QueueHealth
    info: QueueInfo
    wait: str
    wait_tone: str
    slots: int
    """Largest number of tasks that may run at once: the stored limit, or the slots of the queue's servers."""
    servers: int
    fail: float | None

    @property
    def processed(self) -> int:
        """Number of attempts that ended today (UTC)."""
        return self.info.processed


@dataclass(frozen=True, slots=True)
class Chip:
    """A filter of the list of queues, as a link with the number of matching queues."""

    label: str
    href: str
    count: int
    is_current: bool
    symbol: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class QueuesView:
    """View model of the list of queues."""

    summary: str
    total: int
    filter: str
    chips: tuple[Chip, ...]
    state: str
    sort: str
    descending: bool
    pages: Pagination[QueueRow]
    density: tuple[Chip, ...]


class _JudgedQueue(NamedTuple):
    """A queue with the values for filters and sorting. Only queues of the shown page become rows."""

    info: QueueInfo
    capacity: QueueCapacity
    fail: float | None
    kind: str
    """`kind` of the queue's `QueueHealth`."""


_SORTS: Final[dict[str, Callable[[_JudgedQueue], Any]]] = {
    "wait": lambda one: one.info.latency,
    "queue": lambda one: one.info.queue,
    "pending": lambda one: one.info.pending,
    "active": lambda one: one.info.active,
    "scheduled": lambda one: one.info.scheduled,
    "retry": lambda one: one.info.retry,
    "archived": lambda one: one.info.archived,
    "completed": lambda one: one.info.completed,
    "grouped": lambda one: one.info.aggregating,
    "processed": lambda one: one.info.processed,
    "fail": lambda one: one.fail or 0.0,
    "servers": lambda one: one.capacity.servers,
}
_KINDS: Final = (
    ("", "All", "", ""),
    ("trouble", "In trouble", "danger", "bad"),
    ("paused", "Paused", "paused", "warn"),
    ("idle", "Idle", "pending", ""),
)


async def queues_page(ask: PageRequest) -> Page:
    """Return the page `/queues`."""
    capacities = await read_capacities(ask)
    queues = [_judge(ask, info, capacities) for info in await read_queues(ask)]
    text = read_filter(ask)
    found = [one for one in queues if _matches(one.info.queue, text)]
    state = ask.choice("state", tuple(kind for kind, *_ in _KINDS))
    chips = tuple(
        Chip(label, ask.links.here(state=kind, page=None), _count(found, kind), kind == state, symbol, tone)
        for kind, label, symbol, tone in _KINDS
    )
    chosen = [one for one in found if state in {"", one.kind}]
    sort, descending = _sort(ask)
    chosen.sort(key=lambda one: one.info.queue)
    chosen.sort(key=_SORTS[sort], reverse=descending)
    troubled = _count(queues, "trouble")
    view = QueuesView(
        summary=f"{counted(len(queues), 'queue')}, {_SORT_WORDS.get(sort, 'sorted by ' + sort)}",
        total=len(queues),
        filter=text,
        chips=chips,
        state=state,
        sort=sort,
        descending=descending,
        pages=paginate(ask, chosen, counted(len(chosen), "queue")).map_rows(
            lambda one: queue_row(ask, one.info, one.capacity)
        ),
        density=(),
    )
    title = f"({troubled}) Queues" if troubled else "Queues"
    return Page("queues.html", title, "queues", view, is_live=True)


async def read_queues(ask: PageRequest) -> Sequence[QueueInfo]:
    """Return the task counts of all queues that the user sees; cached for a few seconds."""
    infos = await ask.target.recent(ask.user, "queues", ask.operator.queue_infos)
    ask.target.note_count(ask.user, "queues", formats.number(len(infos)))
    return infos


async def read_queue_reports(reads: Sequence[Callable[[], Awaitable[_T]]]) -> list[_T | None]:
    """Return the reports about queues; None for a queue that has just been deleted.

    Only a few reports are read at once, because decoding their tasks blocks the event loop for other
    requests.
    """
    reports: list[_T | None] = []
    for start in range(0, len(reads), _REPORTS_AT_ONCE):
        some = reads[start : start + _REPORTS_AT_ONCE]
        reports += await asyncio.gather(*(_read_report(read) for read in some))
    return reports


async def _read_report(read: Callable[[], Awaitable[_T]]) -> _T | None:
    with suppress(QueueNotFoundError):
        return await read()
    return None


async def read_servers(ask: PageRequest) -> Sequence[ServerInfo]:
    """Return the live servers; cached for a few seconds."""
    read = partial(ask.operator.servers, payloads=False)
    servers = await ask.target.recent(ask.user, "servers", read)
    ask.target.note_count(ask.user, "servers", formats.number(len(servers)))
    return servers


async def read_capacities(ask: PageRequest) -> Mapping[str, QueueCapacity]:
    """Return the number of live servers and of their slots, by queue; cached for a few seconds.

    The counts are cached because counting is slow if hundreds of servers each take from 1,000 queues.
    """
    return await ask.target.recent(ask.user, "capacities", partial(_count_capacities, ask))


async def _count_capacities(ask: PageRequest) -> Mapping[str, QueueCapacity]:
    servers: Counter[str] = Counter()
    slots: Counter[str] = Counter()
    live = await read_servers(ask)
    declared = find_declared_max_run(live)
    for server in live:
        servers.update(server.queues.keys())
        for queue in server.queues:
            slots[queue] += server.concurrency
    return {
        queue: QueueCapacity(number, slots[queue], declared.get(queue)) for queue, number in servers.items()
    }


def queue_rows(
    ask: PageRequest, infos: Sequence[QueueInfo], capacities: Mapping[str, QueueCapacity]
) -> list[QueueRow]:
    """Return the rows of queues."""
    return [queue_row(ask, info, capacities.get(info.queue, _NO_CAPACITY)) for info in infos]


def _judge(ask: PageRequest, info: QueueInfo, capacities: Mapping[str, QueueCapacity]) -> _JudgedQueue:
    capacity = capacities.get(info.queue, _NO_CAPACITY)
    fail = _get_failed_share(info)
    return _JudgedQueue(info, capacity, fail, queue_state(ask, info, capacity.servers, fail).kind)


def _get_failed_share(info: QueueInfo) -> float | None:
    return info.failed / info.processed if info.processed else None


def queue_row(ask: PageRequest, info: QueueInfo, capacity: QueueCapacity) -> QueueRow:
    """Return the row of one queue."""
    limit, servers = info.limits.max_run or capacity.max_run, capacity.servers
    fail = _get_failed_share(info)
    return QueueRow(
        key=info.queue,
        name=visible(info.queue),
        href=ask.links.to("queues", info.queue),
        state=queue_state(ask, info, servers, fail),
        info=info,
        wait=formats.span(info.latency) if info.pending else formats.NOT_KNOWN,
        wait_tone=_wait_tone(info, servers),
        slots=limit or capacity.slots,
        servers=servers,
        fail=fail,
    )


def queue_state(ask: PageRequest, info: QueueInfo, servers: int, fail: float | None) -> QueueHealth:
    """Return the state of a queue: trouble, paused, idle or busy."""
    if info.paused:
        return QueueHealth(_paused_word(ask, info), "paused", "warn", "paused")
    if not servers and (info.pending or info.active):
        return QueueHealth("No server", "lost", "bad", "trouble")
    if fail is not None and fail >= _MUCH_FAILS and info.failed >= 10:
        return QueueHealth("Failing", "danger", "bad", "trouble")
    if info.pending and info.latency >= _LONG_WAIT:
        return QueueHealth("Behind", "warning", "warn", "trouble")
    if info.active:
        return QueueHealth("Running", "active", "busy", "busy")
    return (
        QueueHealth("Idle", "pending", "", "idle")
        if not info.pending
        else QueueHealth("Waiting", "pending", "", "busy")
    )


def _paused_word(ask: PageRequest, info: QueueInfo) -> str:
    if info.paused_until is None:
        return "Paused"
    return f"Paused to {info.paused_until.astimezone(ask.preferences.time_zone):%H:%M}"


def _wait_tone(info: QueueInfo, servers: int) -> str:
    if not info.pending or info.paused:
        return ""
    if info.latency >= _VERY_LONG_WAIT or (not servers and info.latency >= timedelta(minutes=1)):
        return "bad"
    return "warn" if info.latency >= _LONG_WAIT else ""


def filter_queues(infos: Sequence[QueueInfo], pattern: str) -> list[QueueInfo]:
    """Return the queues whose names match a pattern with `*`, or contain a text; case is ignored."""
    return [info for info in infos if _matches(info.queue, pattern)]


def _matches(name: str, pattern: str) -> bool:
    if not pattern:
        return True
    if "*" in pattern or "?" in pattern:
        return fnmatch.fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))
    return pattern.lower() in name.lower()


def _count(queues: Sequence[_JudgedQueue], kind: str) -> int:
    return sum(kind in {"", one.kind} for one in queues)


def _sort(ask: PageRequest) -> tuple[str, bool]:
    text = ask.query.get("sort", "-wait")
    name, descending = text.removeprefix("-"), text.startswith("-")
    return (name, descending) if name in _SORTS else ("wait", True)


_SORT_WORDS: Final = {"wait": "sorted by the longest wait", "queue": "sorted by name"}
