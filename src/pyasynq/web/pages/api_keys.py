"""Pages and forms of API keys, with which programs authenticate at the task service."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted, some
from pyasynq._visible_text import visible
from pyasynq.errors import ApiKeyNotFoundError, InvalidOptionError
from pyasynq.operations import SCOPES
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.pages.pagination import Pagination, paginate, read_filter
from pyasynq.web.pages.queues import QueueHealth
from pyasynq.web.problems import NextStep, Trouble, trouble_page
from pyasynq.web.question import LONGEST_REASON, Question, read_reason
from pyasynq.web.respond import page_response, redirect

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from starlette.responses import Response

    from pyasynq.operations import ApiKey, IssuedApiKey
    from pyasynq.web.page import PageRequest

KEYS_SECTION: Final = "keys"
_SOON: Final = timedelta(days=7)
"""Time before its expiry from which a key is marked: a week always has a working day for a rotation."""
_SECONDS: Final = 2.0
_QUESTION: Final = "api keys"
_DAY: Final = 86_400
_ENDS: Final = (
    (str(90 * _DAY), "in 90 days"),
    (str(30 * _DAY), "in 30 days"),
    (str(365 * _DAY), "in a year"),
    ("", "never"),
)
_OVERLAPS: Final = (
    (str(_DAY), "for a day"),
    ("3600", "for an hour"),
    (str(7 * _DAY), "for a week"),
    ("0", "not at all"),
)
_SCOPE_WORDS: Final = {
    "tasks:write": "enqueue, run, cancel, archive and delete tasks",
    "tasks:read": "see tasks and read results",
    "work": "lease tasks and settle them, as workers do",
    "types:write": "configure task types",
    "metrics:read": "read metrics",
    "admin": "everything",
}
_PREFIX: Final = "scope:"
_NOT_KEPT: Final = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    """View model of an API key in the list."""

    key: str
    name: str
    state: QueueHealth
    scopes: str
    queues: str
    rate: str
    """Rate limit of the key's requests; empty for no limit."""
    ends: datetime | None
    secrets: int
    """Number of valid secrets: two during a rotation."""
    former_ends: datetime | None
    """Time at which the former secret of a rotation expires."""
    made: datetime
    made_by: str
    rotate_href: str
    delete_href: str


@dataclass(frozen=True, slots=True)
class ApiKeysView:
    """View model of the list of API keys."""

    total: int
    summary: str
    filter: str
    pages: Pagination[ApiKeyRow]
    new_href: str


@dataclass(frozen=True, slots=True)
class ScopeChoice:
    """A scope as a checkbox."""

    name: str
    label: str
    words: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class NewKeyView:
    """View model of the form for a new API key."""

    action: str
    name: str
    queues: str
    scopes: tuple[ScopeChoice, ...]
    ends: tuple[tuple[str, str], ...]
    end: str
    rate: str
    opened: int
    reason: str
    errors: Mapping[str, str]
    keep_href: str
    longest_reason: int = LONGEST_REASON


@dataclass(frozen=True, slots=True)
class IssuedKeyView:
    """View model of the page that shows the text of a new key, only once."""

    heading: str
    text: str
    note: str
    command: str
    """Command line with the same effect."""
    done_href: str


async def api_keys_page(ask: PageRequest) -> Page:
    """Return the page `/keys`."""
    keys = await ask.target.recent(ask.user, _QUESTION, ask.operator.api_keys, _SECONDS)
    rows = [_row(ask, key) for key in keys]
    ask.target.note_count(ask.user, KEYS_SECTION, str(len(rows)) if rows else "")
    text = read_filter(ask)
    found = [row for row in rows if text.lower() in f"{row.name} {row.key} {row.queues}".lower()]
    view = ApiKeysView(
        total=len(rows),
        summary=_summarize(rows),
        filter=text,
        pages=paginate(ask, found, counted(len(found), "key")),
        new_href=ask.links.to(KEYS_SECTION, "new") if ask.may("make_api_key") else "",
    )
    return Page("api_keys.html", f"({len(rows):,}) API keys", KEYS_SECTION, view, is_live=True)


def _row(ask: PageRequest, key: ApiKey) -> ApiKeyRow:
    valid = [one for one in key.secrets if one.expires_at is None or ask.now < one.expires_at]
    may_change = ask.may("rotate_api_key")
    return ApiKeyRow(
        key=key.id,
        name=visible(key.name),
        state=_find_state(ask, key, len(valid)),
        scopes=visible(", ".join(key.scopes)),
        rate="" if key.rate is None else visible(key.rate.text),
        queues="all" if key.patterns == ("*",) else some(key.patterns, 4),
        ends=key.expires_at,
        secrets=len(valid),
        former_ends=valid[1].expires_at if len(valid) > 1 else None,
        made=key.made_at,
        made_by=visible(key.made_by),
        rotate_href=ask.links.to(KEYS_SECTION, key.id, "rotate") if may_change else "",
        delete_href=ask.links.to(KEYS_SECTION, key.id, "delete") if may_change else "",
    )


