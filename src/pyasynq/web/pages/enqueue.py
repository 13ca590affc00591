"""The form that enqueues a task, with fields from the type's published schema, or with JSON."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyasynq import errors as failures
from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.operations import Withheld
from pyasynq.operations.redaction import MASK
from pyasynq.operations.request_keys import KEY_SECONDS
from pyasynq.task import EnqueueStatus, Task
from pyasynq.web.configured_types import (
    describe_configured_type,
    describe_missing_fields,
    find_param_problem,
)
from pyasynq.web.enqueue_options import DECLARED, OptionField, build_option_fields, read_options
from pyasynq.web.page import Page
from pyasynq.web.pages.queues import read_queues
from pyasynq.web.pages.task_types import read_configured_types
from pyasynq.web.question import LONGEST_REASON, REQUEST_KEY, read_reason, read_request_key
from pyasynq.web.respond import page_response, redirect_to_enqueued
from pyasynq.web.schema_form import (
    PREFIX,
    NotShownAsFieldsError,
    PayloadField,
    build_fields,
    check_value,
    read_fields,
    read_json,
    write_fields,
)
from pyasynq.web.schema_sample import make_sample

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from pyasynq.operations import TypeConfiguration
    from pyasynq.task import TaskInfo
    from pyasynq.task_types import TaskTypeInfo
    from pyasynq.web.page import PageRequest

MODES: Final = ("fields", "json", "text")
"""Ways to give a payload: a field for each property, JSON, or any text."""
_MOST_NAMES: Final = 500
_DEFAULT_QUEUE: Final = "default"
_INDENTED: Final = 2
_REFUSALS: Final = (
    (failures.PayloadTooLargeError, 400, "payload", ""),
    (failures.DuplicateTaskError, 409, "unique", "an equal task is there already and holds the lock"),
    (failures.TaskIDConflictError, 409, "task_id", "a task with this id is in the queue already"),
    (failures.QueueNotFoundError, 404, "queue", "there is no such queue among those that you see"),
    (failures.PermissionDeniedError, 403, "queue", ""),
    (failures.RedisError, 503, "", ""),
)
"""HTTP status, form field and sentence for each error class; no sentence means the error's own text."""


@dataclass(frozen=True, slots=True)
class EnqueueView:
    """View model of the form that enqueues a task."""

    queue: str
    type: str
    queues: tuple[str, ...]
    types: tuple[str, ...]
    summary: str
    """Description of the task type, as published by its workers."""
    mode: str
    fields: tuple[PayloadField, ...]
    has_fields: bool
    """Whether the type has a schema with fields."""
    hint: str
    """Hint below the payload field: what to write as JSON or text."""
    payload: str
    options: tuple[OptionField, ...]
    has_options: bool
    """Whether the options are unfolded, because the user typed an option, or one has an error."""
    hidden: tuple[tuple[str, str], ...]
    reason: str
    errors: Mapping[str, str]
    summary_of_errors: tuple[tuple[str, str, str], ...]
    """Id, label and error message of each wrong field."""
    note: str
    keep_href: str
    longest_reason: int = LONGEST_REASON


async def enqueue_page(ask: PageRequest) -> Page:
    """Return the page `/enqueue`: empty, for a queue and a type, or with the data of a task."""
    ask.require_somewhere("enqueue")
    form = {"queue": ask.query.get("queue", ""), "type": ask.query.get("type", "")}
    note = ""
    if ask.query.get("task"):
        task = await ask.operator.task(form["queue"], ask.query["task"])
        form, note = _copy(task)
    info = await _find_type(ask, form["type"])
    if not form["queue"] and info is not None:
        form["queue"] = info.queue
    if ask.query.get("sample") == "yes" and info is not None and info.schema is not None:
        form["payload"] = json.dumps(make_sample(info.schema), indent=_INDENTED, ensure_ascii=False)
        note = "The payload is a sample from the schema. The task is a real one: workers run it."
    return await _page(ask, _show_fields(form, info), {}, note=note)


