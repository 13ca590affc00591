"""The page of one task: reason of its state, attempts, data, and path through the states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from pyasynq._visible_text import visible, visible_lines
from pyasynq.task import TaskState
from pyasynq.web import formats
from pyasynq.web.page import Page
from pyasynq.web.pages.queue_tabs import VerbButton, first_words, quoted
from pyasynq.web.pages.queues import read_queues, read_servers
from pyasynq.web.pages.task_story import (
    Fact,
    Machine,
    StoryEvent,
    Why,
    build_machine,
    build_steps,
    explain_task,
)
from pyasynq.web.problems import not_found_page
from pyasynq.web.respond import page_response
from pyasynq.web.shown_task import STATE_LOOKS, StateLook, look_of_outcome, short_id
from pyasynq.web.task_edits import possible_edits

if TYPE_CHECKING:
    from datetime import datetime

    from pyasynq.operations import Presentation
    from pyasynq.task import AttemptInfo, TaskInfo
    from pyasynq.web.page import PageRequest

_PARTS: Final = ("payload", "headers", "result")
_TRACE_DIGITS: Final = 32


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """View model of an attempt that did not succeed."""

    number: int
    outcome: str
    symbol: str
    tone: str
    error: str
    ran: str
    server: str
    ended: datetime


@dataclass(frozen=True, slots=True)
class DataTab:
    """A tab that selects the shown data."""

    name: str
    label: str
    note: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class FormChoice:
    """Link that selects how data are shown: as a tree, text or hex."""

    label: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class Related:
    """Link to a search for related tasks, such as tasks with the same error."""

    label: str
    href: str
    text: str


@dataclass(frozen=True, slots=True)
class TaskView:
    """View model of the page of one task."""

    key: str
    id: str
    type: str
    queue: str
    queue_href: str
    queue_name: str
    clone_href: str
    look: StateLook
    why: Why
    attempts: tuple[AttemptRow, ...]
    attempts_note: str
    error: str
    traceback: str
    tabs: tuple[DataTab, ...]
    part: str
    data: Presentation
    headers: tuple[tuple[str, str], ...]
    forms: tuple[FormChoice, ...]
    download: str
    related: tuple[Related, ...]
    machine: Machine
    attempt: str
    """Text that changes with each attempt; the live page then loads again."""
    facts: tuple[Fact, ...]
    steps: tuple[StoryEvent, ...]
    verbs: tuple[VerbButton, ...]
    verb_hrefs: tuple[str, ...]
    progress: str
    progress_done: float
    progress_total: float


async def task_page(ask: PageRequest) -> Page:
    """Return the page `/queues/{queue}/tasks/{task}`."""
    queue, task_id = ask.name("queue"), ask.name("task")
    task = await ask.operator.task(queue, task_id)
    info = next((one for one in await read_queues(ask) if one.queue == queue), None)
    servers = [server for server in await read_servers(ask) if queue in server.queues]
    part = ask.choice("data", _PARTS)
    shown = task.result if part == "result" else task.payload
    data = ask.operator.present(task.type, shown, ask.query.get("as", ""))
    attempts = _attempt_rows(task)
    verbs = tuple(verb for verb in _verbs(task) if ask.may(verb.name, queue))
    look = STATE_LOOKS[task.state]
    view = TaskView(
        key=f"{queue}/{task_id}",
        id=visible(task.id),
        type=visible(task.type),
        queue=visible(queue),
        queue_href=ask.links.to("queues", queue),
        queue_name=queue,
        clone_href=ask.links.to("enqueue", queue=queue, task=task_id),
        look=look,
        why=explain_task(ask, task, info, servers),
        attempts=attempts,
        attempts_note=_attempts_note(task, len(attempts)),
        error=visible_lines(task.last_error.strip()),
        traceback=visible_lines(task.traceback.rstrip()),
        tabs=_data_tabs(ask, task, part),
        part=part,
        data=data,
        headers=tuple((visible(name), visible(value)) for name, value in task.headers.items()),
        forms=tuple(
            FormChoice(one.capitalize(), ask.links.here(**{"as": one}), one == data.form)
            for one in data.forms
        ),
        download=ask.links.to("queues", queue, "tasks", task_id, "data", part) if data.form != "none" else "",
        related=_related(ask, task),
        machine=build_machine(task, ask.preferences.time_zone),
        attempt=_identify_attempt(task),
        facts=_facts(ask, task, {server.id for server in servers}),
        steps=build_steps(task),
        verbs=verbs,
        verb_hrefs=tuple(ask.links.to("queues", queue, "tasks", task_id, verb.name) for verb in verbs),
        progress=_progress(task),
        progress_done=task.progress.done if task.progress else 0.0,
        progress_total=(task.progress.total or 0.0) if task.progress else 0.0,
    )
    return Page(
        "task.html", f"({look.word.lower()}) {view.type} {short_id(task.id)}", "queues", view, is_live=True
    )


async def task_data(ask: PageRequest) -> Response:
    """Return payload or result as a complete download, redacted for the user, never rendered."""
    part = ask.name("part")
    task = await ask.operator.task(ask.name("queue"), ask.name("task"))
    data = {"payload": task.payload, "result": task.result}.get(part)
    if data is None:
        return page_response(ask, not_found_page(ask), 0.0)
    name = "".join(
        character for character in short_id(task.id) if character.isascii() and character.isalnum()
    )
    return Response(
        bytes(data),
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{part}-{name or "task"}.bin"'},
    )


def _attempt_rows(task: TaskInfo) -> tuple[AttemptRow, ...]:
    newest = task.retried + (task.state is TaskState.ARCHIVED)
    return tuple(_attempt_row(max(newest - back, 1), one) for back, one in enumerate(reversed(task.attempts)))


def _attempt_row(number: int, attempt: AttemptInfo) -> AttemptRow:
    look = look_of_outcome(attempt)
    ran = formats.span(attempt.ended_at - attempt.started_at) if attempt.started_at else formats.NOT_KNOWN
    error = visible(attempt.error.strip().partition("\n")[0][:300])
    return AttemptRow(
        number,
        look.word,
        look.symbol,
        look.tone,
        error,
        ran,
        visible(attempt.server_id[:8]),
        attempt.ended_at,
    )


def _attempts_note(task: TaskInfo, shown: int) -> str:
    if not shown:
        return ""
    begun = task.retried + (task.state is TaskState.ARCHIVED)
    return f"newest {shown} of {begun:,}" if begun > shown else ""


def _data_tabs(ask: PageRequest, task: TaskInfo, part: str) -> tuple[DataTab, ...]:
    notes = {
        "payload": "",
        "headers": str(len(task.headers) or "none"),
        "result": "" if task.result is not None else "none",
    }
    return tuple(
        DataTab(one, one.capitalize(), notes[one], ask.links.here(data=one, **{"as": None}), one == part)
        for one in _PARTS
    )


def _related(ask: PageRequest, task: TaskInfo) -> tuple[Related, ...]:
    found = [
        Related("Same type", ask.links.to("tasks", q=f"type:{quoted(task.type)}"), "tasks of all queues")
    ]
    if words := first_words(task.last_error.strip().partition("\n")[0]):
        query = f"state:retry,archived error:{quoted(words)}"
        found.append(Related("Same error", ask.links.to("tasks", q=query), "failed tasks"))
    for name in ("traceparent", "x-correlation-id"):
        if value := task.headers.get(name):
            query = f"header.{name}:{quoted(value)}"
            found.append(Related(f"Same {name}", ask.links.to("tasks", q=query), "tasks of all queues"))
    return tuple(found)


def _identify_attempt(task: TaskInfo) -> str:
    # A retry may fail between two renderings, which both show the same state.
    moments = (task.next_process_at, task.last_failed_at)
    return " ".join([str(task.retried), *(formats.machine(moment) for moment in moments if moment)])


def _facts(ask: PageRequest, task: TaskInfo, alive: set[str]) -> tuple[Fact, ...]:
    begun = task.retried + (task.state in {TaskState.ACTIVE, TaskState.ARCHIVED, TaskState.COMPLETED})
    facts = [
        Fact("Id", visible(task.id), is_code=True),
        Fact("Queue", visible(task.queue), href=ask.links.to("queues", task.queue)),
        Fact("Attempts", f"{begun:,} of {task.max_retry + 1:,}"),
        Fact("Timeout", formats.span(task.timeout) if task.timeout else "none"),
        Fact("Deadline", "none", moment=task.deadline),
        Fact("Due", "none", moment=task.next_process_at),
        Fact("Last failed", "never", moment=task.last_failed_at),
        Fact("Retention", formats.span(task.retention) if task.retention else "none"),
    ]
    if task.group:
        facts.append(Fact("Group", visible(task.group)))
    if task.completed_at:
        facts.append(Fact("Completed", "", moment=task.completed_at))
    if task.server_id:
        href = ask.links.to("servers", task.server_id) if task.server_id in alive else ""
        facts.append(Fact("Server", visible(task.server_id), href=href))
    if task.lease_expires_at:
        facts.append(Fact("Lease ends", "", moment=task.lease_expires_at, note="running servers renew it"))
    if task.crashes:
        facts.append(Fact("Crashes", f"{task.crashes:,}", note="servers that died while they ran it"))
    if trace := _trace_id(task):
        template = ask.settings.trace_url
        facts.append(
            Fact("Trace", trace, href=template.replace("{trace_id}", trace) if template else "", is_code=True)
        )
    return tuple(facts)


def _trace_id(task: TaskInfo) -> str:
    parts = task.headers.get("traceparent", "").split("-")
    is_trace = (
        len(parts) >= 3
        and len(parts[1]) == _TRACE_DIGITS
        and all(one in "0123456789abcdef" for one in parts[1])
    )
    return parts[1] if is_trace else ""


_STATE_VERBS: Final = {
    TaskState.ACTIVE: ("cancel_task",),
    TaskState.PENDING: ("archive_task", "delete_task"),
    TaskState.COMPLETED: ("run_task", "delete_task"),
    TaskState.ARCHIVED: ("run_task", "delete_task"),
}
_VERBS: Final = {
    "run_task": VerbButton("run_task", "Run now", "r"),
    "cancel_task": VerbButton("cancel_task", "Cancel…", "c"),
    "archive_task": VerbButton("archive_task", "Archive", "a"),
    "delete_task": VerbButton("delete_task", "Delete…", "#", is_danger=True),
    "reschedule_task": VerbButton("reschedule_task", "Reschedule…", "t"),
    "edit_payload": VerbButton("edit_payload", "Edit payload…", "y"),
    "enqueue_copy": VerbButton("enqueue_copy", "Enqueue again…", "e"),
}


def _verbs(task: TaskInfo) -> tuple[VerbButton, ...]:
    names = _STATE_VERBS.get(task.state, ("run_task", "archive_task", "delete_task"))
    return tuple(_VERBS[name] for name in (*names, *possible_edits(task), "enqueue_copy"))


def _progress(task: TaskInfo) -> str:
    progress = task.progress
    if progress is None:
        return ""
    done = formats.significant(progress.done)
    of = f" of {formats.significant(progress.total)}" if progress.total is not None else ""
    return f"{done}{of}" + (f": {visible(progress.note)}" if progress.note else "")
