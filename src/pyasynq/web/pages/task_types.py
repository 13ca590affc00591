"""The page of the task service's types: their limits, their load, and the workers that serve them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.web import formats
from pyasynq.web.configuration_form import write_field
from pyasynq.web.page import Page
from pyasynq.web.pages.lease_workers import read_lease_workers
from pyasynq.web.pages.pagination import Pagination, paginate, read_filter
from pyasynq.web.pages.queues import Chip, QueueHealth, queue_state, read_capacities, read_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyasynq.info import QueueInfo
    from pyasynq.operations import TypeConfiguration
    from pyasynq.web.page import PageRequest

SECTION: Final = "task-types"
_IDLE: Final = QueueHealth("Idle", "pending", "", "idle")
_NO_WORKER: Final = QueueHealth("No worker", "lost", "bad", "trouble")
MANAGERS: Final = {"api": "API", "file": "file"}
"""Owners of a configuration in words; the dashboard can change configurations that the API owns."""


@dataclass(frozen=True, slots=True)
class TaskTypeRow:
    """View model of a task type in the list."""

    key: str
    name: str
    href: str
    state: QueueHealth
    kind: str
    manager: str
    max_run: int | None
    running: int
    waiting: int
    rate: str
    is_ordered: bool
    fail: float | None
    """Share of today's attempts that failed."""
    workers: int
    """Number of live servers, and of remote workers, that take tasks of the type."""

    @property
    def is_unserved(self) -> bool:
        """Whether tasks wait without a worker that takes them."""
        return self.state is _NO_WORKER

    @property
    def load(self) -> str:
        """Number of running tasks, and its limit if there is one, as text: `3 / 10`."""
        return formats.number(self.running) + (f" / {self.max_run:,}" if self.max_run else "")


@dataclass(frozen=True, slots=True)
class TaskTypesView:
    """View model of the list of the task service's types."""

    total: int
    summary: str
    filter: str
    state: str
    chips: tuple[Chip, ...]
    sort: str
    descending: bool
    pages: Pagination[TaskTypeRow]
    new_href: str


_SORTS: Final[Mapping[str, Callable[[TaskTypeRow], Any]]] = {
    "name": lambda row: row.key,
    "running": lambda row: row.running,
    "waiting": lambda row: row.waiting,
    "fail": lambda row: row.fail or 0.0,
    "workers": lambda row: row.workers,
}
_UNSERVED: Final = "unserved"


async def task_types_page(ask: PageRequest) -> Page:
    """Return the page `/task-types`."""
    rows = await read_type_rows(ask)
    unserved = sum(row.is_unserved for row in rows)
    ask.target.note_count(ask.user, SECTION, formats.number(len(rows)) if rows else "")
    text = read_filter(ask)
    named = [row for row in rows if text.lower() in row.key.lower()]
    state = ask.choice("state", ("", _UNSERVED))
    found = [row for row in named if not state or row.is_unserved]
    sort = ask.choice("sort", tuple(sign + name for name in _SORTS for sign in ("", "-")))
    name = sort.removeprefix("-")
    found.sort(key=lambda row: row.key)
    found.sort(key=_SORTS[name], reverse=sort.startswith("-"))
    view = TaskTypesView(
        total=len(rows),
        summary=_summarize(rows, unserved),
        filter=text,
        state=state,
        chips=(
            Chip("All", ask.links.here(state=None, page=None), len(named), not state, "", ""),
            Chip(
                "No worker",
                ask.links.here(state=_UNSERVED, page=None),
                sum(row.is_unserved for row in named),
                state == _UNSERVED,
                "lost",
                "bad",
            ),
        ),
        sort=name,
        descending=sort.startswith("-"),
        pages=paginate(ask, found, counted(len(found), "type")),
        new_href=ask.links.to("new-task-type") if ask.may("set_type_configuration") else "",
    )
    title = f"({unserved:,}) Task types" if unserved else "Task types"
    return Page("task_types.html", title, SECTION, view, is_live=True)


async def read_type_rows(ask: PageRequest) -> list[TaskTypeRow]:
    """Return the configured types that the user sees, with their load."""
    stored = await read_configured_types(ask)
    infos = {info.queue: info for info in await read_queues(ask)} if stored else {}
    workers = await count_workers(ask) if stored else Counter()
    return [build_type_row(ask, one, infos.get(one.name), workers[one.name]) for one in stored]


async def read_configured_types(ask: PageRequest) -> Sequence[TypeConfiguration]:
    """Return the configurations of types that the user sees; cached for a few seconds."""
    return await ask.target.recent(ask.user, "type configurations", ask.operator.type_configurations)


async def read_type_links(ask: PageRequest) -> Callable[[str], str]:
    """Return a function that maps a type's name to the address of its configuration, or else of its queue.

    The address is empty for a type that has neither a configuration nor a queue.
    """
    configured = {one.name for one in await read_configured_types(ask)}
    queues = {info.queue for info in await read_queues(ask)}

    def link(name: str) -> str:
        if name in configured:
            return ask.links.to(SECTION, name)
        return ask.links.to("queues", name) if name in queues else ""

    return link


def forget_configurations(ask: PageRequest) -> None:
    """Drop the cached configurations, so that the user's next page shows the change."""
    ask.target.forget(ask.user, "type configurations")


async def count_workers(ask: PageRequest) -> Counter[str]:
    """Return the number of live servers and remote workers together, by queue."""
    counts = Counter({queue: own.servers for queue, own in (await read_capacities(ask)).items()})
    remote_workers = [one for one in await read_lease_workers(ask) if one.state != "away"]
    counts.update(queue for one in remote_workers for queue in one.queues)
    return counts


def build_type_row(
    ask: PageRequest, stored: TypeConfiguration, info: QueueInfo | None, workers: int
) -> TaskTypeRow:
    """Return the row of a type; a type without a queue has had no tasks yet."""
    content = stored.content
    max_run = content.get("max_run")
    fail = info.failed / info.processed if info is not None and info.processed else None
    return TaskTypeRow(
        key=stored.name,
        name=visible(stored.name),
        href=ask.links.to(SECTION, stored.name),
        state=_find_state(ask, info, workers, fail),
        kind=visible(str(content.get("kind", "worker")))[:40],
        manager=MANAGERS.get(str(content.get("managed", "file")), "unknown"),
        max_run=1 if content.get("ordered") is True else max_run if isinstance(max_run, int) else None,
        running=info.active if info is not None else 0,
        waiting=info.pending if info is not None else 0,
        rate=visible(write_field("rate", content.get("rate")))[:40],
        is_ordered=content.get("ordered") is True,
        fail=fail,
        workers=workers,
    )


def _find_state(ask: PageRequest, info: QueueInfo | None, workers: int, fail: float | None) -> QueueHealth:
    if info is None:
        return _IDLE
    if info.pending and not workers and not info.paused:
        return _NO_WORKER
    return queue_state(ask, info, workers or 1, fail)


def _summarize(rows: Sequence[TaskTypeRow], unserved: int) -> str:
    running, waiting = sum(row.running for row in rows), sum(row.waiting for row in rows)
    words = f"{counted(len(rows), 'type')} of the task service; {running:,} running, {waiting:,} waiting"
    return words + (f"; {counted(unserved, 'type has', 'types have')} no worker" if unserved else "")