def _find_state(ask: PageRequest, key: ApiKey, valid: int) -> QueueHealth:
    if key.is_expired(ask.now) or not valid:
        return QueueHealth("Expired", "lost", "bad", "expired")
    if key.expires_at is not None and key.expires_at - ask.now <= _SOON:
        return QueueHealth("Ends soon", "warning", "warn", "soon")
    if valid > 1:
        return QueueHealth("Two secrets", "retry", "busy", "rotating")
    return QueueHealth("Valid", "completed", "good", "valid")


def _summarize(rows: list[ApiKeyRow]) -> str:
    words = [f"{counted(len(rows), 'key')} of programs, for the task service"]
    for kind, one, several in (
        ("soon", "ends within a week", "end within a week"),
        ("expired", "has expired", "have expired"),
    ):
        if count := sum(row.state.kind == kind for row in rows):
            words.append(f"{count:,} {one if count == 1 else several}")
    return "; ".join(words)


async def new_key_page(ask: PageRequest) -> Page:
    """Return the form that makes a key."""
    ask.require_everywhere("make_api_key")
    return _form_page(ask, {"queues": "*", "end": _ENDS[0][0]}, {})


async def make_program_key(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Make a key and show its text, or return the form with errors.

    A reload of the response sends the form again, so one form makes at most one key.
    """
    ask.require_everywhere("make_api_key")
    scopes = [name for name in SCOPES if fields.get(_PREFIX + name)]
    patterns = fields.get("queues", "").replace(",", "\n").split()
    end = fields.get("end", "")
    rate = fields.get("rate", "").strip()
    wrong = {}
    if end not in dict(_ENDS):
        wrong["end"] = "must be one of the choices"
    if wrong:
        return page_response(ask, _form_page(ask, fields, wrong, 400), 0.0)
    name = fields.get("name", "").strip()
    if await _was_made(ask, name, fields):
        return page_response(ask, _repeated_page(ask, name), 0.0)
    try:
        issued = await ask.operator.make_api_key(
            name,
            scopes,
            patterns,
            expires_in=float(end) if end else None,
            rate=rate or None,
            reason=read_reason(fields),
        )
    except InvalidOptionError as error:
        place = {"patterns": "queues", "expires_in": "end"}.get(error.option, error.option)
        return page_response(ask, _form_page(ask, fields, {place: visible(error.remedy)}, 400), 0.0)
    ask.target.forget(ask.user, _QUESTION)
    command = ["pyasynq key make", shlex.quote(name), *(f"--scope {scope}" for scope in scopes)]
    command += [f"--queue {shlex.quote(pattern)}" for pattern in patterns]
    command += [f"--expires {int(end) // _DAY}d"] if end else []
    command += [f"--rate {shlex.quote(rate)}"] if rate else []
    return page_response(ask, _issued_page(ask, issued, " ".join(command)), 0.0)


async def _was_made(ask: PageRequest, name: str, fields: Mapping[str, str]) -> bool:
    """Return whether this user has made a key with this name since the form was opened."""
    opened = fields.get("opened", "")
    since = int(opened) if opened.isdecimal() and opened.isascii() and len(opened) < 12 else 0
    return any(
        key.name == name and key.made_by == ask.user.name and since <= key.made_at.timestamp()
        for key in await ask.operator.api_keys()
    )


def _repeated_page(ask: PageRequest, name: str) -> Page:
    text = (
        f"A key with the name {visible(name)} was made since this form was opened. Its text was shown then, "
        "and is stored nowhere. Rotate the key if you did not keep it."
    )
    steps = (
        NextStep("All keys", ask.links.to(KEYS_SECTION)),
        NextStep("Another key", ask.links.to(KEYS_SECTION, "new")),
    )
    return trouble_page(409, Trouble("This key was made already", text, steps))


async def key_question(ask: PageRequest) -> Page:
    """Return the confirmation form before a key is rotated or deleted."""
    verb = _read_verb(ask)
    ask.require_everywhere(f"{verb}_api_key")
    key = await _read_key(ask)
    name = visible(key.name)
    if verb == "delete":
        question = Question(
            heading=f"Delete the key {name}?",
            text=f"The task service refuses programs with the key {key.id} within a second.",
            action=ask.links.to(KEYS_SECTION, key.id, "delete"),
            button="Delete the key",
            keep="Keep it",
            keep_href=ask.links.to(KEYS_SECTION),
            is_danger=True,
            confirm=key.name,
        )
    else:
        is_rotating = sum(one.expires_at is None or ask.now < one.expires_at for one in key.secrets) > 1
        older = " It has two secrets now; the older one ends at once." if is_rotating else ""
        question = Question(
            heading=f"Give the key {name} a new secret?",
            text=f"The new text is shown once.{older}",
            action=ask.links.to(KEYS_SECTION, key.id, "rotate"),
            button="Make a new secret",
            keep="Keep it as it is",
            keep_href=ask.links.to(KEYS_SECTION),
            choice_label="The present secret stays valid",
            choice_name="overlap",
            choices=_OVERLAPS,
            hidden=(("newest", _newest(key)),),
        )
    return Page("question.html", question.heading, KEYS_SECTION, question)


async def change_key(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Rotate a key and show its new text, or delete it."""
    verb = _read_verb(ask)
    ask.require_everywhere(f"{verb}_api_key")
    key = await _read_key(ask)
    ask.target.forget(ask.user, _QUESTION)
    if verb == "delete":
        if fields.get("confirm", "") != key.name:
            raise InvalidOptionError("confirm", None, "is not the name of the key; nothing was deleted")
        await ask.operator.delete_api_key(key.id, reason=read_reason(fields))
        there = ask.links.to(KEYS_SECTION)
        return redirect(ask, there, Notice("good", f"The key {visible(key.name)} was deleted."))
    if fields.get("overlap", "") not in dict(_OVERLAPS):
        raise InvalidOptionError("overlap", None, "must be one of the choices of the form")
    if fields.get("newest", "") != _newest(key):
        return page_response(ask, _rotated_page(ask, key), 0.0)
    overlap = int(fields["overlap"])
    issued = await ask.operator.rotate_api_key(key.id, overlap=overlap, reason=read_reason(fields))
    command = f"pyasynq key rotate {shlex.quote(key.id)} --overlap {overlap}s"
    return page_response(ask, _issued_page(ask, issued, command, is_new=False), 0.0)


def _read_verb(ask: PageRequest) -> str:
    verb = ask.name("verb")
    if verb not in {"rotate", "delete"}:
        raise InvalidOptionError("verb", None, "is not something that can be done to a key")
    return verb


async def _read_key(ask: PageRequest) -> ApiKey:
    key = await ask.operator.api_key(ask.name("key"))
    if key is None:
        raise ApiKeyNotFoundError(ask.name("key"))
    return key


def _newest(key: ApiKey) -> str:
    """Return an identifier of the key's newest secret; it reveals nothing about the secret."""
    return str(int(key.secrets[0].made_at.timestamp())) if key.secrets else ""


def _rotated_page(ask: PageRequest, key: ApiKey) -> Page:
    text = (
        f"The key {visible(key.name)} has another secret since this form was opened. "
        "Its text was shown then, and is stored nowhere. Rotate the key again if you did not keep it."
    )
    steps = (
        NextStep("Rotate it again", ask.links.to(KEYS_SECTION, key.id, "rotate")),
        NextStep("All keys", ask.links.to(KEYS_SECTION)),
    )
    return trouble_page(409, Trouble("This key has a new secret already", text, steps))


def _issued_page(ask: PageRequest, issued: IssuedApiKey, command: str, *, is_new: bool = True) -> Page:
    key = issued.key
    former = key.secrets[1].expires_at if len(key.secrets) > 1 else None
    note = "The former secret has ended." if not is_new else ""
    if former is not None:
        end = former.astimezone(ask.preferences.time_zone)
        note = f"The former secret stays valid until {end:%-d %b %H:%M}."
    view = IssuedKeyView(
        heading=f"The key {visible(key.name)} {'was made' if is_new else 'has a new secret'}",
        text=issued.text,
        note=note,
        command=visible(command),
        done_href=ask.links.to(KEYS_SECTION),
    )
    return Page("api_key_issued.html", "Keep the key", KEYS_SECTION, view, headers=dict(_NOT_KEPT))


def _form_page(
    ask: PageRequest, fields: Mapping[str, str], wrong: Mapping[str, str], status: int = 200
) -> Page:
    view = NewKeyView(
        action=ask.links.to(KEYS_SECTION, "new"),
        name=fields.get("name", ""),
        queues=fields.get("queues", ""),
        scopes=tuple(
            ScopeChoice(_PREFIX + name, name, _SCOPE_WORDS.get(name, ""), bool(fields.get(_PREFIX + name)))
            for name in SCOPES
        ),
        ends=_ENDS,
        end=fields.get("end", ""),
        rate=fields.get("rate", ""),
        opened=int(ask.now.timestamp()),
        reason=read_reason(dict(fields)),
        errors=wrong,
        keep_href=ask.links.to(KEYS_SECTION),
    )
    return Page("api_key_new.html", "New API key", KEYS_SECTION, view, status=status)
