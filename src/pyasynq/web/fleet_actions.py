"""Forms of servers and schedules: a confirmation page, then the call of `Operator`."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError, ScheduleNotFoundError, ServerNotFoundError
from pyasynq.info import RequestStatus
from pyasynq.operations import choose_servers
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.pages.queues import read_servers
from pyasynq.web.question import REQUEST_KEY, Question, read_reason, read_request_key
from pyasynq.web.respond import redirect, redirect_to_enqueued

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from pyasynq.info import SchedulerEntryInfo
    from pyasynq.web.page import PageRequest

_SERVER_WORDS: Final = {
    "quiet_server": (
        "Quiet",
        "It takes no more tasks; what runs goes on. Only a restart lets it take tasks again.",
    ),
    "stop_server": (
        "Stop",
        "It takes no more tasks, waits for what runs, and shuts down with its whole worker.",
    ),
}
_VERSION_WORDS: Final = {
    "quiet_servers": (
        "Quiet",
        "They take no more tasks; what runs goes on. Only a restart lets them take tasks again.",
    ),
    "stop_servers": (
        "Stop",
        "They take no more tasks, wait for what runs, and shut down with their whole workers.",
    ),
}
VERSION_FIELDS: Final = ("version", "engine_version")
"""Query parameters that choose servers by the versions of the application and of pyasynq."""
_MOST_NAMED: Final = 200
_LONGEST_NUMBER: Final = 10
_SCHEDULE_WORDS: Final = {
    "pause_schedule": ("Pause", "It enqueues nothing until it is resumed.", "It is paused."),
    "resume_schedule": (
        "Resume",
        "It enqueues its task again, from its next time on.",
        "It is running again.",
    ),
    "run_schedule": ("Run", "Its task is enqueued now. Its own times stay as they are.", ""),
}
_STATUS_WORDS: Final = {
    RequestStatus.REQUESTED: ("good", "The server was asked. It obeys within 5 seconds."),
    RequestStatus.OBEYED: ("good", "The server takes no more tasks."),
    RequestStatus.REFUSED: ("warn", "It is a consumer: its program decides when it stops."),
    RequestStatus.ENDED: ("good", "The server has ended."),
    RequestStatus.NOT_UNDERSTOOD: (
        "warn",
        "It is a server in Go, which reads no requests. Send it a signal.",
    ),
}


async def server_question(ask: PageRequest) -> Page:
    """Return the confirmation form before a server is quieted or stopped."""
    server_id, verb = ask.name("server"), ask.name("verb")
    word, text = _words(_SERVER_WORDS, verb, "a server")
    ask.require_somewhere(verb)
    server = next((one for one in await read_servers(ask) if one.id == server_id), None)
    if server is None:
        raise ServerNotFoundError(server_id)
    for queue in server.queues:
        ask.require(verb, queue)
    name = visible(f"{server.host}:{server.pid}")
    running = counted(len(server.active_workers), "task")
    question = Question(
        heading=f"{word} {name}?",
        text=f"{text} It runs {running} now.",
        action=ask.links.to("servers", server_id, verb),
        button=f"{word} the server",
        keep="Leave it running",
        keep_href=ask.links.to("servers", server_id),
        is_danger=verb == "stop_server",
    )
    return Page("question.html", question.heading, "servers", question)


async def act_on_server(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Ask a server to take no more tasks, or to stop."""
    server_id, verb = ask.name("server"), ask.name("verb")
    _words(_SERVER_WORDS, verb, "a server")
    request = ask.operator.stop_server if verb == "stop_server" else ask.operator.quiet_server
    result = await request(server_id, reason=read_reason(fields))
    return redirect(ask, ask.links.to("servers", server_id), Notice(*_STATUS_WORDS[result.status]))


