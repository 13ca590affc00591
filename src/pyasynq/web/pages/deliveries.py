"""Pages of the hosts to which the task service sends tasks: counts, durations, and failed requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from pyasynq._human_text import counted, some
from pyasynq._visible_text import visible, visible_lines
from pyasynq.operations import find_duration, judge_requests
from pyasynq.web import formats
from pyasynq.web.page import Page
from pyasynq.web.pages.pagination import Pagination, paginate, read_filter
from pyasynq.web.pages.queues import read_queues
from pyasynq.web.pages.task_types import read_configured_types, read_type_links
from pyasynq.web.problems import NextStep, Trouble, trouble_page
from pyasynq.web.shown_task import short_id

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from pyasynq.operations import FailedExchange, HostDeliveries
    from pyasynq.web.page import PageRequest

DELIVERIES_SECTION: Final = "deliveries"
_SECONDS: Final = 2.0
_USUAL_PORTS: Final = {"http": 80, "https": 443}
_LONGEST_URL: Final = 1_000


class DeliveryState(NamedTuple):
    """Appearance of a host's state: word, symbol and color tone."""

    word: str
    symbol: str
    tone: str


_IDLE: Final = DeliveryState("No calls", "pending", "")
_CALLED: Final = DeliveryState("Called", "pending", "")
_FAILS: Final = DeliveryState("Failing", "warning", "bad")
_THROTTLED: Final = DeliveryState("Throttled", "scheduled", "warn")
_DISABLED: Final = DeliveryState("Disabled", "paused", "bad")
_STATES: Final = (_IDLE, _CALLED, _FAILS, _THROTTLED, _DISABLED)
"""All states, the worst last."""
_BY_WORD: Final = {"idle": _IDLE, "called": _CALLED, "failing": _FAILS, "throttled": _THROTTLED}


@dataclass(frozen=True, slots=True)
class DeliveryFigures:
    """View model of request statistics of the last hour, for a whole host or for one task type."""

    state: DeliveryState
    calls: int
    statuses: Mapping[str, int]
    p50: str
    p99: str
    throttled_since: datetime | None
    disabled_since: datetime | None
    seen: datetime | None


@dataclass(frozen=True, slots=True)
class HostRow:
    """View model of a host in the list."""

    key: str
    name: str
    href: str
    types: str
    figures: DeliveryFigures


@dataclass(frozen=True, slots=True)
class DeliveriesView:
    """View model of the list of hosts."""

    total: int
    summary: str
    filter: str
    pages: Pagination[HostRow]


@dataclass(frozen=True, slots=True)
class DeliveryTypeRow:
    """View model of a type that calls a host."""

    key: str
    name: str
    href: str
    figures: DeliveryFigures


@dataclass(frozen=True, slots=True)
class ExchangeView:
    """View model of a task type's newest failed HTTP request to a host, with the response."""

    key: str
    type: str
    at: datetime
    task: str
    task_href: str
    again_href: str
    """Address of the form that runs the task again; empty for users without the permission."""
    attempt: int
    took: str
    reason: str
    request: str
    status: str
    answer: str


@dataclass(frozen=True, slots=True)
class HostView:
    """View model of a host's page."""

    name: str
    summary: str
    figures: DeliveryFigures
    types: tuple[DeliveryTypeRow, ...]
    exchanges: tuple[ExchangeView, ...]


async def deliveries_page(ask: PageRequest) -> Page:
    """Return the page `/deliveries`."""
    rows = await read_host_rows(ask)
    troubled = sum(row.figures.state in {_FAILS, _THROTTLED, _DISABLED} for row in rows)
    ask.target.note_count(ask.user, DELIVERIES_SECTION, formats.number(len(rows)) if rows else "")
    text = read_filter(ask)
    found = [row for row in rows if text.lower() in f"{row.key} {row.types}".lower()]
    found.sort(key=lambda row: (-_STATES.index(row.figures.state), row.key))
    view = DeliveriesView(
        total=len(rows),
        summary=_summarize(rows),
        filter=text,
        pages=paginate(ask, found, counted(len(found), "host")),
    )
    title = f"({troubled:,}) Deliveries" if troubled else "Deliveries"
    return Page("deliveries.html", title, DELIVERIES_SECTION, view, is_live=True)


async def delivery_host_page(ask: PageRequest) -> Page:
    """Return the page `/deliveries/{host}`."""
    host = ask.name("host")
    types = await _read_types(ask)
    found = [one for one in await read_deliveries(ask) if one.host == host]
    queues = {one.queue for one in found} | {queue for queue, its in types.items() if its == host}
    if not queues:
        steps = (NextStep("Show all hosts", ask.links.to(DELIVERIES_SECTION)),)
        sentence = "Its last request was more than an hour ago, or you do not see the types that call it."
        return trouble_page(404, Trouble(f"No type calls {visible(host)}", sentence, steps))
    paused = await _read_paused(ask)
    by_queue = {one.queue: one for one in found}
    link_type = await read_type_links(ask)
    view = HostView(
        name=visible(host),
        summary=f"{counted(sum(one.calls for one in found), 'request')} within the last hour",
        figures=_figure(found, paused),
        types=tuple(
            DeliveryTypeRow(
                queue,
                visible(queue),
                link_type(queue),
                _figure([by_queue[queue]] if queue in by_queue else [], paused),
            )
            for queue in sorted(queues)
        ),
        exchanges=tuple(
            _show_exchange(ask, one.failed)
            for one in sorted(found, key=lambda one: one.queue)
            if one.failed is not None
        ),
    )
    title = f"{visible(host)}: {view.figures.state.word.lower()}"
    return Page("delivery_host.html", title, DELIVERIES_SECTION, view, is_live=True)


