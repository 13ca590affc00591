"""Wording and actions that several detectors share."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyasynq.operations.finding import FindingAction

if TYPE_CHECKING:
    from pyasynq.operations.snapshot import QueueSnapshot


_PLAIN_WORD: Final = re.compile(r"[A-Za-z0-9_.-]+")


def quote_value(text: str) -> str:
    """Return a value for the query language: in quotes unless it is a plain word."""
    if _PLAIN_WORD.fullmatch(text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def query_of(queue: str, *clauses: str) -> str:
    """Return a query for tasks of a queue."""
    return " ".join((f"queue:{quote_value(queue)}", *clauses))


def to_moment(second: float) -> datetime:
    """Return a Unix time as an aware datetime."""
    return datetime.fromtimestamp(second, UTC)


def build_worker_action(queue: str) -> FindingAction:
    """Return the action that starts a worker for a queue."""
    return FindingAction(
        "Start a worker that serves the queue",
        command=f"pyasynq worker MODULE:APP --queues {shlex.quote(queue)}",
    )


def build_pause_action(queue: str) -> FindingAction:
    """Return the action that pauses a queue."""
    return FindingAction(
        "Pause the queue", "pause_queue", {"queue": queue}, f"pyasynq queue pause {shlex.quote(queue)}"
    )


def build_capacity_action(one: QueueSnapshot) -> FindingAction:
    """Return the action that makes a queue faster: remove its stored limits, or else start a worker."""
    limits = one.info.limits
    if limits.max_run is not None or limits.rate is not None:
        return FindingAction(
            "Remove the stored limits",
            "set_queue_limits",
            {"queue": one.queue, "max_run": None, "rate": None},
            f"pyasynq limits {shlex.quote(one.queue)} --max-run none --rate none",
        )
    return build_worker_action(one.queue)
