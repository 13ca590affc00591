"""The page of the audit log: calls of users, including refused ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted, some
from pyasynq._visible_text import visible
from pyasynq.operations.audit import AuditFilters
from pyasynq.web import formats
from pyasynq.web.page import PAGE_SIZE, Page

if TYPE_CHECKING:
    from datetime import datetime

    from pyasynq.operations.audit import AuditEntry
    from pyasynq.web.page import PageRequest

_OUTCOMES: Final = {
    "done": ("Done", "completed", "good"),
    "failed": ("Failed", "archived", "bad"),
    "refused": ("Refused", "danger", "warn"),
    "started": ("Interrupted", "lost", "warn"),
}
_FIELDS: Final = ("user", "verb", "queue", "text")


@dataclass(frozen=True, slots=True)
class AuditRow:
    """View model of an audit log entry in the list."""

    key: str
    at: datetime
    who: str
    how: str
    verb: str
    subject: str
    reason: str
    word: str
    symbol: str
    tone: str
    note: str


@dataclass(frozen=True, slots=True)
class AuditView:
    """View model of the audit log's page."""

    rows: tuple[AuditRow, ...]
    summary: str
    filters: dict[str, str]
    is_filtered: bool
    shows_refused: bool
    kept_href: str
    refused_href: str
    first_page: str
    next_page: str


async def audit_page(ask: PageRequest) -> Page:
    """Return the page `/audit`."""
    filters = {name: ask.query.get(name, "").strip()[:200] for name in _FIELDS}
    wanted = AuditFilters(
        user=filters["user"], verb=filters["verb"], queue=filters["queue"], text=filters["text"]
    )
    shows_refused = ask.query.get("show") == "refused"
    read = ask.operator.refusals if shows_refused else ask.operator.audit
    page = await read(wanted, cursor=ask.query.get("after", ""), limit=PAGE_SIZE)
    view = AuditView(
        rows=tuple(_row(entry) for entry in page.entries),
        summary=f"{counted(len(page.entries), 'entry', 'entries')} of {page.scanned:,}, newest first",
        filters=filters,
        is_filtered=any(filters.values()),
        shows_refused=shows_refused,
        kept_href=ask.links.here(show=None, after=None),
        refused_href=ask.links.here(show="refused", after=None),
        first_page=ask.links.here(after=None) if ask.query.get("after") else "",
        next_page=ask.links.here(after=page.cursor) if page.cursor else "",
    )
    return Page("audit.html", "Refused · Audit" if shows_refused else "Audit", "audit", view)


def _row(entry: AuditEntry) -> AuditRow:
    word, symbol, tone = _OUTCOMES.get(entry.outcome, (visible(entry.outcome).capitalize(), "info", ""))
    details = ", ".join(f"{name} {value}" for name, value in entry.details.items())
    queues = some(entry.queues, 3)
    return AuditRow(
        key=entry.position,
        at=entry.at,
        who=visible(entry.user),
        how=", ".join(visible(part) for part in (entry.role, entry.login, entry.address) if part),
        verb=visible(entry.verb.replace("_", " ")),
        subject=": ".join(part for part in (queues, visible(details)) if part),
        reason=visible(entry.reason),
        word=word,
        symbol=symbol,
        tone=tone,
        note=_note(entry),
    )


def _note(entry: AuditEntry) -> str:
    parts = [f"{name} {number:,}" for name, number in entry.counts.items()]
    if entry.seconds is not None and entry.seconds >= 1:
        parts.append(f"took {formats.span(entry.seconds)}")
    if entry.before or entry.after:
        parts.append(f"{entry.before or 'nothing'} → {entry.after or 'nothing'}")
    if entry.error:
        parts.append(entry.error)
    if entry.more:
        parts.append(f"and {counted(entry.more, 'more time')}")
    return visible(", ".join(parts)[:500])
