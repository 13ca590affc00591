"""Help page: keyboard shortcuts, the query language, and links to the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq.web.page import Page

if TYPE_CHECKING:
    from pyasynq.web.page import PageRequest


@dataclass(frozen=True, slots=True)
class HelpView:
    """View model of the help page."""

    keys: tuple[tuple[str, str], ...]
    queries: tuple[tuple[str, str], ...]


_KEYS: Final = (
    ("/", "search, or filter the list"),
    ("Ctrl K", "act on the selection or the page, or go to another one"),
    ("g o", "overview"),
    ("g q", "queues"),
    ("g t", "tasks"),
    ("g e", "errors"),
    ("g w", "servers"),
    ("g s", "schedules"),
    ("g v", "events"),
    ("g y", "task types of the task service"),
    ("g a", "audit"),
    ("j k", "next, previous row"),
    ("Enter", "open the row"),
    ("x", "select the row"),
    ("*", "select all that are shown"),
    (".", "show what has changed"),
    ("z", "freeze the page"),
    ("r c a #", "run, cancel, archive, delete"),
    ("t y e", "reschedule the task, edit its payload, enqueue it again"),
    ("m", "act on all that match"),
    ("p", "pause the queue"),
    ("?", "this page"),
)
_QUERIES: Final = (
    ("state:archived error:timeout", "archived tasks whose error contains “timeout”"),
    ("queue:mail-* type:email:*", "tasks of some queues and some types"),
    ("payload.user.id:42", "tasks with this number in their payload"),
    ("retried:>3 -queue:slow", "retried more than three times, not in the queue slow"),
    ("failed:<1h", "failed in the last hour"),
    ("waiting:>10m", "pending for more than ten minutes"),
)


async def help_page(ask: PageRequest) -> Page:  # noqa: ARG001 - every page function takes the request
    """Return the page `/help`."""
    return Page("help.html", "Help", "", HelpView(_KEYS, _QUERIES))
