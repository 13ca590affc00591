"""The form that changes the stored limits of a queue: first a preview of the effect, then the change."""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import TYPE_CHECKING, Any

from pyasynq._human_text import counted, duration
from pyasynq._visible_text import visible
from pyasynq.errors import InvalidOptionError, QueueLimitsChangedError
from pyasynq.limits import QueueLimits, check_max_run, check_rate
from pyasynq.web.notice import Notice
from pyasynq.web.page import Page
from pyasynq.web.question import Question, read_reason
from pyasynq.web.respond import page_response, redirect
from pyasynq.web.schema_form import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.responses import Response

    from pyasynq.operations import LimitReport
    from pyasynq.web.page import PageRequest

_NAMES = ("max_run", "rate", "period", "burst")
_KINDS_OF_LIMITS = (int | None, float | int | None, float | int, int, bool | None)
"""Types of the fields of `QueueLimits`, in their order."""
_MOST = 1e15
"""Maximum number accepted from a form; real limits are far below."""


async def change_limits(ask: PageRequest, fields: dict[str, str]) -> Response:
    """Return a preview of new limits; after the user's confirmation, store them by compare-and-set.

    If someone else has changed the limits since the preview, return a new preview.
    """
    name = ask.name("queue")
    ask.require("set_queue_limits", name)
    wanted = _read_limits(fields)
    if fields.get("sure") != "yes":
        return page_response(ask, await _preview(ask, name, wanted, fields), 0.0)
    try:
        stored = await ask.operator.set_queue_limits(
            name,
            expected=_read_before(fields),
            max_run=wanted.max_run,
            rate=wanted.rate,
            period=wanted.period if wanted.rate else None,
            burst=wanted.burst if wanted.rate else None,
            reason=read_reason(fields),
        )
    except QueueLimitsChangedError:
        return page_response(ask, await _preview(ask, name, wanted, fields, is_late=True), 0.0)
    text = f"Stored for {visible(name)}: {stored or 'no limits'}."
    return redirect(ask, ask.links.to("queues", name, tab="limits"), Notice("good", text))


async def _preview(
    ask: PageRequest, name: str, wanted: QueueLimits, fields: Mapping[str, str], *, is_late: bool = False
) -> Page:
    report = await ask.operator.queue_limits(name)
    late = "Someone else has changed the limits meanwhile. " if is_late else ""
    question = Question(
        heading=f"Change the limits of {visible(name)}?",
        text=late + describe_effect(report, wanted),
        action=ask.links.to("queues", name, "limits"),
        button="Store limits",
        keep="Leave them as they are",
        keep_href=ask.links.to("queues", name, tab="limits"),
        hidden=(
            *((field, fields.get(field, "")) for field in _NAMES),
            ("before", json.dumps(astuple(report.stored))),
            ("sure", "yes"),
        ),
        reason=read_reason(dict(fields)),
    )
    return Page("question.html", question.heading, "queues", question, status=409 if is_late else 200)


def describe_effect(report: LimitReport, wanted: QueueLimits) -> str:
    """Return sentences about the effect of new limits on running and waiting tasks."""
    active, pending = report.active, report.pending
    run, wait = "runs" if active == 1 else "run", "waits" if pending == 1 else "wait"
    sentences = [
        f"Stored now: {report.stored or 'no limits'}; then: {wanted or 'no limits'}.",
        f"{counted(active, 'task')} {run} now, and {counted(pending, 'task')} {wait}.",
    ]
    if wanted.max_run is not None:
        over, starting = active - wanted.max_run, max(0, min(wanted.max_run - active, pending))
        if over > 0:
            sentences.append(
                f"{over:,} more than the limit: what runs goes on, and no other task starts "
                f"before fewer than {wanted.max_run:,} run."
            )
        sentences.append(
            f"{starting:,} may start at once, as far as servers have free slots; "
            f"{pending - starting:,} would wait for a place."
        )
    if wanted.rate is not None and pending:
        seconds = max(0.0, pending - wanted.burst) * wanted.period / wanted.rate
        sentences.append(f"At this rate it takes {duration(seconds)} until all of them have started.")
    if report.asked and not wanted:
        sentences.append("The limits that servers ask for hold again.")
    if ignoring := len(report.ignored_by):
        verb = "ignores" if ignoring == 1 else "ignore"
        sentences.append(f"{counted(ignoring, 'server')} in Go {verb} limits.")
    return " ".join(sentences)


def _read_limits(fields: Mapping[str, str]) -> QueueLimits:
    """Return the limits of the form; an empty field removes a limit. Raises `InvalidOptionError`."""
    max_run = check_max_run(_read_number("max_run", fields, int))
    rate = _read_number("rate", fields, float)
    if rate is None:
        return QueueLimits(max_run)
    period, burst = _read_number("period", fields, float), _read_number("burst", fields, int)
    number, seconds, most = check_rate(rate, 1.0 if period is None else period, burst)
    return QueueLimits(max_run, number, seconds, most)


def _read_number(name: str, fields: Mapping[str, str], kind: Callable[[str], Any]) -> Any:
    text = fields.get(name, "").strip()
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise InvalidOptionError(name, None, "must be a number") from None


def _read_before(fields: Mapping[str, str]) -> QueueLimits | None:
    """Return the limits that the preview was based on; None without a preview."""
    if not fields.get("before"):
        return None
    try:
        values = read_json(fields["before"])
    except ValueError:
        values = None
    if not isinstance(values, list) or not _are_limits(values):
        raise InvalidOptionError("before", None, "is not what the preview has shown; begin again")
    return QueueLimits(*values)


def _are_limits(values: list[Any]) -> bool:
    """Return whether values from a browser have the types of the limits of a queue."""
    if len(values) != len(_KINDS_OF_LIMITS) or not all(map(isinstance, values, _KINDS_OF_LIMITS)):
        return False
    numbers = [value for value in values[:4] if value is not None]
    return not any(isinstance(value, bool) or not -_MOST < value < _MOST for value in numbers)
