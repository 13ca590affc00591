"""Handlers of statistics, marks, saved views, and of the user."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyasynq._face_records.saved_views import describe_saved_view
from pyasynq._face_records.statistics import describe_mark, describe_point, describe_series

from .call import Created, Listing
from .idempotency import read_key
from .problem import ProblemError, wrong_value
from .records import describe_access

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record
    from pyasynq.telemetry import AttemptSeries

    from .call import ApiCall

_HOUR: Final = timedelta(hours=1)
_WEEK: Final = timedelta(days=7)
_MOST_POINTS: Final = 100_000


async def handle_get_me(call: ApiCall) -> Record:
    """Return the user of the request, with permissions."""
    return describe_access(call.operator.access)


async def handle_list_latency(call: ApiCall) -> Listing:
    """Return attempt counts, and percentiles of wait and run times, by queue and task type."""
    return Listing(describe_series(await _read_series(call)))


async def handle_list_series(call: ApiCall) -> Listing:
    """Return time series of attempt counts and of percentiles of wait and run times, by queue and type."""
    found = await _read_series(call)
    if sum(len(series.points) for series in found) > _MOST_POINTS:
        raise wrong_value("since", "Ask for a shorter time, a larger step, or fewer queues.")
    return Listing([describe_point(series, point) for series in found for point in series.points])


async def _read_series(call: ApiCall) -> list[AttemptSeries]:
    since = call["since"] or datetime.now(UTC) - _HOUR
    step = int(call["step"]) if call["step"] else None
    return await call.operator.attempt_series(
        call["queue"] or None, since=since, until=call["until"], step=step, types=call["type"] or None
    )


async def handle_list_marks(call: ApiCall) -> Listing:
    """Return the marks of the charts, such as deployments, in a time range, oldest first."""
    since = call["since"] or datetime.now(UTC) - _WEEK
    return Listing([describe_mark(mark) for mark in await call.operator.marks(since, call["until"])])


async def handle_add_mark(call: ApiCall) -> Created:
    """Mark a time in all charts; with an idempotency key, once."""
    key = read_key(call.ask.request)
    mark = await call.operator.add_mark(call.body.text, at=call.body.at, key=key)
    return Created(describe_mark(mark), ("marks",))


async def handle_remove_mark(call: ApiCall) -> None:
    """Remove a mark."""
    if not await call.operator.remove_mark(call.names["mark"]):
        raise ProblemError(404, "mark_not_found", "There is no such mark.", "GET /marks lists them.")


async def handle_list_views(call: ApiCall) -> Listing:
    """Return the user's own views, then the shared views of others."""
    return Listing([describe_saved_view(view) for view in await call.operator.views(call["page"])])


async def handle_save_view(call: ApiCall) -> Created:
    """Save a view, in place of one of the same name."""
    body: Any = call.body
    save = call.operator.share_view if body.shared else call.operator.save_view
    view = await save(body.name, body.page, body.query, body.columns, queue=body.queue)
    return Created(describe_saved_view(view), ("views",))


async def handle_delete_view(call: ApiCall) -> None:
    """Delete one of the user's own views, or with `shared` a shared view of any user."""
    delete = call.operator.delete_shared_view if call["shared"] else call.operator.delete_view
    if not await delete(call.names["view"]):
        raise ProblemError(404, "view_not_found", "There is no such view of yours.", "GET /views lists them.")
