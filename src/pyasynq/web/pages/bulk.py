"""Pages for bulk actions: a preview that asks for confirmation, and the start of the operation."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from pyasynq._human_text import counted
from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError
from pyasynq.operations import Act, OperationOptions, Targets
from pyasynq.operations.operation import STATES_OF_ACT
from pyasynq.web.enqueue_options import OptionField, read_count, read_duration
from pyasynq.web.locations import from_task_key, to_task_key
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.pages.operations import act_title
from pyasynq.web.pages.queues import read_queues
from pyasynq.web.question import read_reason
from pyasynq.web.respond import page_response, redirect
from pyasynq.web.shown_task import STATE_LOOKS, TaskRow, task_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response

    from pyasynq.operations import OperationInfo, OperationPreview
    from pyasynq.task import TaskState
    from pyasynq.web.page import PageRequest

MOST_SELECTED: Final = 1_000
ACTS: Final = (
    Act.RUN,
    Act.RESCHEDULE,
    Act.ARCHIVE,
    Act.DELETE,
    Act.CANCEL,
    Act.MOVE,
    Act.EDIT,
    Act.ENQUEUE_AGAIN,
)
"""Bulk actions that a page offers for all tasks that match."""
_LABELS: Final = {
    Act.RUN: "Run now",
    Act.RESCHEDULE: "Run, spread over time",
    Act.ARCHIVE: "Archive",
    Act.DELETE: "Delete",
    Act.CANCEL: "Cancel",
    Act.MOVE: "Move to another queue",
    Act.EDIT: "Edit options",
    Act.ENQUEUE_AGAIN: "Enqueue again",
}
_DONE: Final = {
    Act.RUN: "put back into the queue",
    Act.RESCHEDULE: "rescheduled",
    Act.ARCHIVE: "archived",
    Act.DELETE: "deleted",
    Act.CANCEL: "asked to stop",
    Act.MOVE: "moved",
    Act.EDIT: "edited",
    Act.ENQUEUE_AGAIN: "enqueued again",
}
_ASKED: Final[Mapping[Act, tuple[OptionField, ...]]] = {
    Act.MOVE: (OptionField("queue", "To the queue", "It need not exist yet."),),
    Act.EDIT: (
        OptionField("max_retry", "Retries", "Tries after the first one failed; as they are if empty."),
        OptionField("timeout", "Timeout", "Longest run of an attempt, such as 90, 15m or 1h30m."),
    ),
}
"""Options that a bulk action requires before its preview, by action."""
SELECTION_ACTS: Final = frozenset({Act.MOVE.value, Act.EDIT.value})
"""Bulk actions that require options before they can change the checked tasks of a list."""
_OUTCOMES: Final = (("retry", "it is retried"), ("archive", "it is archived"), ("delete", "it is deleted"))
_MOST_COUNTS: Final = 12
_MOST_NAMES: Final = 500
_LONGEST: Final = 2_000
_PATIENCE: Final = 1.0
"""Seconds for which the response waits for a short operation to end."""
_DEFAULT_SPREAD: Final = "30"
_DAY_MINUTES: Final = 1_440.0


@dataclass(frozen=True, slots=True)
class CountRow:
    """View model of a row of the preview: number of tasks of one queue, type and state."""

    queue: str
    type: str
    word: str
    symbol: str
    tone: str
    count: int


@dataclass(frozen=True, slots=True)
class BulkView:
    """View model of the preview of a bulk action."""

    heading: str
    act: str
    query: str
    query_href: str
    is_possible: bool
    button: str
    keep: str
    keep_href: str
    back: str
    is_danger: bool
    is_exact: bool
    counts: tuple[CountRow, ...]
    more: int
    """Number of tasks in the rows of `counts` that are not shown."""
    samples: tuple[TaskRow, ...]
    left_out: str
    undo: str
    can_undo: bool
    needs_reason: bool
    number_label: str
    """Label of the field in which the user confirms the number of tasks; empty without such a field."""
    is_number_needed: bool
    ids: tuple[str, ...]
    outcomes: tuple[tuple[str, str], ...]
    has_rate: bool
    spread: str
    """Minutes over which the tasks' due times are spread; empty if the action spreads nothing."""
    spread_href: str
    """Address of the preview that runs the tasks spread over time, not at once; empty if not offered."""
    asked: tuple[tuple[str, str, str], ...]
    """Name, label and text of each option that was given before the preview."""
    fields: Mapping[str, str]
    """Values typed into the form, to show them again."""
    error: str = ""


