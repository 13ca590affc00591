"""Face records of saved views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._face_records.fields import Field, Kind, View

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.operations import SavedView


SAVED_VIEWS: Final = View(
    "view-list",
    "name",
    (
        Field("name", Kind.TEXT, "Name of the view.", "NAME"),
        Field("query", Kind.TEXT, "Its query.", "QUERY", shrinks=True),
        Field("owner", Kind.TEXT, "The user who saved it.", "OWNER", shrinks=True),
        Field("shared", Kind.FLAG, "Whether others see it.", "SHARED"),
        Field("saved", Kind.TIME, "When it was saved.", "SAVED"),
        Field("page", Kind.TEXT, "The page that it belongs to.", "PAGE", is_wide=True),
        Field(
            "columns", Kind.NAMES, "Columns of its table; empty for the usual ones.", "COLUMNS", is_wide=True
        ),
        Field("queue", Kind.TEXT, "Queue of the page; empty if it is about none.", "IN QUEUE", is_wide=True),
        Field("id", Kind.TEXT, "Id of the view."),
    ),
    "No saved views; save one with  pyasynq view save NAME QUERY",
)


def describe_saved_view(saved: SavedView) -> Record:
    """Return the face record of a saved view."""
    return {
        "name": saved.name,
        "query": saved.query,
        "owner": saved.owner,
        "shared": saved.is_shared,
        "saved": saved.saved_at,
        "page": saved.page,
        "columns": list(saved.columns),
        "queue": saved.queue,
        "id": saved.view,
    }
