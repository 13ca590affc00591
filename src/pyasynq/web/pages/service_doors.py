"""The page of protocol gateways (doors) of the task service: connections, and functions with their jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.web import formats
from pyasynq.web.page import Page
from pyasynq.web.pages.pagination import Pagination, paginate, read_filter
from pyasynq.web.pages.queues import read_queues
from pyasynq.web.pages.task_types import read_configured_types, read_type_links

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyasynq.operations import ServiceDoor
    from pyasynq.web.page import PageRequest

DOORS_SECTION: Final = "doors"
_LOOKS: Final = {
    "open": ("Open", "active", "busy"),
    "closed": ("Closed", "paused", ""),
    "lost": ("Lost", "lost", "bad"),
}
"""Word, symbol and color tone of each state."""
_UNKNOWN: Final = ("Unknown", "info", "")
_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class DoorRow:
    """View model of a protocol gateway (door) in the list."""

    key: str
    address: str
    protocol: str
    host: str
    word: str
    symbol: str
    tone: str
    workers: int
    clients: int
    running: int
    opened: datetime


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """View model of a function, which is a task type that remote workers run."""

    key: str
    name: str
    href: str
    workers: int
    waiting: int
    running: int


@dataclass(frozen=True, slots=True)
class DoorsView:
    """View model of the page of protocol gateways (doors)."""

    summary: str
    filter: str
    doors: tuple[DoorRow, ...]
    functions: Pagination[FunctionRow]


async def service_doors_page(ask: PageRequest) -> Page:
    """Return the page `/doors`."""
    doors = await ask.target.recent(ask.user, "service doors", ask.operator.service_doors, _SECONDS)
    is_open = [one for one in doors if one.state == "open"]
    ask.target.note_count(ask.user, DOORS_SECTION, formats.number(len(is_open)) if is_open else "")
    text = read_filter(ask)
    functions = await _read_functions(ask, is_open) if doors else []
    found = [one for one in functions if text.lower() in one.key.lower()]
    view = DoorsView(
        _summarize(is_open),
        text,
        tuple(map(_build_door_row, doors)),
        paginate(ask, found, counted(len(found), "function")),
    )
    return Page("doors.html", "Doors", DOORS_SECTION, view, is_live=True)


async def _read_functions(ask: PageRequest, doors: Sequence[ServiceDoor]) -> list[FunctionRow]:
    """Return the task types that remote workers run, and other functions that gateway connections accept."""
    workers: Counter[str] = Counter()
    for door in doors:
        workers.update(door.functions)
    types = await read_configured_types(ask)
    names = {one.name for one in types if one.content.get("kind", "worker") == "worker"}
    infos = {info.queue: info for info in await read_queues(ask)}
    link_type = await read_type_links(ask)
    return [
        FunctionRow(
            name,
            visible(name),
            link_type(name),
            workers[name],
            infos[name].pending if name in infos else 0,
            infos[name].active if name in infos else 0,
        )
        for name in sorted(names | workers.keys())
    ]


def _build_door_row(door: ServiceDoor) -> DoorRow:
    word, symbol, tone = _LOOKS.get(door.state, _UNKNOWN)
    return DoorRow(
        door.id,
        visible(door.address),
        visible(door.protocol).capitalize(),
        visible(door.host),
        word,
        symbol,
        tone,
        door.workers,
        door.clients,
        door.running,
        door.opened,
    )


def _summarize(doors: Sequence[ServiceDoor]) -> str:
    workers, clients = sum(one.workers for one in doors), sum(one.clients for one in doors)
    words = counted(len(doors), "open door")
    return f"{words}, with {counted(workers, 'worker')} and {counted(clients, 'client')}"
