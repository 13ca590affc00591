"""The page of remote workers: programs in any language that lease tasks from the task service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted, some
from pyasynq._visible_text import visible
from pyasynq.web.page import Page
from pyasynq.web.pages.pagination import Pagination, paginate, read_filter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pyasynq.operations import LeaseWorker
    from pyasynq.web.page import PageRequest

WORKERS_SECTION: Final = "workers"
_LOOKS: Final = {
    "working": ("At work", "active", "busy"),
    "waiting": ("Waits for tasks", "pending", ""),
    "away": ("Away", "lost", "warn"),
}
"""Word, symbol and color tone of each state."""
_UNKNOWN: Final = ("Unknown", "info", "")
_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class LeaseWorkerRow:
    """View model of a worker that leases tasks."""

    key: str
    name: str
    word: str
    symbol: str
    tone: str
    tasks: int
    parked: int
    queues: str
    program: str
    """Language and version, as reported by the worker."""
    place: str
    """Host and process."""
    key_id: str
    key_href: str
    """Address of the worker's API key in the list of keys; empty for users who may not see it."""
    seen: datetime


@dataclass(frozen=True, slots=True)
class LeaseWorkersView:
    """View model of the page of remote workers."""

    total: int
    summary: str
    filter: str
    pages: Pagination[LeaseWorkerRow]


async def lease_workers_page(ask: PageRequest) -> Page:
    """Return the page `/workers`."""
    workers = await read_lease_workers(ask)
    rows = build_lease_worker_rows(ask, workers)
    ask.target.note_count(ask.user, WORKERS_SECTION, f"{len(rows):,}" if rows else "")
    text = read_filter(ask).lower()
    found = [
        row
        for row, one in zip(rows, workers, strict=True)
        if text in " ".join((row.name, row.program, row.place, row.key_id, *one.queues)).lower()
    ]
    view = LeaseWorkersView(
        total=len(rows),
        summary=_summarize(workers),
        filter=text,
        pages=paginate(ask, found, f"{counted(len(found), 'worker')} that asked within 10 minutes"),
    )
    return Page("lease_workers.html", f"({len(rows):,}) Remote workers", WORKERS_SECTION, view, is_live=True)


async def read_lease_workers(ask: PageRequest) -> Sequence[LeaseWorker]:
    """Return the remote workers that lease tasks from the task service; cached for a few seconds."""
    return await ask.target.recent(ask.user, "lease workers", ask.operator.lease_workers, _SECONDS)


def build_lease_worker_rows(ask: PageRequest, workers: Sequence[LeaseWorker]) -> tuple[LeaseWorkerRow, ...]:
    """Return the rows of workers."""
    return tuple(_row(ask, one) for one in workers)


def _row(ask: PageRequest, worker: LeaseWorker) -> LeaseWorkerRow:
    word, symbol, tone = _LOOKS.get(worker.state, _UNKNOWN)
    program = " ".join(part for part in (worker.language, worker.version) if part)
    place = worker.host if worker.pid is None else f"{worker.host}:{worker.pid}"
    return LeaseWorkerRow(
        key=worker.id,
        name=visible(worker.name),
        word=word,
        symbol=symbol,
        tone=tone,
        tasks=worker.at_work,
        parked=worker.parked,
        queues=some(worker.queues, 4),
        program=visible(program),
        place=visible(place),
        key_id=visible(worker.key_id),
        key_href=ask.links.to("keys", f=worker.key_id) if worker.key_id and ask.may("api_keys") else "",
        seen=worker.seen,
    )


def _summarize(workers: Sequence[LeaseWorker]) -> str:
    tasks = sum(one.at_work for one in workers)
    words = f"{counted(len(workers), 'remote worker')}, with {counted(tasks, 'task')}"
    away = sum(one.state == "away" for one in workers)
    return words + (f"; {away:,} away" if away else "")