@dataclass(frozen=True, slots=True)
class BulkOptionsView:
    """View model of the form that asks for the options of a bulk action."""

    heading: str
    act: str
    query: str
    ids: tuple[str, ...]
    """Keys of the checked tasks; empty for all that match."""
    back: str
    fields: tuple[OptionField, ...]
    queues: tuple[str, ...]
    keep_href: str


async def bulk_page(ask: PageRequest) -> Page:
    """Return the preview of a bulk action on the tasks that match a query, or a form for its options."""
    targets = Targets(query=ask.query.get("q", "").strip()[:_LONGEST])
    return await _ask_or_preview(ask, _act(ask.query.get("act", "")), targets, ask.query)


async def selection_page(ask: PageRequest, act: Act, fields: Mapping[str, str]) -> Page:
    """Return the preview of a bulk action on the checked tasks of a list, or a form for its options."""
    return await _ask_or_preview(ask, act, targets_of(selected_keys(fields)), fields)


async def _ask_or_preview(ask: PageRequest, act: Act, targets: Targets, given: Mapping[str, str]) -> Page:
    asked = {one.name: given.get(one.name, "").strip()[:200] for one in _ASKED.get(act, ())}
    back = given.get("back", "")
    if asked and not any(asked.values()):
        return await _options_page(ask, act, targets, {"back": back}, {})
    try:
        _read_edits(act, asked)
    except InvalidOptionError as error:
        wrong = {error.option: visible(error.remedy)}
        return await _options_page(ask, act, targets, {"back": back, **asked}, wrong)
    return await preview_page(ask, act, targets, {"back": back, **asked})


async def _options_page(
    ask: PageRequest, act: Act, targets: Targets, given: Mapping[str, str], wrong: Mapping[str, str]
) -> Page:
    ask.require_somewhere("start_operation")
    back = given["back"]
    names = sorted(one.queue for one in await read_queues(ask)) if act is Act.MOVE else []
    view = BulkOptionsView(
        heading=f"{_LABELS[act]}?",
        act=act.value,
        query=targets.query,
        ids=_keys_of(targets),
        back=back,
        fields=tuple(
            replace(one, value=given.get(one.name, ""), error=wrong.get(one.name, "")) for one in _ASKED[act]
        ),
        queues=tuple(names[:_MOST_NAMES]),
        keep_href=ask.links.back(back) if back else ask.links.to("tasks", q=targets.query),
    )
    return Page("bulk_options.html", view.heading, "tasks", view, status=400 if wrong else 200)


async def preview_page(
    ask: PageRequest,
    act: Act,
    targets: Targets,
    fields: Mapping[str, str],
    error: InvalidOptionError | None = None,
) -> Page:
    """Return the preview of a bulk action, with a confirmation form."""
    asked = {one.name: fields.get(one.name, "") for one in _ASKED.get(act, ())}
    options = _read_options(ask, act, fields if error is None else asked)
    preview = await ask.operator.preview_operation(act, targets, options)
    view = _view(ask, act, targets, preview, fields, "" if error is None else _sentence(error))
    return Page("bulk.html", view.heading, "tasks", view, status=200 if error is None else 400)


