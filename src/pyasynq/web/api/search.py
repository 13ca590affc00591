"""Handlers of searches: matches page by page, exports as lines, the cost of a query, completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pyasynq._face_records.operations import describe_explanation
from pyasynq._face_records.tasks import describe_task

from .call import Lines, Listing
from .problem import wrong_value
from .records import describe_completion

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from pyasynq._face_records.fields import Record

    from .call import ApiCall

LINES: Final = "application/x-ndjson"


async def handle_search(call: ApiCall) -> Listing | Lines:
    """Return the tasks that match a query, newest first; as JSON lines it returns all of them."""
    queues = call["queue"] or None
    if LINES in call.header("accept"):
        return await _export(call)
    tasks, last = [], None
    async for last in call.operator.search(call["q"], queues, cursor=call["cursor"], limit=call["limit"]):
        tasks += [describe_task(task) for task in last.tasks]
    if last is None:
        return Listing(tasks, facts={"matches": 0, "looked_at": 0, "total": 0, "facets": {}})
    facets = {"queues": last.facets.queues, "states": last.facets.states, "types": last.facets.types}
    facts = {
        "matches": last.matches,
        "looked_at": last.looked_at,
        "total": max(last.total, last.looked_at),
        "facets": {name: dict(counts) for name, counts in facets.items()},
    }
    return Listing(tasks, last.cursor, facts)


async def _export(call: ApiCall) -> Lines:
    if call["cursor"]:
        raise wrong_value("cursor", "Leave it out: an export has all matches.")
    queues = call["queue"] or None
    limit = call["limit"] if "limit" in call.ask.request.query_params else None
    if queues:
        for queue in queues:
            call.ask.require("export", queue)
    call.ask.require_somewhere("export")
    # Check the query before the answer begins, so that an invalid one gives an error status.
    await call.operator.explain_search(call["q"], queues)
    lines = call.operator.export(call["q"], queues, limit=limit)
    return Lines(cast("AsyncGenerator[str]", lines))


async def handle_explain(call: ApiCall) -> Record:
    """Return the collections that a query would search, and the estimated cost."""
    return describe_explanation(await call.operator.explain_search(call["q"], call["queue"] or None))


async def handle_complete(call: ApiCall) -> Listing:
    """Return completions of a query that is being written (autocomplete)."""
    caret = len(call["q"]) if call["caret"] is None else call["caret"]
    found = await call.operator.complete_query(call["q"], min(caret, len(call["q"])))
    return Listing([describe_completion(one) for one in found])
