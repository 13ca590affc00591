"""Handlers of forms that change something: a confirmation page if needed, then a call of `Operator`."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError, TaskNotFoundError, TaskStateError
from pyasynq.info import CancelStatus
from pyasynq.operations import Act
from pyasynq.web.fleet_actions import (
    act_on_schedule,
    act_on_server,
    act_on_version,
    schedule_question,
    server_question,
    version_question,
)
from pyasynq.web.limit_form import change_limits
from pyasynq.web.locations import from_task_key
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.pages import api_keys, attention, task_type_edit
from pyasynq.web.pages.bulk import (
    SELECTION_ACTS,
    preview_page,
    selected_keys,
    selection_page,
    targets_of,
)
from pyasynq.web.question import REQUEST_KEY, Question, read_reason, read_request_key
from pyasynq.web.respond import page_response, redirect, redirect_to_enqueued
from pyasynq.web.shown_task import short_id
from pyasynq.web.task_edits import EDITS, edit_question, edit_task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from starlette.responses import Response

    from pyasynq.web.page import PageRequest

_PAUSES: Final = (("900", "15 minutes"), ("3600", "1 hour"), ("86400", "1 day"), ("", "until I resume"))
_MOST_DIGITS: Final = 9
_DONE: Final = {
    "run_task": "put back into the queue",
    "archive_task": "archived",
    "delete_task": "deleted",
    "cancel_task": "asked to stop",
}
_QUESTIONS: Final = {
    "run_task": "Run",
    "archive_task": "Archive",
    "delete_task": "Delete",
    "cancel_task": "Cancel",
    "enqueue_copy": "Enqueue a copy of",
}


async def pause_question(ask: PageRequest) -> Page:
    """Return the page that asks how long a queue is to be paused."""
    name = ask.name("queue")
    ask.require("pause_queue", name)
    info = await ask.operator.queue(name)
    question = Question(
        heading=f"Pause {visible(name)}?",
        text="Servers take no more tasks from it; what runs goes on. "
        f"{counted(info.pending, 'task waits', 'tasks wait')} now.",
        action=ask.links.to("queues", name, "pause"),
        button="Pause",
        keep="Leave it running",
        keep_href=ask.links.to("queues", name),
        choice_label="For how long",
        choice_name="seconds",
        choices=_PAUSES,
    )
    return Page("question.html", question.heading, "queues", question)


async def delete_queue_question(ask: PageRequest) -> Page:
    """Return the confirmation page for the deletion of a queue: the user types the queue's name."""
    name = ask.name("queue")
    ask.require("delete_queue", name)
    info = await ask.operator.queue(name)
    question = Question(
        heading=f"Delete the queue {visible(name)}?",
        text=f"{counted(info.size, 'task is', 'tasks are')} deleted with it. This cannot be undone.",
        action=ask.links.to("queues", name, "delete"),
        button=f"Delete the queue and {counted(info.size, 'task')}",
        keep="Keep it",
        keep_href=ask.links.to("queues", name),
        is_danger=True,
        confirm=name,
    )
    return Page("question.html", question.heading, "queues", question)


async def task_question(ask: PageRequest) -> Page:
    """Return the page that asks for confirmation before an action on one task."""
    queue, task_id, verb = ask.name("queue"), ask.name("task"), ask.name("verb")
    if verb in EDITS:
        return await edit_question(ask)
    if verb not in _QUESTIONS:
        raise InvalidOptionError("verb", None, "is not something that can be done to a task")
    ask.require(verb, queue)
    task = await ask.operator.task(queue, task_id)
    word = _QUESTIONS[verb]
    is_cancel = verb == "cancel_task"
    question = Question(
        heading=f"{word} {visible(task.type) or 'this task'}?",
        text=f"Task {short_id(task_id)} of {visible(queue)} is {task.state.value}.",
        action=ask.links.to("queues", queue, "tasks", task_id, verb),
        button="Enqueue a copy" if verb == "enqueue_copy" else f"{word} the task",
        keep="Enqueue nothing" if verb == "enqueue_copy" else "Keep it",
        keep_href=ask.links.to("queues", queue, "tasks", task_id),
        is_danger=verb == "delete_task",
        choice_label="Outcome" if is_cancel else "",
        choice_name="outcome",
        hidden=((REQUEST_KEY, str(uuid.uuid4())),) if verb == "enqueue_copy" else (),
        choices=(("retry", "it is retried"), ("archive", "it is archived"), ("delete", "it is deleted"))
        if is_cancel
        else (),
    )
    return Page("question.html", question.heading, "queues", question)


