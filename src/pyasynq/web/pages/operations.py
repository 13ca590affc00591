"""The pages of bulk operations (on many tasks): progress, and actions such as pause and undo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import counted, some
from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError
from pyasynq.operations import Act, OperationState
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.respond import redirect
from pyasynq.web.shown_task import short_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from starlette.responses import Response

    from pyasynq.operations import OperationInfo
    from pyasynq.web.page import PageRequest

_LISTED: Final = 100
_SECONDS: Final = 2.0
_VERB_OF_ORDER: Final = {
    "pause": "pause_operation",
    "resume": "resume_operation",
    "stop": "stop_operation",
    "undo": "undo_operation",
    "continue": "run_operation",
}
_LOOKS: Final = {
    OperationState.READY: ("Being prepared", "pending", ""),
    OperationState.RUNNING: ("Running", "active", "busy"),
    OperationState.PAUSED: ("Paused", "paused", "warn"),
    OperationState.DONE: ("Done", "completed", "good"),
    OperationState.STOPPED: ("Stopped", "paused", "warn"),
    OperationState.FAILED: ("Failed", "danger", "bad"),
}
_INTERRUPTED: Final = ("Interrupted", "lost", "warn")
_TITLES: Final = {
    Act.RUN: "Run {}",
    Act.ARCHIVE: "Archive {}",
    Act.DELETE: "Delete {}",
    Act.CANCEL: "Cancel {}",
    Act.RESCHEDULE: "Reschedule {}",
    Act.EDIT: "Edit {}",
    Act.MOVE: "Move {}",
    Act.ENQUEUE_AGAIN: "Enqueue {} again",
    Act.UNDO: "Put back {}",
}


@dataclass(frozen=True, slots=True)
class OperationRow:
    """View model of an operation in the list."""

    key: str
    href: str
    title: str
    word: str
    symbol: str
    tone: str
    finished: int
    """Number of processed tasks: changed, or left unchanged."""
    total: int
    progress: str
    who: str
    reason: str
    created: datetime


@dataclass(frozen=True, slots=True)
class Order:
    """A button that changes an operation: pause, resume, stop, undo or continue."""

    action: str
    label: str
    is_main: bool = False


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A task that the operation left unchanged, with the reason."""

    id: str
    href: str
    queue: str
    reason: str


@dataclass(frozen=True, slots=True)
class OperationsView:
    """View model of the list of operations, and of the page of one operation."""

    rows: tuple[OperationRow, ...]
    summary: str
    orders: tuple[Order, ...] = ()
    facts: tuple[tuple[str, str, str], ...] = ()
    """Facts about the operation: name, text and link."""
    undo_until: datetime | None = None
    refused: tuple[RefusedRow, ...] = ()
    error: str = ""


async def operations_page(ask: PageRequest) -> Page:
    """Return the page `/operations`."""
    found = await read_operations(ask)
    running = sum(not one.has_ended for one in found)
    summary = f"{counted(len(found), 'operation')} of the last 30 days, newest first" if found else ""
    view = OperationsView(tuple(operation_row(ask, one) for one in found), summary)
    title = f"({running}) Operations" if running else "Operations"
    return Page("operations.html", title, "operations", view, is_live=True)


async def read_operations(ask: PageRequest) -> Sequence[OperationInfo]:
    """Return the newest operations that the user sees; cached for a few seconds."""
    found = await ask.target.recent(
        ask.user, "operations", lambda: ask.operator.operations(_LISTED), _SECONDS
    )
    running = sum(not one.has_ended for one in found)
    ask.target.note_count(ask.user, "operations", str(running) if running else "", "busy")
    return found


async def operation_page(ask: PageRequest) -> Page:
    """Return the page of one operation."""
    info = await ask.operator.operation(ask.name("operation"))
    row = operation_row(ask, info)
    facts = [
        ("Queues", some(info.queues, 10) or "none", ""),
        ("Query", visible(info.query), ask.links.to("tasks", q=info.query)) if info.query else None,
        ("Reason", visible(info.reason), "") if info.reason and ask.may("audit") else None,
        ("Undoes", short_id(info.undoes), ask.links.to("operations", info.undoes)) if info.undoes else None,
        ("Trimmed from the archive", f"{info.trimmed:,}", "") if info.trimmed else None,
        ("Id", visible(info.operation), ""),
    ]
    view = OperationsView(
        rows=(row,),
        summary=row.title,
        orders=_orders(ask, info),
        facts=tuple(fact for fact in facts if fact is not None),
        undo_until=info.undo_until if info.undoable else None,
        refused=tuple(_make_refused_row(ask, one) for one in info.refused[:200]),
        error=visible(info.error),
    )
    return Page("operation.html", f"{row.word} · {row.title}", "operations", view, is_live=True)