async def start_bulk(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Start the bulk operation that the form describes, and wait up to a second for its end."""
    began = time.perf_counter()
    act, targets = _act(fields.get("act", "")), _read_targets(fields)
    number = fields.get("confirm", "").replace(",", "").strip()
    try:
        info = await ask.operator.start_operation(
            act,
            targets,
            _read_options(ask, act, fields),
            reason=read_reason(fields),
            confirm=int(number) if number.isdecimal() and len(number) < 10 else None,
        )
    except InvalidOptionError as error:
        return page_response(ask, await preview_page(ask, act, targets, fields, error), began)
    ended = await ask.target.run_operation(ask.user, info.operation, _PATIENCE)
    ask.target.forget(ask.user, "operations")
    if ended is None or not ended.has_ended or ended.skipped or ended.error:
        text = "The operation has begun." if ended is None else "The operation has ended; see what was left."
        return redirect(ask, ask.links.to("operations", info.operation), Notice("good", text))
    return redirect(ask, ask.links.back(fields.get("back", "")), _notice(ask, ended))


def _notice(ask: PageRequest, ended: OperationInfo) -> Notice:
    text = f"{counted(ended.done, 'task was', 'tasks were')} {_DONE[ended.act]}."
    if ended.undoable:
        undo = ask.links.to("operations", ended.operation, "undo")
        return Notice("good", text, _from_root(ask, undo), "Undo", is_form=True)
    return Notice("good", text, _from_root(ask, ask.links.to("operations", ended.operation)), "Details")


def _from_root(ask: PageRequest, address: str) -> str:
    """Return an address relative to the root, for a notice; the page that shows the notice resolves it."""
    return address.removeprefix(ask.links.to())


def act_choices(
    ask: PageRequest, queue: str = "", state: TaskState | None = None
) -> tuple[tuple[str, str], ...]:
    """Return the bulk actions that a form offers for all tasks that match: name and label.

    Args:
        ask: the request of the page with the form.
        queue: the queue of the tasks, if all are in one.
        state: the state of the tasks, if all are in one.
    """
    if not ask.may("start_operation", queue):
        return ()
    return tuple((act.value, _LABELS[act]) for act in ACTS if state is None or state in STATES_OF_ACT[act])


def targets_of(keys: Sequence[str]) -> Targets:
    """Return the targets of a bulk action: the tasks with these keys, as checked in a list."""
    ids: dict[str, list[str]] = {}
    for key in keys:
        queue, task_id = from_task_key(key)
        ids.setdefault(queue, []).append(task_id)
    return Targets(ids)


def _keys_of(targets: Targets) -> tuple[str, ...]:
    return tuple(to_task_key(queue, task_id) for queue, ids in targets.ids.items() for task_id in ids)


def selected_keys(fields: Mapping[str, str]) -> list[str]:
    """Return the keys of the checked boxes of a list, up to the limit of one form."""
    return [key for key in fields.get("id", "").split("\n") if key.count("/") == 1][:MOST_SELECTED]


def _read_targets(fields: Mapping[str, str]) -> Targets:
    if keys := selected_keys(fields):
        return targets_of(keys)
    return Targets(query=fields.get("q", "").strip()[:_LONGEST])


def _act(text: str) -> Act:
    if text not in {act.value for act in ACTS}:
        raise InvalidOptionError("act", None, "is not something that can be done to many tasks")
    return Act(text)


def _read_options(ask: PageRequest, act: Act, fields: Mapping[str, str]) -> OperationOptions:
    minutes = _read_number("spread", fields.get("spread") or _DEFAULT_SPREAD)
    return OperationOptions(
        process_at=ask.now if act is Act.RESCHEDULE else None,
        spread=timedelta(minutes=min(minutes, _DAY_MINUTES)) if act is Act.RESCHEDULE else timedelta(0),
        outcome=fields.get("outcome", "retry"),
        rate=_read_number("rate", fields["rate"]) if fields.get("rate", "").strip() else None,
        undo=fields.get("undo", "yes") == "yes",
        **_read_edits(act, fields),
    )


def _read_edits(act: Act, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the options that a bulk action requires before its preview. Raises `InvalidOptionError`."""
    found: dict[str, Any] = {}
    for one in _ASKED.get(act, ()):
        text = fields.get(one.name, "").strip()
        try:
            if text and one.name == "timeout":
                found["timeout"] = timedelta(seconds=read_duration(text))
            elif text and one.name == "max_retry":
                found["max_retry"] = read_count(text)
            elif text:
                found[one.name] = text
        except ValueError as error:
            raise InvalidOptionError(one.name, None, str(error)) from None
    return found


def _read_number(name: str, text: str) -> float:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise InvalidOptionError(name, None, "must be a number above 0")
    return value


def _view(
    ask: PageRequest,
    act: Act,
    targets: Targets,
    preview: OperationPreview,
    fields: Mapping[str, str],
    error: str,
) -> BulkView:
    tasks = counted(preview.total, "task")
    if not preview.is_exact:
        tasks = f"at least {tasks}"
    title = act_title(act, tasks)
    rows = [_count_row(key, count) for key, count in preview.counts.items()]
    back = fields.get("back", "")
    return BulkView(
        heading=f"{title}?" if preview.total else f"No task to {_LABELS[act].lower()}",
        act=act.value,
        query=targets.query,
        query_href=ask.links.to("tasks", q=targets.query),
        is_possible=preview.total > 0,
        button=title,
        keep="Change nothing",
        keep_href=ask.links.back(back) if back else ask.links.to("tasks", q=targets.query),
        back=back,
        is_danger=act is Act.DELETE,
        is_exact=preview.is_exact,
        counts=tuple(rows[:_MOST_COUNTS]),
        more=sum(row.count for row in rows[_MOST_COUNTS:]),
        samples=tuple(task_row(task, ask.links) for task in preview.samples),
        left_out=_count_left_out(preview),
        undo=_undo_sentence(preview),
        can_undo=preview.can_undo,
        needs_reason=preview.needs_reason,
        number_label=_number_label(preview),
        is_number_needed=preview.needs_number and preview.is_exact,
        ids=_keys_of(targets),
        outcomes=_OUTCOMES if act is Act.CANCEL else (),
        has_rate=act is not Act.RESCHEDULE,
        spread=fields.get("spread") or _DEFAULT_SPREAD if act is Act.RESCHEDULE else "",
        spread_href=ask.links.to("bulk", act=Act.RESCHEDULE.value, q=targets.query, back=back)
        if act is Act.RUN and targets.query
        else "",
        asked=tuple(
            (one.name, one.label, fields[one.name]) for one in _ASKED.get(act, ()) if fields.get(one.name)
        ),
        fields={name: fields.get(name, "") for name in ("reason", "rate", "confirm")},
        error=error,
    )


def _number_label(preview: OperationPreview) -> str:
    """Return the label of the field for the number of tasks; empty without such a field."""
    if not preview.is_exact:
        return "Type the number of tasks to confirm; if it is another one, the answer says which"
    return f"Type {preview.total:,} to confirm" if preview.needs_number else ""


def _count_row(key: tuple[str, str, str], count: int) -> CountRow:
    queue, kind, state = key
    look = next((look for look in STATE_LOOKS.values() if look.state.value == state), None)
    word, symbol, tone = (look.word, look.state.value, look.tone) if look else (visible(state), "info", "")
    return CountRow(visible(queue), visible(kind) or "no type", word, symbol, tone, count)


def _count_left_out(preview: OperationPreview) -> str:
    parts = [
        f"{number:,} {'no longer there' if state == 'missing' else visible(state)}"
        for state, number in preview.left_out.items()
    ]
    return f"Left as they are: {', '.join(parts)}." if parts else ""


def _undo_sentence(preview: OperationPreview) -> str:
    if preview.act is not Act.DELETE or not preview.total:
        return ""
    return preview.undo[:1].upper() + preview.undo[1:] + "."


def _sentence(error: InvalidOptionError) -> str:
    text = visible(str(error))
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