async def read_deliveries(ask: PageRequest) -> Sequence[HostDeliveries]:
    """Return the statistics of requests to hosts in the last hour; cached for a few seconds."""
    return await ask.target.recent(ask.user, "deliveries", ask.operator.deliveries, _SECONDS)


async def read_host_rows(ask: PageRequest) -> list[HostRow]:
    """Return the hosts that task types call, including hosts without a request."""
    types = await _read_types(ask)
    by_host: dict[str, list[HostDeliveries]] = {host: [] for host in types.values()}
    for one in await read_deliveries(ask):
        by_host.setdefault(one.host, []).append(one)
    paused = await _read_paused(ask) if by_host else frozenset()
    return [
        HostRow(
            host,
            visible(host),
            ask.links.to(DELIVERIES_SECTION, host),
            some(
                sorted({one.queue for one in found} | {queue for queue, its in types.items() if its == host}),
                3,
            ),
            _figure(found, paused),
        )
        for host, found in sorted(by_host.items())
    ]


def find_host(content: Mapping[str, object]) -> str:
    """Return the host that a configuration of the kind `http` calls, as reports write it; empty for none."""
    if content.get("kind") != "http":
        return ""
    try:
        parts = urlsplit(str(content.get("url", "")).partition("{")[0])
        port = parts.port
    except ValueError:
        return ""
    name = parts.hostname or ""
    if ":" in name:
        name = f"[{name}]"
    return name if port is None or port in _USUAL_PORTS.values() else f"{name}:{port}"


async def _read_types(ask: PageRequest) -> dict[str, str]:
    """Return the host of each configured type of the kind `http`, by the type's name."""
    hosts = {one.name: find_host(one.content) for one in await read_configured_types(ask)}
    return {name: host for name, host in hosts.items() if host}


async def _read_paused(ask: PageRequest) -> frozenset[str]:
    return frozenset(info.queue for info in await read_queues(ask) if info.paused)


def _figure(found: Sequence[HostDeliveries], paused: Collection[str]) -> DeliveryFigures:
    statuses: Counter[str] = Counter()
    times: Counter[int] = Counter()
    for one in found:
        statuses.update(one.statuses)
        times.update(one.times)
    throttled = [one.throttled_since for one in found if one.throttled_since is not None]
    gone = [one.gone_at for one in found if one.gone_at is not None and one.queue in paused]
    calls = statuses.total()
    word = judge_requests(calls, statuses["2xx"], is_throttled=bool(throttled))
    return DeliveryFigures(
        state=_DISABLED if gone else _BY_WORD[word],
        calls=calls,
        statuses=statuses,
        p50=formats.span(find_duration(times, 0.5)),
        p99=formats.span(find_duration(times, 0.99)),
        throttled_since=min(throttled, default=None),
        disabled_since=min(gone, default=None),
        seen=max((one.seen for one in found), default=None),
    )


def _show_exchange(ask: PageRequest, one: FailedExchange) -> ExchangeView:
    may_run = ask.may("run_task", one.queue)
    headers = [f"{name}: {value}" for name, value in one.headers]
    body = "(the payload of the task)" if one.method not in {"GET", "DELETE"} else ""
    request = "\n".join((f"{one.method} {one.url}"[:_LONGEST_URL], *headers, "", body)).rstrip()
    answer_headers = [f"{name}: {value}" for name, value in one.answer_headers]
    text = one.answer_body.decode("utf-8", "replace")
    answer = "\n".join((*answer_headers, "", text)).strip("\n")
    return ExchangeView(
        key=one.queue,
        type=visible(one.queue),
        at=one.at,
        task=short_id(one.task_id),
        task_href=ask.links.to("queues", one.queue, "tasks", one.task_id),
        again_href=ask.links.to("queues", one.queue, "tasks", one.task_id, "run_task") if may_run else "",
        attempt=one.attempt,
        took=formats.span(one.seconds),
        reason=visible(one.reason),
        request=visible_lines(request),
        status=_describe_status(one.status),
        answer=visible_lines(answer),
    )


def _describe_status(status: int) -> str:
    if not status:
        return "No answer"
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _summarize(rows: Sequence[HostRow]) -> str:
    calls = sum(row.figures.calls for row in rows)
    words = f"{counted(calls, 'request')} to {counted(len(rows), 'host')} within the last hour"
    for state, said in ((_FAILS, "failing"), (_THROTTLED, "throttled"), (_DISABLED, "disabled")):
        number = sum(row.figures.state is state for row in rows)
        words += f"; {number:,} {said}" if number else ""
    return words
