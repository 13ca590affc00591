"""Handlers of queues: counts, limits, history, groups, reports, and changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import msgspec

from pyasynq._face_records.queues import describe_day, describe_group, describe_queue
from pyasynq._face_records.reports import describe_error
from pyasynq.errors import QueueLimitsChangedError
from pyasynq.limits import LimitChanges

from .call import Listing, changed_meanwhile, encode_answer, make_tag
from .cursors import page_of_names
from .problem import wrong_value
from .records import describe_limit_report, describe_type_counts

if TYPE_CHECKING:
    from pyasynq._face_records.fields import Record

    from .call import ApiCall


async def handle_list_queues(call: ApiCall) -> Listing:
    """Return the task counts of a page of queues, sorted by name."""
    names = await call.operator.queues(call["queue"] or None)
    page, cursor = page_of_names(sorted(names), call["cursor"], call["limit"])
    infos = await call.operator.queue_infos(page, memory=call["memory"]) if page else ()
    return Listing([describe_queue(info) for info in infos], cursor, {"total": len(names)})


async def handle_get_queue(call: ApiCall) -> Record:
    """Return the task counts and state of a queue."""
    return describe_queue(await call.operator.queue(call.queue, memory=call["memory"]))


async def get_queue_state(call: ApiCall) -> Record:
    """Return the task counts and state of a queue, without its memory."""
    return describe_queue(await call.operator.queue(call.queue))


async def handle_delete_queue(call: ApiCall) -> Record:
    """Delete a queue, and with `force` its tasks."""
    count = await call.operator.delete_queue(call.queue, force=call["force"], reason=call["reason"])
    return {"count": count}


async def handle_pause_queue(call: ApiCall) -> Record:
    """Pause a queue."""
    await call.operator.pause_queue(call.queue, call.body.duration, reason=call.body.reason)
    return await get_queue_state(call)


async def handle_resume_queue(call: ApiCall) -> Record:
    """Resume a queue."""
    await call.operator.resume_queue(call.queue, reason=call.body.reason)
    return await get_queue_state(call)


async def handle_get_limits(call: ApiCall) -> Record:
    """Return the limits of a queue: stored limits, and limits that servers declare."""
    return describe_limit_report(await call.operator.queue_limits(call.queue))


async def handle_change_limits(call: ApiCall) -> Record:
    """Change limits; with `If-Match`, only if they have not changed since they were read."""
    changes, expected = read_changes(call.body), None
    if call.header("if-match"):
        report = await call.operator.queue_limits(call.queue)
        call.check_unchanged(make_tag(encode_answer(describe_limit_report(report))))
        expected = report.stored
    try:
        await call.operator.set_queue_limits(
            call.queue, expected=expected, reason=call.body.reason, **changes
        )
    except QueueLimitsChangedError:
        raise changed_meanwhile() from None
    return await handle_get_limits(call)


def read_changes(body: Any) -> LimitChanges:
    """Return the limits in a body. Raises `ProblemError` if it has none."""
    given = {name: getattr(body, name) for name in LimitChanges.__annotations__}
    changes = {name: value for name, value in given.items() if value is not msgspec.UNSET}
    if not changes:
        raise wrong_value("max_run", "Give a limit to change: max_run, rate, period, burst or ordered.")
    return cast("LimitChanges", changes)


async def handle_set_wait_objective(call: ApiCall) -> Record:
    """Set or remove the wait objective of a queue: the longest time that a task should be pending."""
    await call.operator.set_wait_objective(call.queue, call.body.seconds, reason=call.body.reason)
    return await get_queue_state(call)


async def handle_list_history(call: ApiCall) -> Listing:
    """Return the daily numbers of processed tasks of a queue, today first."""
    return Listing([describe_day(day) for day in await call.operator.history(call.queue, call["days"])])


async def handle_list_groups(call: ApiCall) -> Listing:
    """Return a page of the groups of a queue."""
    page = await call.operator.group_page(call.queue, cursor=call["cursor"], page_size=call["limit"])
    records = [describe_group(call.queue, group) for group in page.groups]
    return Listing(records, page.cursor, {"total": page.total})


async def handle_list_errors(call: ApiCall) -> Listing:
    """Return failed tasks by their errors, the most frequent first."""
    report = await call.operator.errors(
        call.queue, call["state"], scan=call["scan"], since=call["since"], until=call["until"]
    )
    facts = {
        "scanned": report.scanned,
        "total": report.total,
        "is_complete": report.is_complete,
        "without_error": report.without_error,
    }
    return Listing([describe_error(call.queue, group) for group in report.groups], facts=facts)


async def handle_list_type_counts(call: ApiCall) -> Listing:
    """Return the types of the tasks of a queue, the most frequent first."""
    report = await call.operator.types(
        call.queue, scan=call["scan"], since=call["since"], until=call["until"]
    )
    facts = {"scanned": report.scanned, "total": report.total, "is_complete": report.is_complete}
    return Listing([describe_type_counts(one) for one in report.types], facts=facts)


async def handle_get_scale(call: ApiCall) -> Record:
    """Return how many tasks of some queues need a slot now or soon, for an autoscaler.

    Waiting tasks of a paused queue do not count.
    """
    infos = [await call.operator.queue(name) for name in dict.fromkeys(call["queue"])]
    running = [info for info in infos if not info.paused]
    active, pending = sum(info.active for info in infos), sum(info.pending for info in running)
    due = sum(info.due for info in running)
    if call["due_within"] and running:
        query = f"state:scheduled,retry due:<{math.ceil(call['due_within'])}s"
        soon = await call.operator.explain_search(query, [info.queue for info in running])
        due = max(due, soon.positions)
    return {
        "value": active + pending + due,
        "active": active,
        "pending": pending,
        "due": due,
        "paused": [info.queue for info in infos if info.paused],
    }
