"""Forms that change one task: due time and payload. After an error, the form shows the input again."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError, PayloadChangedError
from pyasynq.operations import Withheld
from pyasynq.task import TaskState
from pyasynq.web.enqueue_options import read_moment
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.question import Question, QuestionField, read_reason
from pyasynq.web.respond import page_response, redirect
from pyasynq.web.schema_form import check_value, read_json
from pyasynq.web.shown_task import short_id

if TYPE_CHECKING:
    from starlette.responses import Response

    from pyasynq.task import TaskInfo
    from pyasynq.web.page import PageRequest

EDITS: Final = ("reschedule_task", "edit_payload")
"""Verbs whose confirmation forms have input fields."""
_CHANGED: Final = "The payload has changed since this form was opened. Send the form again to replace it."
_EDITED: Final = frozenset({TaskState.SCHEDULED, TaskState.RETRY, TaskState.ARCHIVED})


def possible_edits(task: TaskInfo) -> tuple[str, ...]:
    """Return the edits that the state of a task and its payload allow."""
    if task.state not in _EDITED:
        return ()
    return EDITS if _text_of(task) is not None else EDITS[:1]


async def edit_question(ask: PageRequest) -> Page:
    """Return the form that asks for a new due time or payload of a task."""
    queue, verb = ask.name("queue"), ask.name("verb")
    ask.require(verb, queue)
    task = await ask.operator.task(queue, ask.name("task"))
    if verb == "edit_payload":
        text = _text_of(task)
        if text is None:
            raise InvalidOptionError("payload", None, "is not text that you see, so it cannot be edited here")
        return _page(ask, task, text)
    due = task.next_process_at
    at = due.astimezone(ask.preferences.time_zone).strftime("%Y-%m-%dT%H:%M:%S") if due else ""
    return _page(ask, task, at)


async def edit_task(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Reschedule a task or replace its payload; after an error, show the form again."""
    queue, task_id, verb = ask.name("queue"), ask.name("task"), ask.name("verb")
    typed, reason = fields.get("value", "").replace("\r\n", "\n"), read_reason(fields)
    try:
        if verb == "reschedule_task":
            moment = read_moment(typed.strip(), ask.preferences.time_zone)
            await ask.operator.reschedule_task(queue, task_id, moment, reason=reason)
            text = "The task was rescheduled."
        else:
            await _replace_payload(ask, fields, typed, reason)
            text = "The payload was replaced."
    except ValueError as error:
        sentence = error.remedy if isinstance(error, InvalidOptionError) else str(error)
        task = await ask.operator.task(queue, task_id)
        return page_response(ask, _page(ask, task, typed, visible(sentence), reason), 0.0)
    return redirect(ask, ask.links.to("queues", queue, "tasks", task_id), Notice("good", text))


async def _replace_payload(ask: PageRequest, fields: dict[str, str], typed: str, reason: str) -> None:
    """Replace the payload that the form has shown.

    Raises:
        ValueError: the text must be JSON and is not, does not fit the schema, or the payload has changed.
    """
    queue, task_id = ask.name("queue"), ask.name("task")
    await _check_payload(ask, queue, task_id, typed)
    expected = None
    if "seen" in fields:
        task = await ask.operator.task(queue, task_id)
        if fields["seen"] != _tag_of(task):
            raise ValueError(_CHANGED)
        expected = task.payload
    try:
        await ask.operator.edit_payload(
            queue, task_id, typed.encode("utf-8", "replace"), expected=expected, reason=reason
        )
    except PayloadChangedError:
        raise ValueError(_CHANGED) from None


def _tag_of(task: TaskInfo) -> str:
    """Return a hash of the payload that a form shows, to detect a change by others (optimistic locking)."""
    return hashlib.sha256(task.payload).hexdigest()[:24]


async def _check_payload(ask: PageRequest, queue: str, task_id: str, typed: str) -> None:
    """Check that a new payload fits the published schema of the type.

    Without a schema it must be JSON if the old payload is JSON.
    A user who may not edit passes this check: the operator then refuses the edit, and audits that.

    Raises:
        ValueError: the text is not JSON, or does not fit the schema; with a sentence.
    """
    if not ask.may("edit_payload", queue):
        return
    task = await ask.operator.task(queue, task_id)
    published = await ask.target.recent(ask.user, "task types", ask.operator.task_types, 30.0)
    schema = next((one.schema for one in published if one.type == task.type and not one.is_prefix), None)
    try:
        read_json(_text_of(task) or "")
    except ValueError:
        if schema is None:
            return
    problems = check_value(schema, read_json(typed))
    if problems:
        raise ValueError("; ".join(" ".join((*path[:1], sentence)) for path, sentence in problems))


def _page(ask: PageRequest, task: TaskInfo, value: str, error: str = "", reason: str = "") -> Page:
    verb = ask.name("verb")
    is_time = verb == "reschedule_task"
    label = "Due" if is_time else "Payload"
    hint = f"In your time zone, {ask.preferences.zone}." if is_time else "Stored as it is written here."
    kind = "datetime-local" if is_time else "area"
    word = "Reschedule" if is_time else "Edit the payload of"
    question = Question(
        heading=f"{word} {visible(task.type) or 'this task'}?",
        text=f"Task {short_id(task.id)} of {visible(task.queue)} is {task.state.value}.",
        action=ask.links.to("queues", task.queue, "tasks", task.id, verb),
        button="Reschedule the task" if is_time else "Replace the payload",
        keep="Leave it as it is",
        keep_href=ask.links.to("queues", task.queue, "tasks", task.id),
        field=QuestionField("value", label, value, hint, kind, error),
        hidden=() if is_time else (("seen", _tag_of(task)),),
        reason=reason,
    )
    return Page("question.html", question.heading, "queues", question, status=400 if error else 200)


def _text_of(task: TaskInfo) -> str | None:
    """Return the payload as text; None if it is withheld or is not text."""
    if isinstance(task.payload, Withheld):
        return None
    try:
        return task.payload.decode()
    except UnicodeDecodeError:
        return None
