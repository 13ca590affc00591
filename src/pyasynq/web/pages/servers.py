"""The pages of servers and their running tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted, some
from pyasynq._visible_text import visible
from pyasynq.web import formats
from pyasynq.web.fleet_actions import VERSION_FIELDS, name_versions
from pyasynq.web.page import Page
from pyasynq.web.pages.pagination import Pagination, paginate
from pyasynq.web.pages.queues import read_servers
from pyasynq.web.problems import NextStep, Trouble, trouble_page
from pyasynq.web.shown_task import short_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from pyasynq.info import ServerInfo, WorkerInfo
    from pyasynq.web.page import PageRequest

_NEAR_LIMIT: Final = 0.9


@dataclass(frozen=True, slots=True)
class ServerRow:
    """View model of a server in the list."""

    key: str
    name: str
    href: str
    status: str
    symbol: str
    tone: str
    busy: int
    slots: int
    engine: str
    version: str
    queues: str
    strict: bool
    started: datetime | None


@dataclass(frozen=True, slots=True)
class ReleaseRow:
    """View model of all servers with the same versions of application and engine."""

    key: str
    version: str
    engine: str
    href: str
    is_current: bool
    servers: int
    busy: int
    slots: int
    newest: datetime | None
    """Start time of the server that started last."""


@dataclass(frozen=True, slots=True)
class RunningRow:
    """View model of a running task."""

    key: str
    type: str
    href: str
    id: str
    queue: str
    queue_href: str
    server: str
    server_href: str
    started: datetime | None
    share: float | None
    """Elapsed share of the time from the task's start to its deadline, from 0 to 1; None without deadline."""
    limit: str
    tone: str


@dataclass(frozen=True, slots=True)
class QueueShare:
    """A queue that a server takes from."""

    name: str
    href: str
    priority: int
    limits: str


@dataclass(frozen=True, slots=True)
class ServersView:
    """View model of the list of servers."""

    summary: str
    servers: Pagination[ServerRow]
    running: Pagination[RunningRow]
    releases: tuple[ReleaseRow, ...]
    release: str
    """Versions to which the list is limited; empty for all servers."""
    verbs: tuple[tuple[str, str], ...]
    """Label of each action, and address of its confirmation form."""


@dataclass(frozen=True, slots=True)
class ServerView:
    """View model of the page of one server."""

    row: ServerRow
    summary: str
    running: Pagination[RunningRow]
    queues: Pagination[QueueShare]
    facts: tuple[tuple[str, str], ...]
    verbs: tuple[tuple[str, str], ...]
    """Label of each action, and address of its confirmation form."""


async def servers_page(ask: PageRequest) -> Page:
    """Return the page `/servers`."""
    every = await read_servers(ask)
    versions = {name: ask.query.get(name, "") for name in VERSION_FIELDS}
    servers = [
        one for one in every if all(value in {"", getattr(one, name)} for name, value in versions.items())
    ]
    release = name_versions(**versions)
    busy = sum(len(one.active_workers) for one in servers)
    slots = sum(one.concurrency for one in servers)
    # Only the servers and running tasks of the page become rows, because building a row is expensive.
    listed = paginate(ask, servers, counted(len(servers), "server"), "servers")
    view = ServersView(
        summary=f"{len(servers):,} alive; {busy:,} of {counted(slots, 'slot')} busy",
        servers=listed.map_rows(lambda one: _server_row(ask, one)),
        running=_paginate_running(ask, servers),
        releases=_release_rows(ask, every),
        release=release,
        verbs=_list_version_verbs(ask, servers, versions) if release and servers else (),
    )
    return Page("servers.html", f"({busy:,}) Servers", "servers", view, is_live=True)


async def server_page(ask: PageRequest) -> Page:
    """Return the page of one server."""
    server_id = ask.name("server")
    server = next((one for one in await read_servers(ask) if one.id == server_id), None)
    if server is None:
        text = "Its record in Redis lapses ten seconds after its last heartbeat."
        return trouble_page(
            404, Trouble("This server is gone", text, (NextStep("All servers", ask.links.to("servers")),))
        )
    row = _server_row(ask, server)
    view = ServerView(
        row=row,
        summary=f"{row.busy:,} of {counted(row.slots, 'slot')} busy",
        running=_paginate_running(ask, [server]),
        queues=_paginate_queues(ask, server),
        facts=tuple(_list_facts(server)),
        verbs=tuple(
            (label, ask.links.to("servers", server.id, verb))
            for label, verb in (("Quiet…", "quiet_server"), ("Stop…", "stop_server"))
            if all(ask.may(verb, name) for name in server.queues)
        ),
    )
    return Page("server.html", f"({row.busy:,}) {row.name}", "servers", view, is_live=True)


def _list_facts(server: ServerInfo) -> Iterator[tuple[str, str]]:
    yield "Id", visible(server.id)
    yield "Host", visible(server.host)
    yield "Process", str(server.pid)
    yield "Version", visible(server.version) or "not told"
    yield "Engine", _name_engine(server)
    yield "Priorities", "strict" if server.strict_priority else "by weight"
    if server.loop_blocked is not None:
        yield "Event loop", f"blocked for {formats.span(server.loop_blocked)}"


