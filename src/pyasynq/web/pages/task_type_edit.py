"""Forms that make, edit and delete a task type: input, preview of the difference, compare-and-set."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyasynq import errors as failures
from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.gateway.configurations import parse_task_configuration
from pyasynq.operations import TypeConfiguration
from pyasynq.web.configuration_form import (
    FORM_FIELDS,
    ConfigurationField,
    Difference,
    build_form,
    find_differences,
    merge_changes,
    read_form,
    select_fields,
    write_form,
)
from pyasynq.web.limit_form import describe_effect
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.pages.queues import read_queues
from pyasynq.web.pages.task_type import find_read_only_reason, last_change, missing_type_page
from pyasynq.web.pages.task_types import SECTION, forget_configurations
from pyasynq.web.question import LONGEST_REASON, Question, read_reason
from pyasynq.web.respond import page_response, redirect
from pyasynq.web.schema_form import read_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

    from pyasynq.web.page import PageRequest

_NEW: Final = "new-task-type"
_LIMITS: Final = ("max_run", "rate", "ordered")


@dataclass(frozen=True, slots=True)
class EditView:
    """View model of the form that edits a task type."""

    heading: str
    action: str
    is_new: bool
    name: str
    name_error: str
    fields: tuple[ConfigurationField, ...]
    hidden: tuple[tuple[str, str], ...]
    reason: str
    errors: tuple[tuple[str, str, str], ...]
    """Id, label and sentence of each wrong field."""
    note: str
    keep_href: str


@dataclass(frozen=True, slots=True)
class ChangeView:
    """View model of the confirmation page that shows the difference."""

    heading: str
    action: str
    is_new: bool
    late: str
    """Sentence about a change by another user since the form was opened; empty if there was none."""
    sides: tuple[str, ...]
    differences: tuple[Difference, ...]
    effect: str
    hidden: tuple[tuple[str, str], ...]
    reason: str
    keep_href: str
    longest_reason: int = LONGEST_REASON


@dataclass(frozen=True, slots=True)
class _Form:
    """Content of a form: the type, its version when the form was opened, and the user's input."""

    name: str
    version: int
    """Stored version when the form was opened; 0 for a new type."""
    base: Mapping[str, Any]
    """Stored configuration when the form was opened; empty for a new type."""
    texts: Mapping[str, str]
    reason: str
    is_new: bool

    @property
    def hidden(self) -> tuple[tuple[str, str], ...]:
        """Hidden fields with version and configuration of the type when the form was opened."""
        return (("version", str(self.version)), ("base", json.dumps(self.base, ensure_ascii=False)))


async def edit_page(ask: PageRequest) -> Page:
    """Return the form with the stored configuration of a type."""
    name = ask.name("type")
    ask.require("set_type_configuration", name)
    stored = await ask.operator.type_configuration(name)
    if stored is None:
        return missing_type_page(ask, name)
    _check_lock(stored)
    base = _normalize(stored)
    texts, note = write_form(base), ""
    if earlier := await _find_version(ask, name):
        texts, note = write_form(_normalize(earlier)), "These are the fields of an earlier version."
    form = _Form(name, stored.version, base, texts, "", is_new=False)
    return _form_page(ask, form, {}, note=note)


async def _find_version(ask: PageRequest, name: str) -> TypeConfiguration | None:
    """Return the earlier version in the query parameters; None if there is none, or it is not kept."""
    wanted = ask.query.get("version", "")
    if not wanted:
        return None
    for one in await ask.operator.type_configuration_versions(name):
        if str(one.version) == wanted and one.content is not None:
            return TypeConfiguration(name, one.version, one.content)
    return None


async def new_page(ask: PageRequest) -> Page:
    """Return the form of a new type."""
    ask.require_somewhere("set_type_configuration")
    name = ask.query.get("name", "").strip()[:200]
    return _form_page(ask, _Form(name, 0, {}, {}, "", is_new=True), {})


