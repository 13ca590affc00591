"""Entries of the command palette: pages of queues and task types, and forms that create something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from pyasynq._visible_text import visible
from pyasynq.web.pages.queues import read_queues
from pyasynq.web.pages.task_types import SECTION, read_configured_types

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.responses import Response

    from pyasynq.web.page import PageRequest

_MOST_QUEUES = 6
_MOST_TYPES = 3
_FORMS = (
    ("Make an API key", "make_api_key", "keys/new"),
    ("Enqueue a task", "enqueue", "enqueue"),
    ("Make a task type", "set_type_configuration", "new-task-type"),
)
"""Label, verb and address of forms that belong to no particular queue."""


async def palette_response(ask: PageRequest) -> Response:
    """Answer `/palette.json`: the entries whose names contain the typed text."""
    text = ask.query.get("q", "").strip().lower()[:200]
    root = ask.links.to()
    configured = [one.name for one in await read_configured_types(ask)]
    found = [
        (f"Go to queue {visible(name)}", ask.links.to("queues", name))
        for name in _match(text, (info.queue for info in await read_queues(ask)))[:_MOST_QUEUES]
    ]
    found += [
        (f"Go to task type {visible(name)}", ask.links.to(SECTION, name))
        for name in _match(text, configured)[:_MOST_TYPES]
    ]
    if ask.may("enqueue"):
        published = await ask.target.recent(ask.user, "task types", ask.operator.task_types, 30.0)
        types = {one.type for one in published if not one.is_prefix}.union(configured)
        found += [
            (f"Enqueue {visible(name)}", ask.links.to("enqueue", type=name))
            for name in sorted(name for name in types if text in name.lower())[:_MOST_TYPES]
        ]
    found += [(label, root + path) for label, verb, path in _FORMS if text in label.lower() and ask.may(verb)]
    return JSONResponse(
        {"commands": [{"label": label, "href": href.removeprefix(root)} for label, href in found]}
    )


def _match(text: str, names: Iterable[str]) -> list[str]:
    """Return the names that contain a text: first those that begin with it, then the shorter ones."""
    found = [name for name in names if text in name.lower()]
    return sorted(found, key=lambda name: (not name.lower().startswith(text), len(name), name))
