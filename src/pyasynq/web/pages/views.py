"""Saved views: searches, and task lists of one queue and state, saved under a name for a user or for all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError
from pyasynq.operations.permissions import Permission
from pyasynq.task import TaskState
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.respond import redirect

if TYPE_CHECKING:
    from datetime import datetime

    from starlette.responses import Response

    from pyasynq.operations.views import SavedView
    from pyasynq.web.page import PageRequest

SEARCH: Final = "search"
"""Value of `SavedView.page` for a search; the command line uses the same value."""
QUEUE: Final = "queue"
"""Value of `SavedView.page` for a list of the tasks of one queue in one state."""
_MOST_LINKS: Final = 6
_SECONDS: Final = 10.0
_STATE: Final = re.compile(r"\bstate:([a-z]+)\s*$")
_LONGEST_QUERY: Final = 2_000


@dataclass(frozen=True, slots=True)
class ViewLink:
    """A saved view as a link."""

    label: str
    href: str


@dataclass(frozen=True, slots=True)
class ViewRow:
    """View model of a saved view in the list."""

    name: str
    href: str
    query: str
    place: str
    owner: str
    """Text that says who sees the view: the owner alone, or all users."""
    saved_at: datetime
    delete_href: str
    """URL of the form that deletes the view; empty if the user may not delete it."""


@dataclass(frozen=True, slots=True)
class ViewsView:
    """View model of the list of saved views."""

    summary: str
    rows: tuple[ViewRow, ...]


@dataclass(frozen=True, slots=True)
class NewView:
    """View model of the form that saves a view."""

    action: str
    query: str
    page: str
    queue: str
    back: str
    keep_href: str
    can_share: bool


async def views_page(ask: PageRequest) -> Page:
    """Return the page `/views`."""
    views = await ask.operator.views()
    rows = tuple(
        ViewRow(
            name=visible(one.name),
            href=_href(ask, one),
            query=visible(one.query),
            place=f"Queue {visible(one.queue)}" if one.page == QUEUE else "Search",
            owner=f"all, by {visible(one.owner)}" if one.is_shared else "only you",
            saved_at=one.saved_at,
            delete_href=ask.links.to("views", one.view, "delete") if _may_delete(ask, one) else "",
        )
        for one in views
    )
    return Page("views.html", "Saved views", "tasks", ViewsView(counted(len(rows), "view"), rows))


async def new_view_page(ask: PageRequest) -> Page:
    """Return the form that asks for the name of a new view."""
    queue = ask.query.get("queue", "")
    if queue:
        ask.require("save_view", queue)
    else:
        ask.require_somewhere("save_view")
    back = ask.query.get("back", "/tasks")
    view = NewView(
        action=ask.links.to("views"),
        query=ask.query.get("q", "").strip()[:_LONGEST_QUERY],
        page=QUEUE if queue else SEARCH,
        queue=queue,
        back=back,
        keep_href=ask.links.back(back),
        can_share=ask.may("share_view"),
    )
    return Page("view_new.html", "Save this view?", "tasks", view)


async def save_view(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Save a view for the user, or for all."""
    save = ask.operator.share_view if fields.get("share") == "yes" else ask.operator.save_view
    page, queue = fields.get("page", SEARCH), fields.get("queue", "")
    if page not in {SEARCH, QUEUE} or (page == QUEUE) != bool(queue):
        raise InvalidOptionError("page", None, "is not a page that can be saved")
    made = await save(fields.get("name", "").strip(), page, fields.get("query", "").strip(), queue=queue)
    _forget(ask)
    return redirect(
        ask,
        ask.links.back(fields.get("back", "/tasks")),
        Notice("good", f"The view “{visible(made.name)}” is saved.", "views", "All views"),
    )


async def delete_view(ask: PageRequest, _: dict[str, str]) -> Response:
    """Delete one of the user's own views, or a shared view."""
    key = ask.name("view")
    found = next((one for one in await ask.operator.views() if one.view == key), None)
    if found is None:
        return redirect(ask, ask.links.to("views"), Notice("warn", "The view is not there any more."))
    if found.owner == ask.user.name:
        await ask.operator.delete_view(key)
    else:
        await ask.operator.delete_shared_view(key)
    _forget(ask)
    return redirect(
        ask, ask.links.to("views"), Notice("good", f"The view “{visible(found.name)}” is deleted.")
    )


async def view_links(ask: PageRequest, page: str, queue: str = "") -> tuple[ViewLink, ...]:
    """Return the first saved views of a page (search, or a queue) as links."""
    views = await ask.target.recent(ask.user, _question(ask), ask.operator.views, _SECONDS)
    found = [one for one in views if ((one.page == QUEUE) == (page == QUEUE)) and one.queue == queue]
    return tuple(ViewLink(visible(one.name), _href(ask, one)) for one in found[:_MOST_LINKS])


def new_view_href(ask: PageRequest, query: str, queue: str = "") -> str:
    """Return the URL of the form that saves a page as a view; empty if the user may not save it."""
    if not ask.may("save_view", queue):
        return ""
    return ask.links.to("views", "new", q=query, queue=queue, back=ask.links.own())


def _question(ask: PageRequest) -> tuple[str, str]:
    # Users with equal permissions share cached answers, but views are personal.
    return ("views", ask.user.name)


def _forget(ask: PageRequest) -> None:
    ask.target.forget(ask.user, _question(ask))


def _may_delete(ask: PageRequest, view: SavedView) -> bool:
    if view.owner == ask.user.name:
        return ask.may("delete_view")
    verb_needs = ask.operator.access.may_everywhere(Permission.SETTINGS_ADMIN)
    return verb_needs and ask.may("delete_shared_view")


def _href(ask: PageRequest, view: SavedView) -> str:
    """Return the URL of a view; a view of a page that the dashboard does not have is opened as a search."""
    state = _STATE.search(view.query)
    if view.page == QUEUE and view.queue and state and state[1] in {one.value for one in TaskState}:
        return ask.links.to("queues", view.queue, state=state[1])
    return ask.links.to("tasks", q=view.query)
