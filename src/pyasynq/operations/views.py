"""Saved views: a page, a query and columns under a name, for their owner or for all. Pure."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyasynq._checks import check_name
from pyasynq.errors import InvalidOptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_NAME: Final = 100
"""Maximum number of characters of the names of a view, its page and its columns."""
MAX_COLUMNS: Final = 50
MAX_OWN_VIEWS: Final = 100
"""Maximum number of views of one user."""


@dataclass(frozen=True, slots=True)
class SavedView:
    """A query and the columns of its table, saved under a name.

    A view that names a queue is shown to users who see that queue.
    """

    view: str
    """Id, derived from owner and name."""
    name: str
    owner: str
    """Name of the user who has saved it."""
    is_shared: bool
    """Whether other users see the view."""
    saved_at: datetime
    page: str = ""
    """Page of the dashboard or command line that the view belongs to."""
    query: str = ""
    columns: tuple[str, ...] = ()
    """Columns of the page's table, in their order; empty for the default columns."""
    queue: str = ""
    """Queue of the page; empty for a page about no queue, or about several."""


def make_view(
    name: str,
    *,
    owner: str,
    page: str,
    query: str,
    columns: Sequence[str],
    queue: str,
    is_shared: bool,
    now: datetime,
) -> SavedView:
    """Build a view. Raises `InvalidOptionError` for empty or long names, and for too many columns."""
    _check_text("name", check_name("name", name))
    _check_text("page", check_name("page", page))
    if isinstance(columns, str) or len(columns) > MAX_COLUMNS:
        raise InvalidOptionError("columns", len(columns), f"must be a list of at most {MAX_COLUMNS} names")
    for column in columns:
        _check_text("columns", check_name("columns", column))
    if queue:
        check_name("queue", queue)
    second = datetime.fromtimestamp(round(now.timestamp(), 3), UTC)
    return SavedView(view_id(owner, name), name, owner, is_shared, second, page, query, tuple(columns), queue)


def view_id(owner: str, name: str) -> str:
    """Return the id of a view, derived from owner and name: saving a view under the same name replaces it."""
    return hashlib.sha256(f"{owner}\n{name}".encode("utf-8", "replace")).hexdigest()[:16]


def encode_view(view: SavedView) -> bytes:
    """Return a view as JSON, without its id, which is the name of its hash field in Redis."""
    facts = {
        "name": view.name,
        "owner": view.owner,
        "shared": view.is_shared,
        "at": view.saved_at.timestamp(),
        "page": view.page,
        "query": view.query,
        "columns": view.columns,
        "queue": view.queue,
    }
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode_view(view: str, data: bytes) -> SavedView | None:
    """Decode a view from its JSON; return None for anything else."""
    try:
        facts = json.loads(data)
        texts = {name: str(facts[name]) for name in ("name", "owner", "page", "query", "queue")}
        return SavedView(
            view=view,
            is_shared=facts["shared"] is True,
            saved_at=datetime.fromtimestamp(float(facts["at"]), UTC),
            columns=tuple(map(str, facts["columns"])),
            **texts,
        )
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, OSError, RecursionError):
        return None


def order_views(views: Sequence[SavedView], user: str) -> list[SavedView]:
    """Sort views by name, the user's own before the shared views of others."""
    return sorted(views, key=lambda one: (one.owner != user, one.name.casefold(), one.owner))


def _check_text(option: str, text: str) -> None:
    if len(text) > LONGEST_NAME:
        raise InvalidOptionError(option, text, f"must have at most {LONGEST_NAME} characters")