async def enqueue_task(ask: PageRequest, form: dict[str, str]) -> Response:
    """Enqueue the task of a form, or return the form with errors and typed values."""
    form = {name: text.replace("\r\n", "\n") for name, text in form.items()}
    for name in ("queue", "type"):
        form[name] = form.get(name, "").strip()
    info = await _find_type(ask, form["type"])
    step = form.pop("step", "show")
    is_other_type = form.get("shown", "") != form["type"]
    if step in MODES:
        return page_response(ask, await _change_mode(ask, form, info, step), 0.0)
    if step != "enqueue" or (is_other_type and _schema_fields(info) and form.get("mode") != "text"):
        note = "" if step != "enqueue" else "These are the fields of the type. Check them, then enqueue."
        if not form["queue"] and info is not None:
            form["queue"] = info.queue
        return page_response(ask, await _page(ask, _show_fields(form, info), {}, note=note), 0.0)
    payload, wrong = _read_payload(form, info)
    options, wrong_options = read_options(form, ask.preferences.time_zone)
    wrong |= wrong_options
    queue = form["queue"] or (info.queue if info else "") or _DEFAULT_QUEUE
    if not form["type"]:
        wrong["type"] = "is required"
    if not wrong:
        wrong = await _check_configured(ask, form, queue, payload)
    if wrong:
        return page_response(ask, await _page(ask, form, wrong, 400), 0.0)
    return await _enqueue(ask, form, info, queue, payload, options)


async def _enqueue(
    ask: PageRequest,
    form: Mapping[str, str],
    info: TaskTypeInfo | None,
    queue: str,
    payload: bytes,
    options: Mapping[str, Any],
) -> Response:
    """Enqueue a task with the form's idempotency key as its id: a form sent twice enqueues one task."""
    declared = {name: info.options[name] for name in DECLARED if name in info.options} if info else {}
    key = read_request_key(form)
    once: dict[str, Any] = {"task_id": key} if key else {}
    if key and "task_id" not in options and not options.get("front"):
        once["once_for"] = KEY_SECONDS
    try:
        task = Task(form["type"], payload, **{**declared, **once, **options})
        made = await ask.operator.enqueue(queue, task, reason=read_reason(form))
    except failures.PyasynqError as error:
        if isinstance(error, failures.TaskIDConflictError) and error.task_id == key:
            return redirect_to_enqueued(ask, queue, key, EnqueueStatus.EXISTING)
        if isinstance(error, failures.PermissionDeniedError) and not ask.may("enqueue"):
            raise
        status, place, sentence = _explain(error, form)
        return page_response(ask, await _page(ask, form, {place: sentence}, status), 0.0)
    return redirect_to_enqueued(ask, queue, made.id, made.enqueue_status)


async def _check_configured(
    ask: PageRequest, form: Mapping[str, str], queue: str, payload: bytes
) -> dict[str, str]:
    """Return the error message of the field for a payload that the task service would refuse."""
    if queue != form["type"]:
        return {}
    configured = await read_configured_types(ask)
    problem = find_param_problem(configured, queue, payload, ask.settings.commands)
    if problem is None:
        return {}
    place, sentence = problem
    if form.get("mode") != "fields":
        return {"payload": f"{place} {sentence}".strip()}
    return {PREFIX + place: sentence} if PREFIX + place in form else {"": f"{place} {sentence}".strip()}


def _explain(error: failures.PyasynqError, form: Mapping[str, str]) -> tuple[int, str, str]:
    """Return HTTP status, form field and error message for a task that was not enqueued."""
    if isinstance(error, failures.InvalidOptionError):
        place = error.option
        if place == "payload" and form.get("mode") == "fields":
            masked = (name for name, text in form.items() if name.startswith(PREFIX) and MASK in text)
            place = next(masked, place)
        return 400, place, visible(error.remedy)
    for kind, status, place, sentence in _REFUSALS:
        if isinstance(error, kind):
            return status, place, sentence or visible(str(error))
    return 400 if isinstance(error, ValueError) else 409, "", visible(str(error))