async def give_order(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Pause, resume, stop, undo or continue an operation."""
    operation_id, order = ask.name("operation"), ask.name("order")
    reason = fields.get("reason", "").strip()[:500]
    operator = ask.operator
    match order:
        case "pause":
            await operator.pause_operation(operation_id, reason=reason)
            text = "It is paused after the step that is under way."
        case "resume":
            await operator.resume_operation(operation_id, reason=reason)
            text = "It goes on."
        case "stop":
            await operator.stop_operation(operation_id, reason=reason)
            text = "It ends after the step that is under way. What was done stays done."
        case "undo":
            operation_id = (await operator.undo_operation(operation_id, reason=reason)).operation
            text = "The tasks are being put back."
        case "continue":
            await operator.operation(operation_id)
            ask.require_somewhere("run_operation")
            text = "It goes on here."
        case _:
            raise InvalidOptionError("order", None, "is not something that can be done to an operation")
    if order in {"resume", "undo", "continue"}:
        ended = await ask.target.run_operation(ask.user, operation_id, _SECONDS / 2)
        if ended is not None and ended.state is OperationState.DONE:
            text = _done_sentence(order, ended)
    ask.target.forget(ask.user, "operations")
    return redirect(ask, ask.links.to("operations", operation_id), Notice("good", text))


def _done_sentence(order: str, ended: OperationInfo) -> str:
    """Return the notice for a pressed button (`order`) whose operation ended before the response."""
    if order != "undo":
        return "It is done."
    return f"{counted(ended.done, 'task')} {'is' if ended.done == 1 else 'are'} back."


def operation_row(ask: PageRequest, info: OperationInfo) -> OperationRow:
    """Return the row of an operation."""
    is_interrupted = info.is_orphaned and info.state is OperationState.RUNNING
    word, symbol, tone = _INTERRUPTED if is_interrupted else _LOOKS[info.state]
    return OperationRow(
        key=info.operation,
        href=ask.links.to("operations", info.operation),
        title=operation_title(info),
        word=word,
        symbol=symbol,
        tone=tone,
        finished=info.done + info.skipped,
        total=info.total,
        progress=_progress(info),
        who=visible(info.user),
        reason=visible(info.reason),
        created=info.created,
    )


def operation_title(info: OperationInfo) -> str:
    """Return a title for an operation: `Delete 1,120 tasks of payments`."""
    title = act_title(info.act, counted(info.total, "task"))
    return f"{title} of {some(info.queues, 2)}" if info.queues else title


def act_title(act: Act, tasks: str) -> str:
    """Return a title for a bulk action on some tasks: `Enqueue 3 tasks again`."""
    return _TITLES[act].format(tasks)


def _progress(info: OperationInfo) -> str:
    text = f"{info.done:,} of {info.total:,} done"
    return f"{text}, {info.skipped:,} left as they were" if info.skipped else text


def _orders(ask: PageRequest, info: OperationInfo) -> tuple[Order, ...]:
    """Return the buttons that the state of the operation and the user's permissions allow."""
    names: list[tuple[str, str, bool]] = []
    if info.state is OperationState.RUNNING:
        if info.is_orphaned:
            names.append(("continue", "Go on with it", True))
        names += [("pause", "Pause", False), ("stop", "Stop", False)]
    elif info.state is OperationState.PAUSED:
        names += [("resume", "Resume", True), ("stop", "Stop", False)]
    elif info.has_ended and info.undoable:
        names.append(("undo", f"Put back {counted(info.undoable, 'task')}", True))
    return tuple(
        Order(ask.links.to("operations", info.operation, order), label, is_main)
        for order, label, is_main in names
        if all(ask.may(_VERB_OF_ORDER[order], queue) for queue in info.queues or ("",))
    )


def _make_refused_row(ask: PageRequest, one: tuple[str, str, str]) -> RefusedRow:
    queue, task_id, reason = one
    return RefusedRow(
        short_id(task_id), ask.links.to("queues", queue, "tasks", task_id), visible(queue), visible(reason)
    )
