"""The live feed: the newest events of tasks, of one queue or of several."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted, some
from pyasynq._visible_text import visible
from pyasynq.web import formats
from pyasynq.web.locations import to_task_key
from pyasynq.web.page import PAGE_SIZE, Page
from pyasynq.web.pages.queues import filter_queues, read_queues, read_servers
from pyasynq.web.shown_task import OutcomeLook, first_line, look_of_event, short_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyasynq.info import QueueInfo, TaskEvent
    from pyasynq.web.page import PageRequest

MOST_FEED_QUEUES: Final = 16
"""Maximum number of queues whose events the page shows, which limits the load on Redis."""
_SERVERS_EVENTS: Final = 200
_SERVERS_SECONDS: Final = 30.0

_CHOICES: Final = {
    "": ("All", ()),
    "enqueued": ("Enqueued", ("enqueued", "aggregated")),
    "started": ("Started", ("started",)),
    "succeeded": ("Succeeded", ("succeeded",)),
    "failed": ("Failed", ("retried", "archived", "poisoned")),
    "others": ("Others", ("snoozed", "revoked", "requeued", "lost", "recovered")),
}
"""Label and kinds of events of each choice."""


@dataclass(frozen=True, slots=True)
class EventChip:
    """A choice of kinds of events, as a link."""

    label: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class TaskEventRow:
    """View model of an event in the list."""

    key: str
    look: OutcomeLook
    id: str
    href: str
    type: str
    queue: str
    queue_href: str
    took: str
    waited: str
    error: str
    at: datetime


@dataclass(frozen=True, slots=True)
class EventsView:
    """View model of the page of events."""

    rows: tuple[TaskEventRow, ...]
    chips: tuple[EventChip, ...]
    kinds: str
    queue: str
    type: str
    summary: str
    silent: str
    """Names of servers whose events are missing; empty if there are none, or the list is filtered."""
    queues: int
    """Number of queues whose events are shown."""
    looked_at: int
    first_page: str
    next_page: str


async def events_page(ask: PageRequest) -> Page:
    """Return the page `/events`."""
    queue = ask.query.get("queue", "").strip()[:200]
    task_type = ask.query.get("type", "").strip()[:200]
    kinds = ask.choice("kinds", tuple(_CHOICES))
    cursor = ask.query.get("after", "")
    every = await read_queues(ask)
    found = filter_queues(every, queue)
    names = [info.queue for info in _choose_busiest(found)]
    page = await ask.operator.recent_events(
        names,
        kinds=_CHOICES[kinds][1],
        types=(task_type,) if task_type else (),
        cursor=cursor,
        limit=PAGE_SIZE,
    )
    is_first = not (cursor or kinds or task_type)
    view = EventsView(
        rows=tuple(_row(ask, event) for event in page.events),
        chips=tuple(
            EventChip(label, ask.links.here(kinds=choice or None, after=None), choice == kinds)
            for choice, (label, _) in _CHOICES.items()
        ),
        kinds=kinds,
        queue=queue,
        type=task_type,
        summary=_summary(len(names), len(found)),
        silent=await _find_silent_servers(ask, names) if is_first and page.events else "",
        queues=len(names),
        looked_at=page.looked_at,
        first_page=ask.links.here(after=None) if cursor else "",
        next_page=ask.links.here(after=page.cursor) if page.cursor else "",
    )
    # Older pages stay as they are: the next rendering would begin at the same event.
    return Page("events.html", "Events", "events", view, is_live=not cursor)


def _choose_busiest(infos: Sequence[QueueInfo]) -> Sequence[QueueInfo]:
    return sorted(infos, key=lambda info: (-info.processed, -info.size, info.queue))[:MOST_FEED_QUEUES]


def _summary(shown: int, matching: int) -> str:
    if shown < matching:
        return f"of the {shown:,} busiest of {counted(matching, 'queue')}, newest first"
    return f"of {counted(shown, 'queue')}, newest first"


async def _find_silent_servers(ask: PageRequest, queues: Sequence[str]) -> str:
    """Return the names of these queues' servers that published none of the newest events, as text."""
    read = partial(ask.operator.recent_events, queues, limit=_SERVERS_EVENTS)
    newest = await ask.target.recent(ask.user, ("publishers", *queues), read, _SERVERS_SECONDS)
    publishers = {event.server_id for event in newest.events}
    names = [
        f"{server.host}:{server.pid}"
        for server in await read_servers(ask)
        if server.id not in publishers and not server.queues.keys().isdisjoint(queues)
    ]
    return some(names, 3)


def _row(ask: PageRequest, event: TaskEvent) -> TaskEventRow:
    return TaskEventRow(
        key=to_task_key(event.queue, event.position),
        look=look_of_event(event.kind),
        id=short_id(event.task_id) or counted(event.count, "event"),
        href=ask.links.to("queues", event.queue, "tasks", event.task_id) if event.task_id else "",
        type=visible(event.type)[:200],
        queue=visible(event.queue),
        queue_href=ask.links.to("queues", event.queue),
        took=formats.span(event.seconds) if event.seconds else "",
        waited=formats.span(event.waited) if event.waited is not None else "",
        error=first_line(event.error),
        at=event.at,
    )