async def _change_mode(ask: PageRequest, form: dict[str, str], info: TaskTypeInfo | None, mode: str) -> Page:
    """Return the form in another mode; if the payload does not fit, in the old mode with an error."""
    if form.get("mode") == "fields" and mode != "fields":
        payload, wrong = read_fields(info.schema if info else None, form)
        broken = {name: text for name, text in wrong.items() if form.get(name, "").strip()}
        if broken:
            return await _page(ask, form, broken, 400)
        form["payload"] = json.dumps(payload, indent=_INDENTED, ensure_ascii=False)
        for name in [name for name in form if name.startswith(PREFIX)]:
            del form[name]
    elif mode == "fields":
        try:
            text = form.get("payload", "")
            texts = write_fields(info.schema if info else None, read_json(text) if text.strip() else {})
        except NotShownAsFieldsError as error:
            return await _page(ask, form, {"payload": f"cannot be shown as fields: {error}"}, 400)
        except ValueError as error:
            return await _page(ask, form, {"payload": str(error)}, 400)
        form |= texts
        form.pop("payload", None)
    return await _page(ask, {**form, "mode": mode}, {})


def _show_fields(form: dict[str, str], info: TaskTypeInfo | None) -> dict[str, str]:
    """Return the form with fields if the type has some and the payload fits them, else with JSON or text."""
    other = "text" if form.get("mode") == "text" else "json"
    text = form.get("payload", "")
    if info is None or not _schema_fields(info):
        return {**form, "mode": other}
    if not text.strip():
        return {**form, "mode": "fields"}
    try:
        texts = write_fields(info.schema, read_json(text))
    except ValueError:
        return {**form, "mode": other}
    kept = {name: value for name, value in form.items() if name != "payload"}
    return {**kept, **texts, "mode": "fields"}


def _read_payload(form: Mapping[str, str], info: TaskTypeInfo | None) -> tuple[bytes, dict[str, str]]:
    schema = info.schema if info is not None else None
    mode, text = form.get("mode", "json"), form.get("payload", "")
    if mode == "fields" and _schema_fields(info):
        payload, wrong = read_fields(schema, form)
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode(
            "utf-8", "replace"
        ), wrong
    if mode == "text":
        return text.encode("utf-8", "replace"), {}
    if not text.strip():
        return b"", {"payload": "is required: this type takes JSON"} if schema is not None else {}
    try:
        value = read_json(text)
    except ValueError as error:
        return b"", {"payload": str(error)}
    problems = [
        f"{'.'.join(path) + ' ' if path else ''}{sentence}" for path, sentence in check_value(schema, value)
    ]
    return text.encode("utf-8", "replace"), {"payload": "; ".join(problems)} if problems else {}


def _copy(task: TaskInfo) -> tuple[dict[str, str], str]:
    """Return a form with the data of a task, and a note about data that could not be copied."""
    form = {
        "queue": task.queue,
        "type": task.type,
        "max_retry": str(task.max_retry),
        "timeout": f"{task.timeout.total_seconds():g}" if task.timeout else "",
        "retention": f"{task.retention.total_seconds():g}" if task.retention else "",
        "headers": json.dumps(dict(task.headers), ensure_ascii=False) if task.headers else "",
    }
    if isinstance(task.payload, Withheld):
        return form, "The payload is withheld from you, so it is not in the form."
    try:
        text = task.payload.decode()
    except UnicodeDecodeError:
        return form, "The payload is not text, so it is not in the form. “Enqueue again” copies it as it is."
    form["payload"] = text
    try:
        form["payload"] = json.dumps(read_json(text), indent=_INDENTED, ensure_ascii=False) if text else ""
    except ValueError:
        form["mode"] = "text"
    hint = f"Secrets are shown as {MASK}: put the real values there." if MASK in str(form) else ""
    return form, hint


