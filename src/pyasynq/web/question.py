"""Questions: forms that ask before something is done, and the reason that they take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LONGEST_REASON: Final = 500
"""Longest reason that a form takes, in characters."""


@dataclass(frozen=True, slots=True)
class Question:
    """View model of a form that asks before it acts."""

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
    """Text that the user must type."""
    samples: tuple[str, ...] = ()
    needs_reason: bool = False
    longest_reason: int = LONGEST_REASON


def read_reason(fields: dict[str, str]) -> str:
    """Return the reason in a form, as much of it as is kept."""
    return fields.get("reason", "").strip()[:LONGEST_REASON]
