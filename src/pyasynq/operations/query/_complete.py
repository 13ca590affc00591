"""Completion (autocomplete) of a query while the user types it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._visible_text import visible
from pyasynq.task import TaskState

from ._fields import FIELDS, Field, Kind
from ._parse import HEAD, MAX_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_MOST: Final = 20
"""Largest number of completions in one answer."""
_MOST_KNOWN: Final = 2_000
"""Maximum number of known names that are compared with the typed word, which bounds the response time."""
_PLAIN: Final = re.compile(r'[^\s,()"*\\]+')
_TOKEN: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"?|[^\s()"])*', re.DOTALL)
_LEAD: Final = re.compile(r"[\s(]*-?")
_TIMES: Final = (("<5m", "in the last five minutes"), ("<1h", "in the last hour"), ("<1d", "in the last day"))
_AGES: Final = (
    (">1m", "longer than a minute"),
    (">10m", "longer than ten minutes"),
    (">1h", "longer than an hour"),
)
_AHEAD: Final = (("past", "its time has come"), ("<5m", "in five minutes"), ("<1h", "within an hour"))
_NUMBERS: Final = (("0", "none"), (">0", "one or more"), (">3", "more than three"))
_SIZES: Final = (
    (">10kB", "more than ten kilobytes"),
    (">100kB", "more than 100 kilobytes"),
    (">1MB", "more than a megabyte"),
)
_SHARES: Final = ((">80%", "more than four fifths"), (">100%", "over its deadline"))
_EXAMPLES: Final = {
    Kind.FUTURE: _AHEAD,
    Kind.NUMBER: _NUMBERS,
    Kind.SIZE: _SIZES,
    Kind.SHARE: _SHARES,
}


class Completion(NamedTuple):
    """A completion of a query.

    Attributes:
        insert: the text that replaces the text between `start` and `end`.
        label: text for a list of completions.
        detail: meaning of the completion.
        start: position where the replaced text begins, in characters from 0.
        end: position where the replaced text ends, which is the caret.
    """

    insert: str
    label: str
    detail: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Known:
    """Names that completions suggest. They come from statistics and displayed tasks; no search is made."""

    queues: Sequence[str] = ()
    types: Sequence[str] = ()
    groups: Sequence[str] = ()
    servers: Sequence[str] = ()
    payload_paths: Sequence[str] = ()
    """Paths in payloads, such as `user.id`."""
    header_names: Sequence[str] = ()


def complete(text: str, caret: int, known: Known) -> list[Completion]:
    """Return at most 20 completions of the word before the caret, the most probable first.

    Args:
        text: the query typed so far.
        caret: position of the caret in `text`, in characters from 0; text behind the caret is left unchanged.
        known: names that fields can have.
    """
    before = text[: max(0, min(caret, len(text), MAX_LENGTH))]
    start = _token_start(before)
    token = before[start:]
    found = HEAD.match(token)
    field = _find_field(found) if found else None
    if found is None:
        return _sort_completions(_fields(token, known), token, start, len(before))
    if field is None:
        return []
    value_start = start + found.end() + _last_value(token[found.end() :])
    return _sort_completions(_values(field, known), before[value_start:], value_start, len(before))


def _last_value(values: str) -> int:
    """Return the position of the last value in a comma-separated list; commas in quotes do not count."""
    at, is_quoted = 0, False
    for position, character in enumerate(values):
        if character == '"':
            is_quoted = not is_quoted
        elif character == "," and not is_quoted:
            at = position + 1
    return at


def _token_start(before: str) -> int:
    """Return the position of the last clause in the text before the caret, behind its minus sign if any."""
    at = 0
    while True:
        lead = _LEAD.match(before, at)
        at = lead.end() if lead else at
        token = _TOKEN.match(before, at)
        end = token.end() if token else at
        if end >= len(before):
            return at
        # A closing parenthesis belongs to the clause before it.
        at = max(end, at) + (before[end] == ")")


def _find_field(head: re.Match[str]) -> Field | None:
    return FIELDS.get(f"{head[1]}." if head[2] else head[1])


def _fields(token: str, known: Known) -> Iterator[tuple[str, str, str]]:
    """Yield the fields that a clause can begin with, each as text to insert, label and meaning."""
    for field in FIELDS.values():
        if field.has_path:
            names = known.payload_paths if field.name == "payload." else known.header_names
            if token.startswith(field.name):
                for name in names[:_MOST_KNOWN]:
                    path = name if _PLAIN.fullmatch(name) and ":" not in name else _quote(name)
                    yield f"{field.name}{path}:", f"{field.name}{name}:", field.meaning
            yield field.name, field.name, field.meaning
        else:
            end = "" if field.kind is Kind.FLAG else ":"
            yield f"{field.name}{end}", f"{field.name}{end}", field.meaning
    yield "OR ", "OR", "one of two clauses"


def _values(field: Field, known: Known) -> Iterator[tuple[str, str, str]]:
    names = {
        "queue": (known.queues, "queue"),
        "type": (known.types, "type"),
        "group": (known.groups, "group"),
        "server": (known.servers, "server"),
    }.get(field.name)
    if field.kind is Kind.STATE:
        yield from ((state.value, state.value, "state") for state in TaskState)
    elif names:
        for name in names[0][:_MOST_KNOWN]:
            yield name if _PLAIN.fullmatch(name) else _quote(name), name, names[1]
    elif field.kind is Kind.PAST:
        examples = _AGES if field.name in {"waiting", "running"} else _TIMES
        yield from ((value, value, meaning) for value, meaning in examples)
    else:
        yield from ((value, value, meaning) for value, meaning in _EXAMPLES.get(field.kind, ()))


def _sort_completions(
    choices: Iterable[tuple[str, str, str]], typed: str, start: int, end: int
) -> list[Completion]:
    """Return the choices that begin with the typed text, then the choices that contain it."""
    wanted = typed.lower().removeprefix('"')
    first: list[Completion] = []
    second: list[Completion] = []
    for insert, label, detail in choices:
        lowered = label.lower()
        if insert == typed or wanted not in lowered:
            continue
        ranked = first if lowered.startswith(wanted) else second
        if len(ranked) < _MOST:
            ranked.append(Completion(insert, visible(label), detail, start, end))
    return [*first, *second][:_MOST]


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