def _paginate_queues(ask: PageRequest, server: ServerInfo) -> Pagination[QueueShare]:
    names = _sort_queues(server)
    return paginate(ask, names, counted(len(names), "queue"), "queues").map_rows(
        lambda name: QueueShare(
            visible(name),
            ask.links.to("queues", name),
            server.queues[name],
            str(server.limits.get(name, "")) or "none",
        )
    )


def _sort_queues(server: ServerInfo) -> list[str]:
    """Return the names of a server's queues, highest priority first."""
    names = sorted(server.queues)
    names.sort(key=server.queues.__getitem__, reverse=True)
    return names


def _list_version_verbs(
    ask: PageRequest, servers: Sequence[ServerInfo], versions: dict[str, str]
) -> tuple[tuple[str, str], ...]:
    queues = set().union(*(one.queues for one in servers))
    return tuple(
        (label, ask.links.to("server-versions", verb, **versions))
        for label, verb in (("Quiet all…", "quiet_servers"), ("Stop all…", "stop_servers"))
        if all(ask.may(verb, name) for name in queues)
    )


def _release_rows(ask: PageRequest, servers: Sequence[ServerInfo]) -> tuple[ReleaseRow, ...]:
    """Return a row for each pair of versions, the newest start first; none if no server reports a version."""
    found: dict[tuple[str, str], list[ServerInfo]] = {}
    for server in servers:
        found.setdefault((server.version, server.engine_version), []).append(server)
    if not any(map(any, found)):
        return ()
    rows = [
        ReleaseRow(
            key=f"{version} {engine_version}",
            version=visible(version),
            engine=_name_engine(group[0]),
            href=ask.links.to("servers", version=version, engine_version=engine_version)
            if version or engine_version
            else "",
            is_current=any((version, engine_version))
            and (version, engine_version) == tuple(ask.query.get(name, "") for name in VERSION_FIELDS),
            servers=len(group),
            busy=sum(len(one.active_workers) for one in group),
            slots=sum(one.concurrency for one in group),
            newest=max((one.started for one in group if one.started), default=None),
        )
        for (version, engine_version), group in found.items()
    ]
    return tuple(
        sorted(rows, key=lambda row: (row.newest is None, row.newest and -row.newest.timestamp(), row.key))
    )


def _name_engine(server: ServerInfo) -> str:
    return " ".join(filter(None, (visible(server.engine) or "Go", visible(server.engine_version))))


def _server_row(ask: PageRequest, server: ServerInfo) -> ServerRow:
    status, symbol, tone = _describe_state(server)
    return ServerRow(
        key=server.id,
        name=visible(f"{server.host}:{server.pid}"),
        href=ask.links.to("servers", server.id),
        status=status,
        symbol=symbol,
        tone=tone,
        busy=len(server.active_workers),
        slots=server.concurrency,
        engine=_name_engine(server),
        version=visible(server.version),
        queues=some(_sort_queues(server), 5),
        strict=server.strict_priority,
        started=server.started,
    )


def _describe_state(server: ServerInfo) -> tuple[str, str, str]:
    """Return the state of a server in words, its symbol and its color tone."""
    if server.status != "active":
        return visible(server.status).capitalize(), "paused", "warn"
    return (
        ("Active", "active", "busy") if server.loop_blocked is None else ("Loop blocked", "warning", "warn")
    )


def _paginate_running(ask: PageRequest, servers: Sequence[ServerInfo]) -> Pagination[RunningRow]:
    found = [(server, worker) for server in servers for worker in server.active_workers]
    found.sort(key=lambda pair: (pair[1].started or ask.now, pair[1].task_id))
    return paginate(ask, found, counted(len(found), "task")).map_rows(lambda pair: _running_row(ask, *pair))


def _running_row(ask: PageRequest, server: ServerInfo, worker: WorkerInfo) -> RunningRow:
    part = _share_of_time(ask, worker)
    return RunningRow(
        key=f"{worker.queue}/{worker.task_id}",
        type=visible(worker.task_type),
        href=ask.links.to("queues", worker.queue, "tasks", worker.task_id),
        id=short_id(worker.task_id),
        queue=visible(worker.queue),
        queue_href=ask.links.to("queues", worker.queue),
        server=visible(f"{server.host}:{server.pid}"),
        server_href=ask.links.to("servers", server.id),
        started=worker.started,
        share=part,
        limit=_limit(worker),
        tone="bad" if part is not None and part >= _NEAR_LIMIT else "",
    )


def _share_of_time(ask: PageRequest, worker: WorkerInfo) -> float | None:
    if worker.started is None or worker.deadline is None or worker.deadline <= worker.started:
        return None
    return (ask.now - worker.started) / (worker.deadline - worker.started)


def _limit(worker: WorkerInfo) -> str:
    if worker.started is None or worker.deadline is None:
        return ""
    return formats.span(worker.deadline - worker.started)
