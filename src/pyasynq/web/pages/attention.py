"""Attention page: findings with one action each, and their snoozes with a reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError
from pyasynq.operations import Act
from pyasynq.operations.permissions import Permission
from pyasynq.web import formats
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.question import Question, read_reason
from pyasynq.web.respond import redirect

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from pyasynq.operations import Attention, AttentionFinding
    from pyasynq.web.page import PageRequest

_SNOOZES: Final = (
    ("3600", "1 hour"),
    ("86400", "1 day"),
    ("604800", "1 week"),
    ("2592000", "30 days"),
)
_LONGEST_REASON: Final = 200
_SEVERE: Final = 4
_MIDDLING: Final = 2
_LOOKS: Final = (
    (_SEVERE, "bad", "danger", "Severe"),
    (_MIDDLING, "warn", "warning", "Warning"),
    (0, "", "info", "Note"),
)
"""Minimum severity, color tone, symbol and word of each level, the most severe first."""
_DONE: Final = {
    "resume_queue": "The queue is running again.",
    "set_queue_limits": "The stored limits were removed.",
    "stop_server": "The server was asked to stop.",
}
"""Notice after each action of this page, by verb; other actions have their own pages."""


@dataclass(frozen=True, slots=True)
class ActionButton:
    """The one action of a finding: a link to a confirmation form, or a button that acts at once."""

    label: str
    href: str
    is_question: bool = True
    """Whether the address is a confirmation form, which may open as a dialog."""
    is_form: bool = False
    """Whether the button posts a form to the address, rather than opening it."""


@dataclass(frozen=True, slots=True)
class FindingRow:
    """View model of an attention finding."""

    key: str
    tone: str
    symbol: str
    word: str
    before: str
    """The sentence up to the queue's name; the whole sentence if it lacks the name."""
    subject: str
    """Name of the queue, as a link; empty if the sentence has none."""
    subject_href: str
    after: str
    since: datetime | None
    tasks_href: str
    advice: str
    """Action that must be done outside of the dashboard; empty if there is a button."""
    command: str
    action: ActionButton | None
    snooze_href: str
    """Address of the form for a snooze; empty if the user may not snooze."""
    snoozed: str = ""
    """Sentence with user, end and reason of the snooze; empty if the finding is not snoozed."""
    unsnooze: str = ""
    """Value of the button that ends the snooze; empty if the user may not end it."""


@dataclass(frozen=True, slots=True)
class AttentionView:
    """View model of the attention page."""

    summary: str
    findings: tuple[FindingRow, ...]
    snoozed: tuple[FindingRow, ...]
    unreadable: tuple[tuple[str, str], ...]
    """Queues that could not be read, and why."""


async def attention_page(ask: PageRequest) -> Page:
    """Return the page `/attention`."""
    attention = await read_attention(ask)
    count = len(attention.findings)
    view = AttentionView(
        summary=f"{counted(count, 'finding')}, {len(attention.snoozed):,} snoozed",
        findings=finding_rows(ask, attention.findings),
        snoozed=finding_rows(ask, attention.snoozed),
        unreadable=tuple((visible(name), visible(why)) for name, why in attention.unreadable.items()),
    )
    title = f"({count}) Attention" if count else "Attention"
    return Page("attention.html", title, "overview", view, is_live=True)


async def read_attention(ask: PageRequest) -> Attention:
    """Return the findings that need attention, from a cache of a few seconds."""
    attention = await ask.target.recent(ask.user, "attention", ask.operator.attention)
    count = len(attention.findings)
    ask.target.note_count(ask.user, "overview", formats.number(count) if count else "")
    return attention


def finding_rows(ask: PageRequest, findings: tuple[AttentionFinding, ...]) -> tuple[FindingRow, ...]:
    """Return the rows of findings."""
    return tuple(_finding_row(ask, finding) for finding in findings)


def _finding_row(ask: PageRequest, finding: AttentionFinding) -> FindingRow:
    tone, symbol, word = next(look for least, *look in _LOOKS if finding.severity >= least)
    before, subject, after = _split(finding.sentence, visible(finding.queue))
    may_snooze = ask.may("snooze_finding", finding.queue) if finding.queue else _may_everywhere(ask)
    snooze = finding.snooze
    action = None if snooze else _action(ask, finding)
    return FindingRow(
        key=finding.id,
        tone=tone,
        symbol=symbol,
        word=word,
        before=before,
        subject=subject,
        subject_href=ask.links.to("queues", finding.queue) if subject else "",
        after=after,
        since=finding.since,
        tasks_href=ask.links.to("tasks", q=finding.query) if finding.query else "",
        advice="" if finding.action.verb else finding.action.label,
        command="" if finding.action.verb else finding.action.command,
        action=action,
        snooze_href=_question_address(ask, "snooze", finding) if may_snooze and not snooze else "",
        snoozed=f"Snoozed by {visible(snooze.by)} until "
        f"{formats.exact(snooze.until, ask.preferences.time_zone)}: {visible(snooze.reason)}"
        if snooze
        else "",
        unsnooze=finding.id if snooze and ask.may("unsnooze_finding", finding.queue) else "",
    )


def _may_everywhere(ask: PageRequest) -> bool:
    """Return whether the user may snooze findings that do not concern a queue."""
    access = ask.operator.access
    return ask.may("snooze_finding") and access.may_everywhere(Permission.OPERATIONS_RUN)


