"""The page of the doctor: damage found in Redis, its meaning, and its repair."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.doctor import FindingKind, Severity
from pyasynq.errors import InvalidOptionError
from pyasynq.web.examinations import ExaminationRun
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.question import Question, read_reason
from pyasynq.web.respond import redirect

if TYPE_CHECKING:
    from starlette.responses import Response

    from pyasynq.doctor import Finding
    from pyasynq.web.page import PageRequest

_PATIENCE: Final = 4.0
"""Seconds for which the response waits for an examination; that of a small Redis takes 2 s."""
_SUBJECTS: Final = 10
_LOOKS: Final = {
    Severity.ERROR: ("Damage", "danger", "bad"),
    Severity.WARNING: ("Warning", "warning", "warn"),
    Severity.NOTICE: ("Notice", "info", ""),
}


@dataclass(frozen=True, slots=True)
class DamageRow:
    """View model of a finding of the doctor."""

    word: str
    symbol: str
    tone: str
    queue: str
    queue_href: str
    kind: str
    explanation: str
    count: str
    subjects: tuple[tuple[str, str], ...]
    """The first damaged tasks or keys, each with a link if it is a task."""
    more: int
    repair: str
    repair_href: str
    """Address of the repair form; empty if the damage cannot be repaired, or not by this user."""


@dataclass(frozen=True, slots=True)
class DoctorView:
    """View model of the doctor page."""

    state: str
    """`never`, `running` or `ended`; live pages reload when it changes."""
    summary: str
    examine: str
    rows: tuple[DamageRow, ...]
    skipped: tuple[str, ...]
    error: str


async def doctor_page(ask: PageRequest) -> Page:
    """Return the page `/doctor`."""
    ask.require_somewhere("examine")
    latest = ask.target.examinations.get(ask.target.access_of(ask.user))
    rows: tuple[DamageRow, ...] = ()
    skipped: tuple[str, ...] = ()
    state, summary = "never", "not examined yet"
    if latest is not None and not latest.task.done():
        state, summary = "running", "looking through all keys"
    elif latest is not None:
        state = "ended"
        summary = "the examination failed" if latest.error else "no damage"
        if not latest.error:
            examination = latest.task.result()
            rows = tuple(_row(ask, one) for one in examination.findings)
            skipped = tuple(visible(one) for one in examination.skipped)
            if rows:
                summary = counted(len(rows), "finding")
    ask.target.note_count(ask.user, "doctor", str(len(rows)) if rows else "", "warn")
    view = DoctorView(
        state=state,
        summary=summary,
        examine=ask.links.to("doctor", "examine"),
        rows=rows,
        skipped=skipped,
        error=latest.error if latest is not None else "",
    )
    title = f"({len(rows)}) Doctor" if rows else "Doctor"
    return Page("doctor.html", title, "doctor", view, is_live=True)


async def examine(ask: PageRequest, _: dict[str, str]) -> Response:
    """Begin an examination, unless one runs, and wait a few seconds for its end."""
    ask.require_somewhere("examine")
    key = ask.target.access_of(ask.user)
    latest = ask.target.examinations.get(key)
    if latest is None or latest.task.done():
        latest = ask.target.examinations[key] = ExaminationRun(
            ask.now, ask.target.start(ask.operator.examine())
        )
    await asyncio.wait([latest.task], timeout=_PATIENCE)
    return redirect(ask, ask.links.to("doctor"))


async def repair_question(ask: PageRequest) -> Page:
    """Return the confirmation form for the repair of one kind of damage."""
    kind, queue = _read_kind(ask.query.get("kind", "")), ask.query.get("queue", "")
    finding = _find(ask, kind, queue)
    if finding is None or not finding.is_repairable:
        raise InvalidOptionError("kind", kind.value, "was not found, or cannot be repaired; examine again")
    _require_repair(ask, queue)
    question = Question(
        heading=f"Repair {_words(kind)}?",
        text=f"{finding.explanation} Repair: {finding.repair}. "
        "Each is looked at again before it is changed; what is right by then is left alone.",
        action=ask.links.to("doctor", "repair"),
        button=f"Repair {counted(len(finding.subjects), 'place')}",
        keep="Leave it as it is",
        keep_href=ask.links.to("doctor"),
        hidden=(("kind", kind.value), ("queue", queue)),
        samples=tuple(visible(one) for one in finding.subjects[:_SUBJECTS]),
    )
    return Page("question.html", question.heading, "doctor", question)


async def repair(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Repair the damage of one kind that was found in one queue."""
    kind, queue = _read_kind(fields.get("kind", "")), fields.get("queue", "")
    _require_repair(ask, queue)
    examination = await ask.operator.repair([queue] if queue else None, [kind], reason=read_reason(fields))
    repaired = sum(len(one.repaired) for one in examination.findings)
    ask.target.examinations.pop(ask.target.access_of(ask.user), None)
    await examine(ask, {})
    text = f"{counted(repaired, 'place was', 'places were')} repaired."
    return redirect(ask, ask.links.to("doctor"), Notice("good" if repaired else "warn", text))


def _require_repair(ask: PageRequest, queue: str) -> None:
    if queue:
        ask.require("repair", queue)
    else:
        ask.require_somewhere("repair")


def _row(ask: PageRequest, finding: Finding) -> DamageRow:
    word, symbol, tone = _LOOKS[finding.severity]
    may_repair = finding.is_repairable and ask.may("repair", finding.queue)
    return DamageRow(
        word=word,
        symbol=symbol,
        tone=tone,
        queue=visible(finding.queue),
        queue_href=ask.links.to("queues", finding.queue) if finding.queue else "",
        kind=_words(finding.kind),
        explanation=visible(finding.explanation),
        count=counted(len(finding.subjects), "place"),
        subjects=tuple(
            (
                visible(one),
                ask.links.to("queues", finding.queue, "tasks", one)
                if finding.queue and finding.kind in _OF_TASKS
                else "",
            )
            for one in finding.subjects[:_SUBJECTS]
        ),
        more=max(len(finding.subjects) - _SUBJECTS, 0),
        repair=visible(finding.repair),
        repair_href=ask.links.to("doctor", "repair", kind=finding.kind.value, queue=finding.queue)
        if may_repair
        else "",
    )


_OF_TASKS: Final = frozenset(
    {
        FindingKind.ORPHAN,
        FindingKind.IN_TWO_PLACES,
        FindingKind.WRONG_STATE,
        FindingKind.WRONG_RETRIES,
        FindingKind.WRONG_LOCK,
        FindingKind.ACTIVE_WITHOUT_LEASE,
        FindingKind.FOREIGN_MESSAGE,
        FindingKind.STALE_FIELDS,
    }
)


def _find(ask: PageRequest, kind: FindingKind, queue: str) -> Finding | None:
    latest = ask.target.examinations.get(ask.target.access_of(ask.user))
    if latest is None or not latest.task.done() or latest.error:
        return None
    found = latest.task.result().findings
    return next((one for one in found if (one.kind, one.queue) == (kind, queue)), None)


def _read_kind(text: str) -> FindingKind:
    try:
        return FindingKind(text)
    except ValueError:
        raise InvalidOptionError("kind", None, "is not a kind of damage") from None


def _words(kind: FindingKind) -> str:
    return kind.value.replace("_", " ")
