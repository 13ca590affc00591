"""One queue, in tabs: tasks, types, errors, groups, limits, history, consumers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.operations import find_declared_max_run
from pyasynq.task import TaskState
from pyasynq.web import formats
from pyasynq.web.page import Page
from pyasynq.web.pages.queue_tabs import READERS
from pyasynq.web.pages.queues import QueueCapacity, QueueRow, queue_row, read_servers
from pyasynq.web.shown_task import STATE_LOOKS, StateLook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.info import QueueInfo, ServerInfo
    from pyasynq.web.page import PageRequest

TABS: Final = ("tasks", "types", "errors", "groups", "limits", "history", "consumers")


@dataclass(frozen=True, slots=True)
class Tab:
    """A tab of the page of a queue, as a link."""

    name: str
    label: str
    href: str
    note: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class StateChip:
    """A task state with its number of tasks, as a link to the list."""

    look: StateLook
    href: str
    count: int
    is_current: bool


@dataclass(frozen=True, slots=True)
class QueueView:
    """View model of the page of one queue."""

    row: QueueRow
    summary: str
    tabs: tuple[Tab, ...]
    tab: str
    chips: tuple[StateChip, ...]
    content: Any
    """View model of the tab."""
    pause_href: str
    delete_href: str


async def queue_page(ask: PageRequest) -> Page:
    """Return the page `/queues/{queue}`."""
    name = ask.name("queue")
    info = await ask.operator.queue(name)
    servers = [server for server in await read_servers(ask) if name in server.queues]
    slots, limit = sum(one.concurrency for one in servers), find_declared_max_run(servers).get(name)
    row = queue_row(ask, info, QueueCapacity(len(servers), slots, limit))
    tab = ask.choice("tab", TABS)
    state = _choose_state(ask, info)
    content = await READERS[tab](ask, info, servers, state)
    view = QueueView(
        row=row,
        summary=_summary(info, row, servers),
        tabs=tuple(
            Tab(one, one.capitalize(), _tab_href(ask, one), _tab_note(one, info, servers), one == tab)
            for one in TABS
        ),
        tab=tab,
        chips=tuple(
            StateChip(
                look,
                ask.links.here(state=look.state, after=None, tab=None),
                _count(info, look.state),
                look.state is state,
            )
            for look in STATE_LOOKS.values()
        ),
        content=content,
        pause_href=ask.links.to("queues", name, "resume" if info.paused else "pause"),
        delete_href=ask.links.to("queues", name, "delete"),
    )
    return Page("queue.html", _title(name, tab, state, info), "queues", view, is_live=True)


def _choose_state(ask: PageRequest, info: QueueInfo) -> TaskState:
    text = ask.query.get("state", "")
    if text in STATE_LOOKS:
        return TaskState(text)
    # By default, the first state in display order that has tasks.
    filled = [look.state for look in STATE_LOOKS.values() if _count(info, look.state)]
    return filled[0] if filled else TaskState.PENDING


def _count(info: QueueInfo, state: TaskState) -> int:
    return int(getattr(info, state.value))


def _tab_href(ask: PageRequest, tab: str) -> str:
    return ask.links.here(**(dict.fromkeys(ask.query) | {"tab": None if tab == "tasks" else tab}))


def _tab_note(tab: str, info: QueueInfo, servers: Sequence[ServerInfo]) -> str:
    notes = {"tasks": info.size, "groups": info.groups, "consumers": len(servers)}
    return formats.number(notes[tab]) if notes.get(tab) else ""


def _summary(info: QueueInfo, row: QueueRow, servers: Sequence[ServerInfo]) -> str:
    parts = []
    if info.pending:
        parts.append(f"oldest waits {row.wait}")
    if row.slots:
        parts.append(f"{info.active:,} of {counted(row.slots, 'slot')} taken")
    elif not servers:
        parts.append("no server takes from it")
    parts.append(
        f"{counted(info.processed, 'attempt')} today" + (f", {info.failed:,} failed" if info.failed else "")
    )
    return ", ".join(parts)


def _title(name: str, tab: str, state: TaskState, info: QueueInfo) -> str:
    if tab != "tasks":
        return f"{tab.capitalize()} · {visible(name)}"
    return f"({_count(info, state):,}) {STATE_LOOKS[state].word.lower()} · {visible(name)}"