async def _pause(ask: PageRequest, fields: dict[str, str]) -> Response:
    name, seconds = ask.name("queue"), fields.get("seconds", "")
    if seconds and not (seconds.isascii() and seconds.isdecimal() and len(seconds) < _MOST_DIGITS):
        raise InvalidOptionError("seconds", None, "must be a whole number of seconds, or empty for no end")
    length = float(seconds) if seconds else None
    await ask.operator.pause_queue(name, length, reason=read_reason(fields))
    return redirect(ask, ask.links.to("queues", name), Notice("good", f"{visible(name)} is paused."))


async def _resume(ask: PageRequest, fields: dict[str, str]) -> Response:
    name = ask.name("queue")
    await ask.operator.resume_queue(name, reason=read_reason(fields))
    return redirect(ask, ask.links.to("queues", name), Notice("good", f"{visible(name)} is running again."))


async def _delete_queue(ask: PageRequest, fields: dict[str, str]) -> Response:
    name = ask.name("queue")
    if fields.get("confirm", "") != name:
        raise InvalidOptionError("confirm", None, "is not the name of the queue; nothing was deleted")
    deleted = await ask.operator.delete_queue(name, force=True, reason=read_reason(fields))
    text = f"{visible(name)} was deleted with {counted(deleted, 'task')}."
    return redirect(ask, ask.links.to("queues"), Notice("good", text))


async def _act_on_task(ask: PageRequest, fields: dict[str, str]) -> Response:
    queue, task_id, verb = ask.name("queue"), ask.name("task"), ask.name("verb")
    if verb in EDITS:
        return await edit_task(ask, fields)
    if verb == "enqueue_copy":
        return await _enqueue_copy(ask, fields)
    await _act(ask, verb, queue, task_id, fields)
    there = (
        ask.links.to("queues", queue)
        if verb == "delete_task"
        else ask.links.to("queues", queue, "tasks", task_id)
    )
    return redirect(ask, there, Notice("good", f"The task was {_DONE[verb]}."))


