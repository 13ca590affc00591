"""Confirmation forms before actions, which also ask for a reason for the audit log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_REASON: Final = 500
"""Maximum number of characters of a reason."""
REQUEST_KEY: Final = "request_key"
"""Name of the form field with the idempotency key: a form sent twice enqueues one task."""
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class QuestionField:
    """A field of a confirmation form."""

    name: str
    label: str
    value: str
    hint: str
    kind: str
    """`area` for several lines, otherwise the HTML type of the input."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """View model of a confirmation form."""

    heading: str
    text: str
    action: str
    button: str
    keep: str
    keep_href: str
    is_danger: bool = False
    hidden: tuple[tuple[str, str], ...] = ()
    choice_label: str = ""
    choice_name: str = ""
    choices: tuple[tuple[str, str], ...] = ()
    confirm: str = ""
    """Text that the user must type to confirm."""
    confirm_label: str = "Type its name to confirm"
    samples: tuple[str, ...] = ()
    samples_label: str = ""
    """Title of the folded list of samples; by default their number."""
    field: QuestionField | None = None
    needs_reason: bool = False
    reason: str = ""
    longest_reason: int = LONGEST_REASON


def read_reason(fields: Mapping[str, str]) -> str:
    """Return the reason typed into a form, cut to the length that is stored."""
    return fields.get("reason", "").strip()[:LONGEST_REASON]


def read_request_key(fields: Mapping[str, str]) -> str:
    """Return the idempotency key of a form; empty for a form without one."""
    text = fields.get(REQUEST_KEY, "")
    return text if _UUID.fullmatch(text) else ""