async def _find_type(ask: PageRequest, name: str) -> TaskTypeInfo | None:
    """Return the description of a type that workers have published.

    If it has no schema, describe the configuration of the task service instead, if there is one.
    """
    found = next((one for one in await _published(ask) if one.type == name and not one.is_prefix), None)
    stored = await _find_configured(ask, name)
    if stored is None or (found is not None and found.schema is not None):
        return found
    return describe_configured_type(stored, ask.settings.commands)


async def _find_configured(ask: PageRequest, name: str) -> TypeConfiguration | None:
    return next((one for one in await read_configured_types(ask) if one.name == name), None)


async def _describe_payload(ask: PageRequest, name: str, mode: str, *, has_fields: bool) -> str:
    """Return the hint below the payload field: what to write as the payload of a type."""
    if mode == "text":
        return "Sent as it is, in UTF-8."
    if not name or has_fields:
        return "Sent as it is written here."
    stored = await _find_configured(ask, name)
    return describe_missing_fields(stored) if stored else "No worker has published fields for this type."


async def _read_type_names(ask: PageRequest) -> set[str]:
    published = {one.type for one in await _published(ask) if not one.is_prefix}
    return published | {one.name for one in await read_configured_types(ask)}


async def _published(ask: PageRequest) -> list[TaskTypeInfo]:
    return await ask.target.recent(ask.user, "task types", ask.operator.task_types, 30.0)


def _schema_fields(info: TaskTypeInfo | None) -> tuple[PayloadField, ...]:
    return build_fields(info.schema, {}, {}) if info is not None else ()


async def _page(
    ask: PageRequest, form: Mapping[str, str], wrong: Mapping[str, str], status: int = 200, note: str = ""
) -> Page:
    info = await _find_type(ask, form.get("type", ""))
    shown = build_fields(info.schema, form, wrong) if info is not None else ()
    mode = form.get("mode", "json")
    mode = mode if mode in MODES and (mode != "fields" or shown) else "json"
    fields = shown if mode == "fields" else ()
    declared: Mapping[str, Any] = info.options if info is not None else {}
    options = build_option_fields(form, wrong, declared, ask.preferences.zone)
    names = {field.name for field in fields} | ({"payload"} if mode != "fields" else set())
    kept = (name for name in form if name.startswith(PREFIX) or name == "payload")
    view = EnqueueView(
        queue=form.get("queue", ""),
        type=form.get("type", ""),
        queues=tuple(sorted(one.queue for one in await read_queues(ask)))[:_MOST_NAMES],
        types=tuple(sorted(await _read_type_names(ask)))[:_MOST_NAMES],
        summary=visible(info.summary) if info is not None else "",
        mode=mode,
        fields=fields,
        has_fields=bool(shown),
        hint=await _describe_payload(ask, form.get("type", ""), mode, has_fields=bool(shown)),
        payload=form.get("payload", ""),
        options=options,
        has_options=any(one.value or one.error for one in options),
        hidden=(
            (REQUEST_KEY, read_request_key(form) or str(uuid.uuid4())),
            *((name, form[name]) for name in kept if name not in names and form[name]),
        ),
        reason=form.get("reason", ""),
        errors=wrong,
        summary_of_errors=_list_errors(wrong, fields, options),
        note=note,
        keep_href=ask.links.to("queues", form["queue"]) if form.get("queue") else ask.links.to("queues"),
    )
    title = f"({counted(len(wrong), 'error')}) Enqueue a task" if wrong else "Enqueue a task"
    return Page("enqueue.html", title, "queues", view, status=status)


def _list_errors(
    wrong: Mapping[str, str], fields: tuple[PayloadField, ...], options: tuple[OptionField, ...]
) -> tuple[tuple[str, str, str], ...]:
    places = {"queue": ("eq", "Queue"), "type": ("et", "Type"), "payload": ("ep", "Payload")}
    places |= {field.name: (f"f{at}", field.label) for at, field in enumerate(fields)}
    places |= {option.name: (f"o-{option.name}", option.label) for option in options}
    return tuple((*places.get(name, ("et", "")), sentence) for name, sentence in wrong.items())