async def _enqueue_copy(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Enqueue a copy with the form's idempotency key, so that a form sent twice makes one copy."""
    queue, key = ask.name("queue"), read_request_key(fields)
    made = await ask.operator.enqueue_copy(queue, ask.name("task"), key=key, reason=read_reason(fields))
    return redirect_to_enqueued(ask, queue, made.id, made.enqueue_status, "The copy")


async def _act_on_selected(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Perform an action on the selected tasks, after a confirmation if it cannot be undone."""
    began = time.perf_counter()
    verb = fields.get("verb", "")
    keys = selected_keys(fields)
    back = fields.get("back", "")
    if verb not in _DONE and verb not in SELECTION_ACTS:
        raise InvalidOptionError("verb", None, "is not something that can be done to tasks")
    if not keys:
        return redirect(ask, ask.links.back(back), Notice("warn", "No task was selected."))
    if verb in SELECTION_ACTS:
        return page_response(ask, await selection_page(ask, Act(verb), fields), began)
    if verb == "delete_task" and ask.may("start_operation"):
        # An operation can be undone, and its preview asks for the number of tasks where that is required.
        page = await preview_page(ask, Act.DELETE, targets_of(keys), {"back": back})
        return page_response(ask, page, began)
    if verb == "delete_task" and fields.get("sure") != "yes":
        return _delete_question(ask, keys, back)
    done, refused = 0, []
    for key in keys:
        queue, task_id = from_task_key(key)
        try:
            await _act(ask, verb, queue, task_id, fields)
            done += 1
        except (TaskNotFoundError, TaskStateError) as error:
            refused.append(str(error))
    return redirect(ask, ask.links.back(back), _describe_result(verb, done, refused))


def _delete_question(ask: PageRequest, keys: Sequence[str], back: str) -> Response:
    question = Question(
        heading=f"Delete {counted(len(keys), 'task')}?",
        text="This cannot be undone.",
        action=ask.links.to("act"),
        button=f"Delete {counted(len(keys), 'task')}",
        keep="Keep them" if len(keys) > 1 else "Keep it",
        keep_href=ask.links.back(back),
        is_danger=True,
        hidden=(("verb", "delete_task"), ("sure", "yes"), ("back", back), *(("id", key) for key in keys)),
        samples=tuple(visible("/".join(from_task_key(key))) for key in keys[:10]),
    )
    return page_response(ask, Page("question.html", question.heading, "queues", question), 0.0)


def _describe_result(verb: str, done: int, refused: Sequence[str]) -> Notice:
    text = f"{counted(done, 'task was', 'tasks were')} {_DONE[verb]}."
    if not refused:
        return Notice("good", text)
    return Notice(
        "warn", f"{text} {counted(len(refused), 'task was', 'tasks were')} left: {visible(refused[0])}"
    )


async def _act(ask: PageRequest, verb: str, queue: str, task_id: str, fields: dict[str, str]) -> None:
    reason = read_reason(fields)
    match verb:
        case "run_task":
            await ask.operator.run_task(queue, task_id, reason=reason)
        case "archive_task":
            await ask.operator.archive_task(queue, task_id, reason=reason)
        case "delete_task":
            await ask.operator.delete_task(queue, task_id, reason=reason)
        case "cancel_task":
            outcome: Any = fields.get("outcome", "retry")
            result = await ask.operator.cancel_task(queue, task_id, outcome, reason=reason)
            if result.status is CancelStatus.NOT_ACTIVE:
                state = "gone" if result.state is None else f"{result.state.value}, and does not run"
                raise TaskStateError("cancel", queue, task_id, state)
        case _:
            raise InvalidOptionError("verb", None, "is not something that can be done to a task")


QUESTIONS: Final[dict[str, Callable[[PageRequest], Awaitable[Page]]]] = {
    "/queues/{queue}/pause": pause_question,
    "/queues/{queue}/delete": delete_queue_question,
    "/queues/{queue}/tasks/{task}/{verb}": task_question,
    "/servers/{server}/{verb}": server_question,
    "/server-versions/{verb}": version_question,
    "/schedules/{entry}/{verb}": schedule_question,
    "/task-types/{type}/delete": task_type_edit.delete_question,
    "/keys/{key}/{verb}": api_keys.key_question,
    "/attention/snooze": attention.snooze_question,
    "/attention/act": attention.act_question,
}
"""Functions that return confirmation pages, by the path of the route."""

FORMS: Final[dict[str, Callable[[PageRequest, dict[str, str]], Awaitable[Response]]]] = {
    "/queues/{queue}/pause": _pause,
    "/queues/{queue}/resume": _resume,
    "/queues/{queue}/limits": change_limits,
    "/queues/{queue}/delete": _delete_queue,
    "/queues/{queue}/tasks/{task}/{verb}": _act_on_task,
    "/servers/{server}/{verb}": act_on_server,
    "/server-versions/{verb}": act_on_version,
    "/schedules/{entry}/{verb}": act_on_schedule,
    "/task-types/{type}/edit": task_type_edit.change_type,
    "/task-types/{type}/delete": task_type_edit.delete_type,
    "/new-task-type": task_type_edit.make_type,
    "/keys/new": api_keys.make_program_key,
    "/keys/{key}/{verb}": api_keys.change_key,
    "/act": _act_on_selected,
    "/attention/snooze": attention.snooze,
    "/attention/unsnooze": attention.unsnooze,
    "/attention/act": attention.act,
}
"""Functions that handle submitted forms, by the path of the route."""