async def change_type(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Return a preview of the changes to a type; after the user's confirmation, store them."""
    return await _change(ask, _read(fields, ask.name("type"), is_new=False), fields)


async def make_type(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Return a preview of a new type; after the user's confirmation, store its configuration."""
    ask.require_somewhere("set_type_configuration")
    return await _change(ask, _read(fields, fields.get("name", "").strip(), is_new=True), fields)


async def delete_question(ask: PageRequest) -> Page:
    """Return the confirmation page for the deletion of a type: the user types the type's name."""
    name = ask.name("type")
    ask.require("delete_type_configuration", name)
    stored = await ask.operator.type_configuration(name)
    if stored is None:
        return missing_type_page(ask, name)
    info = next((one for one in await read_queues(ask) if one.queue == name), None)
    text = (
        "The task service then refuses new tasks of it. "
        f"{counted(info.size if info else 0, 'task stays', 'tasks stay')} in its queue. "
        "The limits that the type gave to its queue are cleared."
    )
    if stored.content.get("managed", "file") != "api":
        text += " If the file of the service still has the type, it comes back at the next start."
    question = Question(
        heading=f"Delete the task type {visible(name)}?",
        text=text,
        action=ask.links.to(SECTION, name, "delete"),
        button="Delete the type",
        keep="Keep it",
        keep_href=ask.links.to(SECTION, name),
        is_danger=True,
        confirm=name,
        hidden=(("version", str(stored.version)),),
    )
    return Page("question.html", question.heading, SECTION, question)


async def delete_type(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Delete the configuration of a type, unless it has changed since the form was shown."""
    name = ask.name("type")
    ask.require("delete_type_configuration", name)
    if fields.get("confirm", "") != name:
        raise failures.InvalidOptionError(
            "confirm", None, "is not the name of the task type; nothing was deleted"
        )
    expected = _read_version(fields)
    await ask.operator.delete_type_configuration(name, expected=expected, reason=read_reason(fields))
    forget_configurations(ask)
    return redirect(ask, ask.links.to(SECTION), Notice("good", f"The type {visible(name)} was deleted."))


async def _change(ask: PageRequest, form: _Form, fields: Mapping[str, str]) -> Response:
    refusal = _find_refusal(ask, form)
    stored = await ask.operator.type_configuration(form.name) if form.name and not refusal else None
    before = stored.content if stored else {}
    wanted, wrong = ({}, {"name": refusal}) if refusal else read_form(form.name, form.texts, before)
    if wrong or fields.get("step") == "edit":
        status = 403 if refusal else 400 if wrong else 200
        return page_response(ask, _form_page(ask, form, wrong, status), 0.0)
    question = await _find_question(ask, form, stored, wanted, is_sure=fields.get("sure") == "yes")
    if question is not None:
        return page_response(ask, question, 0.0)
    try:
        await ask.operator.set_type_configuration(
            form.name, wanted, expected=form.version, reason=form.reason
        )
    except failures.ConfigurationChangedError:
        stored = await ask.operator.type_configuration(form.name)
        return page_response(ask, await _late_page(ask, form, stored, wanted), 0.0)
    forget_configurations(ask)
    text = f"Stored. The task service takes {visible(form.name)} over within seconds."
    return redirect(ask, ask.links.to(SECTION, form.name), Notice("good", text))


async def _find_question(
    ask: PageRequest,
    form: _Form,
    stored: TypeConfiguration | None,
    wanted: Mapping[str, Any],
    *,
    is_sure: bool,
) -> Page | None:
    """Return the page to show before a configuration is stored; None if it may be stored now.

    It asks for a confirmation, shows an edit conflict, or says that nothing differs or the name is taken.

    Raises:
        InvalidOptionError: the stored configuration cannot be edited here.
    """
    if form.is_new and stored is not None and not is_sure:
        return _form_page(ask, form, {"name": "is taken: there is such a type already"}, 409)
    if stored is not None:
        _check_lock(stored)
    if (stored.version if stored else 0) != form.version:
        return await _late_page(ask, form, stored, wanted)
    if not form.is_new and not find_differences(form.base, wanted):
        return _form_page(ask, form, {}, note="Nothing is different yet.")
    return None if is_sure else await _preview_page(ask, form, wanted)


def _find_refusal(ask: PageRequest, form: _Form) -> str:
    """Return why a new type cannot have this name for this user; empty if it can.

    Raises:
        PermissionDeniedError: the form edits an existing type, which the user may not change.
        QueueNotFoundError: the form edits an existing type, which the user does not see.
    """
    if not form.is_new or not form.name:
        if not form.is_new:
            ask.require("set_type_configuration", form.name)
        return ""
    try:
        ask.require("set_type_configuration", form.name)
    except (failures.PermissionDeniedError, failures.QueueNotFoundError):
        return "is not among the names that you may configure"
    return ""


def _check_lock(stored: TypeConfiguration) -> None:
    """Raise `InvalidOptionError` for a configuration that cannot be edited here."""
    if reason := find_read_only_reason(stored):
        raise failures.InvalidOptionError("managed", None, f"cannot be edited here. {reason}")


def _normalize(stored: TypeConfiguration) -> dict[str, Any]:
    """Return the form's fields of a configuration as the service writes them; unchanged if invalid."""
    try:
        return select_fields(parse_task_configuration("", dict(stored.content), name=stored.name).to_json())
    except (failures.InvalidOptionError, ImportError):
        return select_fields(stored.content)


def _read(fields: Mapping[str, str], name: str, *, is_new: bool) -> _Form:
    texts = {one.name: fields.get(one.name, "").replace("\r\n", "\n") for one in FORM_FIELDS}
    try:
        base = read_json(fields.get("base", "{}"))
    except ValueError:
        base = None
    if not isinstance(base, dict):
        raise failures.InvalidOptionError("base", None, "is not what the form began with; begin again")
    return _Form(name, _read_version(fields), base, texts, read_reason(dict(fields)), is_new)


def _read_version(fields: Mapping[str, str]) -> int:
    text = fields.get("version", "")
    if not text.isdecimal() or not text.isascii() or len(text) > 16:
        raise failures.InvalidOptionError("version", None, "is not that of a form; begin again")
    return int(text)


def _address(ask: PageRequest, form: _Form) -> str:
    return ask.links.to(_NEW) if form.is_new else ask.links.to(SECTION, form.name, "edit")


def _back(ask: PageRequest, form: _Form) -> str:
    return ask.links.to(SECTION) if form.is_new else ask.links.to(SECTION, form.name)


def _form_page(
    ask: PageRequest, form: _Form, wrong: Mapping[str, str], status: int = 200, *, note: str = ""
) -> Page:
    labels = {"name": ("c-name", "Name")} | {one.name: (f"c-{one.name}", one.label) for one in FORM_FIELDS}
    view = EditView(
        heading="New task type" if form.is_new else f"Edit {visible(form.name)}",
        action=_address(ask, form),
        is_new=form.is_new,
        name=form.name,
        name_error=wrong.get("name", ""),
        fields=build_form(form.texts, wrong),
        hidden=form.hidden,
        reason=form.reason,
        errors=tuple((*labels.get(name, ("c-name", name)), sentence) for name, sentence in wrong.items()),
        note=note,
        keep_href=_back(ask, form),
    )
    return Page("task_type_edit.html", view.heading, SECTION, view, status=status)


async def _preview_page(ask: PageRequest, form: _Form, wanted: Mapping[str, Any]) -> Page:
    view = ChangeView(
        heading=f"Make the task type {visible(form.name)}?"
        if form.is_new
        else f"Change the task type {visible(form.name)}?",
        action=_address(ask, form),
        is_new=form.is_new,
        late="",
        sides=("Stored now", "Then"),
        differences=find_differences(form.base, wanted),
        effect=await _describe_effect(ask, form.name, form.base, wanted),
        hidden=_hidden(form),
        reason=form.reason,
        keep_href=_back(ask, form),
    )
    return Page("task_type_change.html", view.heading, SECTION, view)


async def _late_page(
    ask: PageRequest, form: _Form, stored: TypeConfiguration | None, mine: Mapping[str, Any]
) -> Page:
    """Return the page for an edit conflict: the changes of another user and of this user.

    A confirmation applies this user's changes to the stored configuration (three-way merge).
    """
    theirs = {} if stored is None else _normalize(stored)
    merged = merge_changes(form.base, theirs, mine)
    who = await last_change(ask, form.name)
    happened = (
        "was deleted" if stored is None else "was made by someone else" if form.is_new else "was changed"
    )
    late = (
        f"{' '.join(part for part in (f'The type {happened} meanwhile', who) if part)}. "
        "Nothing of yours was stored. If you go on, your changes are put over what is stored now."
    )
    later = replace(
        form,
        version=stored.version if stored else 0,
        base=theirs,
        texts=write_form(merged),
        is_new=form.is_new and stored is None,
    )
    view = ChangeView(
        heading=f"Someone else was quicker with {visible(form.name)}",
        action=_address(ask, later),
        is_new=stored is None,
        late=late,
        sides=("When you began", "Stored now", "Yours"),
        differences=find_differences(form.base, theirs, mine),
        effect=await _describe_effect(ask, form.name, theirs, merged),
        hidden=_hidden(later),
        reason=form.reason,
        keep_href=_back(ask, later),
    )
    return Page("task_type_change.html", view.heading, SECTION, view, status=409)


def _hidden(form: _Form) -> tuple[tuple[str, str], ...]:
    name = (("name", form.name),) if form.is_new else ()
    return (*form.hidden, *name, *((key, text) for key, text in form.texts.items() if text))


async def _describe_effect(
    ask: PageRequest, name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> str:
    """Return sentences about the effect of new limits on running and waiting tasks."""
    if all(before.get(limit) == after.get(limit) for limit in _LIMITS):
        return ""
    try:
        limits = parse_task_configuration("", {**select_fields(after), "schema": None}, name=name).limits
        report = await ask.operator.queue_limits(name)
    except (failures.QueueNotFoundError, failures.InvalidOptionError):
        return ""
    return describe_effect(report, limits)
