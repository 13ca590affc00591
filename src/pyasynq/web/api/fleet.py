"""Handlers of servers, schedules, task types, Redis, attention and the doctor."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pyasynq._face_records.attention import describe_finding
from pyasynq._face_records.fields import json_value
from pyasynq._face_records.fleet import describe_entry, describe_entry_event, describe_server
from pyasynq._face_records.reports import EVENTS, describe_type
from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError, ScheduleNotFoundError, ServerNotFoundError
from pyasynq.operations import choose_servers

from .call import Created, Listing
from .idempotency import read_key, refusing_reused_key
from .problem import ProblemError
from .records import describe_damage, describe_worker
from .tasks import created_task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq._face_records.fields import Record
    from pyasynq.info import EntryPauseResult, SchedulerEntryInfo, ServerInfo, ServerRequestResult
    from pyasynq.operations import Examination

    from .call import ApiCall


async def handle_list_servers(call: ApiCall) -> Listing:
    """Return the live servers."""
    return Listing([_describe_running(server) for server in await call.operator.servers(payloads=False)])


async def handle_get_server(call: ApiCall) -> Record:
    """Return a server with its running tasks."""
    wanted = call.names["server"]
    found = [server for server in await call.operator.servers(payloads=False) if server.id == wanted]
    if not found:
        raise ServerNotFoundError(wanted)
    return _describe_running(found[0])


def _describe_running(server: ServerInfo) -> Record:
    return {
        **describe_server(server),
        "tasks": [_plain(describe_worker(worker)) for worker in server.active_workers],
        "blocked": server.loop_blocked.total_seconds() if server.loop_blocked else None,
    }


def _plain(record: Record) -> dict[str, Any]:
    return {name: json_value(EVENTS.fields[0], value) for name, value in record.items()}


async def handle_quiet_server(call: ApiCall) -> Record:
    """Ask a server to take no more tasks."""
    return _describe_request(await call.operator.quiet_server(call.names["server"], reason=call.body.reason))


async def handle_stop_server(call: ApiCall) -> Record:
    """Ask a server to shut down with its worker process."""
    return _describe_request(await call.operator.stop_server(call.names["server"], reason=call.body.reason))


async def handle_quiet_servers(call: ApiCall) -> Listing:
    """Ask several servers to take no more tasks."""
    return await _ask_servers(call, call.operator.quiet_servers)


async def handle_stop_servers(call: ApiCall) -> Listing:
    """Ask several servers to shut down with their worker processes."""
    return await _ask_servers(call, call.operator.stop_servers)


async def _ask_servers(
    call: ApiCall, request: Callable[..., Awaitable[list[ServerRequestResult]]]
) -> Listing:
    body = call.body
    results = await request(
        body.ids or None,
        version=body.version,
        engine_version=body.engine_version,
        confirm=body.confirm,
        reason=body.reason,
    )
    return Listing(list(map(_describe_request, results)))


async def find_asked_servers(call: ApiCall) -> list[ServerInfo]:
    """Return the servers that the body of a request names."""
    body = call.body
    servers = await call.operator.servers(payloads=False)
    return choose_servers(servers, body.ids, version=body.version, engine_version=body.engine_version)


def _describe_request(result: ServerRequestResult) -> Record:
    is_obeyed = result.status not in {"refused", "not_understood"}
    return {"id": result.server_id, "status": str(result.status), "obeyed": is_obeyed}


async def handle_list_schedules(call: ApiCall) -> Listing:
    """Return the entries of running schedulers."""
    return Listing([_describe_schedule(entry) for entry in await call.operator.schedules()])


async def handle_get_schedule(call: ApiCall) -> Record:
    """Return an entry of a running scheduler."""
    wanted = call.names["schedule"]
    found = [entry for entry in await call.operator.schedules() if entry.id == wanted]
    if not found:
        raise ScheduleNotFoundError(wanted)
    return _describe_schedule(found[0])


def _describe_schedule(entry: SchedulerEntryInfo) -> Record:
    return {
        **describe_entry(entry),
        "queue": entry.queue,
        "scheduler": entry.scheduler_id,
        "engine": entry.engine or "asynq",
        "paused_since": entry.paused_since,
    }


async def handle_list_schedule_events(call: ApiCall) -> Listing:
    """Return the tasks that a schedule enqueued, newest first."""
    name, page, limit = call.names["schedule"], call["page"], call["limit"]
    events = await call.operator.schedule_events(name, page, limit)
    return Listing([describe_entry_event(name, event) for event in events])


async def handle_pause_schedule(call: ApiCall) -> Record:
    """Pause a schedule."""
    return _describe_pause(
        await call.operator.pause_schedule(call.names["schedule"], reason=call.body.reason)
    )


async def handle_resume_schedule(call: ApiCall) -> Record:
    """Resume a schedule."""
    return _describe_pause(
        await call.operator.resume_schedule(call.names["schedule"], reason=call.body.reason)
    )


def _describe_pause(result: EntryPauseResult) -> Record:
    status = "paused" if result.paused_since else "running"
    return {"id": result.entry_id, "status": status, "obeyed": result.understood}


async def handle_run_schedule(call: ApiCall) -> Created:
    """Enqueue the task of a schedule now; with an idempotency key at most once within a day."""
    with refusing_reused_key("task"):
        run = await call.operator.run_schedule(
            call.names["schedule"], key=read_key(call.ask.request), reason=call.body.reason
        )
    return created_task(run.task)


async def handle_list_types(call: ApiCall) -> Listing:
    """Return the task types that workers have described."""
    return Listing([describe_type(one) for one in await call.operator.task_types()])


async def handle_get_redis(call: ApiCall) -> Record:
    """Return facts about Redis from INFO."""
    return {"info": dict(await call.operator.redis_info())}


async def handle_list_findings(call: ApiCall) -> Listing:
    """Return the findings that need an operator, the most severe first."""
    found = await call.operator.attention()
    shown = (*found.findings, *(found.snoozed if call["snoozed"] else ()))
    records = [describe_finding(one) for one in shown if one.severity >= call["severity"]]
    unreadable = {queue: visible(why) for queue, why in found.unreadable.items()}
    at = json_value(EVENTS.fields[0], found.at)
    return Listing(records, facts={"at": at, "unreadable": unreadable})


async def handle_snooze(call: ApiCall) -> None:
    """Snooze a finding for a time."""
    body = call.body
    await call.operator.snooze_finding(
        body.detector, body.queue, subject=body.subject, duration=body.duration, reason=body.reason
    )


async def handle_unsnooze(call: ApiCall) -> None:
    """End the snooze of a finding."""
    body = call.body
    if not await call.operator.unsnooze_finding(body.detector, body.queue, subject=body.subject):
        raise ProblemError(
            404, "snooze_not_found", "This finding is not snoozed.", "GET /attention has them."
        )


async def handle_examine(call: ApiCall) -> Listing:
    """Examine Redis for damage; the answer may be up to ten seconds old."""
    queues = call["queue"] or None
    question = ("api examine", tuple(sorted(call["queue"])))
    examine_queues = partial(call.operator.examine, queues)
    found = await call.ask.target.recent(call.ask.user, question, examine_queues, 10.0)
    return _list_damage(found)


async def handle_repair(call: ApiCall) -> Listing:
    """Repair what the doctor finds."""
    body = call.body
    if body.queues is not None and not body.queues:
        raise InvalidOptionError("queues", 0, "name a queue, or write null for all")
    return _list_damage(await call.operator.repair(body.queues, body.kinds, reason=body.reason))


def _list_damage(found: Examination) -> Listing:
    return Listing(list(map(describe_damage, found.findings)), facts={"skipped": list(found.skipped)})