async def version_question(ask: PageRequest) -> Page:
    """Return the confirmation form before all servers of a version are quieted or stopped."""
    verb = ask.name("verb")
    word, text = _words(_VERSION_WORDS, verb, "servers")
    ask.require_somewhere(verb)
    versions = {name: ask.query.get(name, "") for name in VERSION_FIELDS}
    version, engine_version = versions.values()
    chosen = choose_servers(await read_servers(ask), version=version, engine_version=engine_version)
    for server in chosen:
        for queue in server.queues:
            ask.require(verb, queue)
    servers, running = counted(len(chosen), "server"), sum(len(one.active_workers) for one in chosen)
    told = name_versions(**versions)
    question = Question(
        heading=f"{word} {servers} of {told}?",
        text=f"{text} They run {counted(running, 'task')} now.",
        action=ask.links.to("server-versions", verb),
        button=f"{word} {servers}",
        keep="Leave them running",
        keep_href=ask.links.to("servers", **versions),
        is_danger=verb == "stop_servers",
        hidden=tuple(versions.items()),
        samples=tuple(visible(f"{one.host}:{one.pid}") for one in chosen[:_MOST_NAMED]),
        samples_label=servers,
        confirm=str(len(chosen)),
        confirm_label=f"Type the number of servers, {len(chosen)}, to confirm",
    )
    return Page("question.html", question.heading, "servers", question)


async def act_on_version(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Ask all servers of a version to take no more tasks, or to stop."""
    verb = ask.name("verb")
    _words(_VERSION_WORDS, verb, "servers")
    version, engine_version = (fields.get(name, "") for name in VERSION_FIELDS)
    typed = fields.get("confirm", "").replace(",", "")
    request = ask.operator.stop_servers if verb == "stop_servers" else ask.operator.quiet_servers
    results = await request(
        version=version,
        engine_version=engine_version,
        confirm=int(typed) if typed.isdecimal() and len(typed) < _LONGEST_NUMBER else 0,
        reason=read_reason(fields),
    )
    notice = f"{counted(len(results), 'server was', 'servers were')} asked. They obey within 5 seconds."
    back = ask.links.to("servers", version=version, engine_version=engine_version)
    return redirect(ask, back, Notice("good", notice))


def name_versions(version: str, engine_version: str) -> str:
    """Return a name for the servers of a version: `version 2026.11.2 on pyasynq 0.1.0`."""
    parts = (
        version and f"version {visible(version)}",
        engine_version and f"pyasynq {visible(engine_version)}",
    )
    return " on ".join(filter(None, parts))


async def schedule_question(ask: PageRequest) -> Page:
    """Return the confirmation form before a schedule is paused, resumed or run."""
    entry_id, verb = ask.name("entry"), ask.name("verb")
    word, text, _ = _words(_SCHEDULE_WORDS, verb, "a schedule")
    ask.require_somewhere(verb)
    entry = await _find_entry(ask, entry_id)
    ask.require(verb, str(entry.task.options.get("queue") or "default"))
    question = Question(
        heading=f"{word} {visible(entry.task.type) or 'this schedule'}?",
        text=f"{text} Its expression is {visible(entry.spec)}.",
        action=ask.links.to("schedules", entry_id, verb),
        button="Enqueue its task" if verb == "run_schedule" else f"{word} the schedule",
        keep="Leave it as it is",
        keep_href=ask.links.to("schedules", entry_id),
        hidden=((REQUEST_KEY, str(uuid.uuid4())),) if verb == "run_schedule" else (),
    )
    return Page("question.html", question.heading, "schedules", question)


async def act_on_schedule(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Pause, resume or run a schedule."""
    entry_id, verb = ask.name("entry"), ask.name("verb")
    _, _, done = _words(_SCHEDULE_WORDS, verb, "a schedule")
    reason = read_reason(fields)
    ask.target.forget(ask.user, "schedules")
    if verb == "run_schedule":
        run = await ask.operator.run_schedule(entry_id, key=read_request_key(fields), reason=reason)
        return redirect_to_enqueued(ask, run.task.queue, run.task.id, run.task.enqueue_status)
    change = ask.operator.pause_schedule if verb == "pause_schedule" else ask.operator.resume_schedule
    result = await change(entry_id, reason=reason)
    notice = (
        Notice("good", done)
        if result.understood
        else Notice("warn", "Its scheduler is one in Go, which ignores pauses; nothing was changed.")
    )
    return redirect(ask, ask.links.to("schedules", entry_id), notice)


async def _find_entry(ask: PageRequest, entry_id: str) -> SchedulerEntryInfo:
    entries = await ask.target.recent(ask.user, "schedules", ask.operator.schedules)
    found = next((one for one in entries if one.id == entry_id), None)
    if found is None:
        raise ScheduleNotFoundError(entry_id)
    return found


def _words(known: Mapping[str, tuple[str, ...]], verb: str, subject: str) -> tuple[str, ...]:
    if verb not in known:
        raise InvalidOptionError("verb", None, f"is not something that can be done to {subject}")
    return known[verb]