def _split(sentence: str, name: str) -> tuple[str, str, str]:
    """Return a sentence in three parts around a queue's name; the name is empty if the sentence lacks it."""
    found = re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sentence) if name else None
    if found is None:
        return sentence, "", ""
    return sentence[: found.start()], name, sentence[found.end() :]


def _action(ask: PageRequest, finding: AttentionFinding) -> ActionButton | None:
    """Return the button of a finding's action; None without the permission, or without such a button."""
    verb, queue, links = finding.action.verb, finding.queue, ask.links
    if not verb or not all(ask.may(verb, one) for one in finding.queues or (queue,)):
        return None
    question = _question_address(ask, "act", finding)
    buttons = {
        "pause_queue": ActionButton("Pause…", links.to("queues", queue, "pause")),
        "resume_queue": ActionButton("Resume", links.to("attention", "act"), is_form=True),
        "set_queue_limits": ActionButton("Remove limits…", question),
        "stop_server": ActionButton("Stop server…", question),
        # The preview of the operation is the confirmation, and describes the undo.
        "start_operation": ActionButton(
            "Delete…", links.to("bulk", act=Act.DELETE.value, q=finding.query), is_question=False
        ),
    }
    return buttons.get(verb)


def _question_address(ask: PageRequest, name: str, finding: AttentionFinding) -> str:
    return ask.links.to("attention", name, finding=finding.id, back=ask.links.path)


async def snooze_question(ask: PageRequest) -> Page:
    """Return the form that asks for duration and reason of a snooze."""
    finding, back = await _find(ask, ask.query.get("finding", "")), ask.query.get("back", "/attention")
    _require(ask, "snooze_finding", finding)
    question = Question(
        heading="Snooze this finding?",
        text=finding.sentence,
        action=ask.links.to("attention", "snooze"),
        button="Snooze",
        keep="Keep it",
        keep_href=ask.links.back(back),
        hidden=(("finding", finding.id), ("back", back)),
        choice_label="For how long, for all users",
        choice_name="seconds",
        choices=_SNOOZES,
        needs_reason=True,
        longest_reason=_LONGEST_REASON,
    )
    return Page("question.html", question.heading, "overview", question)


async def act_question(ask: PageRequest) -> Page:
    """Return the confirmation form for the action of a finding."""
    finding, back = await _find(ask, ask.query.get("finding", "")), ask.query.get("back", "/attention")
    label = finding.action.label.partition(";")[0]
    _require_act(ask, finding)
    question = Question(
        heading=f"{label}?",
        text=finding.sentence,
        action=ask.links.to("attention", "act"),
        button=label,
        keep="Change nothing",
        keep_href=ask.links.back(back),
        is_danger=finding.action.verb == "stop_server",
        hidden=(("finding", finding.id), ("back", back)),
    )
    return Page("question.html", question.heading, "overview", question)


async def snooze(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Snooze a finding for a time."""
    finding = await _find(ask, fields.get("finding", ""))
    _require(ask, "snooze_finding", finding)
    seconds = fields.get("seconds", "")
    if seconds not in dict(_SNOOZES):
        raise InvalidOptionError("seconds", None, "must be one of the durations that the form offers")
    made = await ask.operator.snooze_finding(
        finding.detector,
        finding.queue,
        subject=finding.subject,
        duration=int(seconds),
        reason=read_reason(fields)[:_LONGEST_REASON],
    )
    until = formats.exact(made.until, ask.preferences.time_zone)
    return _return(ask, fields, f"The finding is snoozed until {until}.")


async def unsnooze(ask: PageRequest, fields: dict[str, str]) -> Response:
    """End the snooze of a finding."""
    finding = await _find(ask, fields.get("finding", ""))
    _require(ask, "unsnooze_finding", finding)
    await ask.operator.unsnooze_finding(finding.detector, finding.queue, subject=finding.subject)
    return _return(ask, fields, "The finding is shown again.")


async def act(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Perform a finding's action, after checking that the finding still exists."""
    finding = await _find(ask, fields.get("finding", ""))
    _require_act(ask, finding)
    method = getattr(ask.operator, finding.action.verb)
    await method(**finding.action.arguments, reason=read_reason(fields))
    return _return(ask, fields, _DONE[finding.action.verb])


def _return(ask: PageRequest, fields: dict[str, str], text: str) -> Response:
    """Redirect to the page with the button, with a notice of what was done."""
    ask.target.forget(ask.user, "attention")
    return redirect(ask, ask.links.back(fields.get("back", "/attention")), Notice("good", text))


async def _find(ask: PageRequest, key: str) -> AttentionFinding:
    """Return a finding by its id, snoozed or not.

    Raises:
        InvalidOptionError: the finding is gone, or hidden from the user.
    """
    attention = await ask.operator.attention()
    for finding in (*attention.findings, *attention.snoozed):
        if finding.id == key:
            return finding
    raise InvalidOptionError("finding", None, "is not there any more; see what needs attention now")


def _require(ask: PageRequest, verb: str, finding: AttentionFinding) -> None:
    if finding.queue:
        ask.require(verb, finding.queue)
    else:
        ask.require_somewhere(verb)


def _require_act(ask: PageRequest, finding: AttentionFinding) -> None:
    verb = finding.action.verb
    if verb not in _DONE:
        raise InvalidOptionError("finding", None, "has no action that is done here")
    for queue in finding.queues or (finding.queue,):
        ask.require(verb, queue)
