"""What a scheduler writes to the logger `pyasynq`, as a subscriber of its events."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyasynq import events as happened
from pyasynq._server.logs import log_line, version_text

if TYPE_CHECKING:
    from collections.abc import Sized

    from pyasynq.events import Events

_log = logging.getLogger("pyasynq")


def attach_log(events: Events, address: str, entries: Sized) -> None:
    """Begin to write the events of a scheduler with these entries."""

    def state(event: happened.SchedulerStateChanged) -> None:
        if event.state == "active":
            tasks = "1 periodic task is" if len(entries) == 1 else f"{len(entries)} periodic tasks are"
            _log.info("pyasynq %s on %s: %s scheduled", version_text(), address, tasks)
        else:
            _log.info("the scheduler is %s", event.state)

    events.subscribe(happened.SchedulerStateChanged, state)
    for event_class, level, text in _LINES:
        events.subscribe(event_class, log_line(level, text))


_LINES: tuple[tuple[type[tuple[object, ...]], int, str], ...] = (
    (
        happened.TickFired,
        logging.INFO,
        "{spec}: task {task_id} ({task_type}, queue {queue}) is enqueued",
    ),
    (
        happened.TickFailed,
        logging.WARNING,
        "{spec}: the task of {tick:%Y-%m-%d %H:%M:%S} UTC ({task_type}) is not enqueued: {error}",
    ),
    (
        happened.TicksMissed,
        logging.WARNING,
        "{spec}: ticks up to {tick:%Y-%m-%d %H:%M:%S} UTC were missed and are left out ({task_type})",
    ),
    (
        happened.FutureTickIgnored,
        logging.WARNING,
        "{spec}: the last tick, {tick:%Y-%m-%d %H:%M:%S} UTC, is in the future and is ignored ({task_type})",
    ),
    (
        happened.HookFailed,
        logging.ERROR,
        "the hook {hook} of the scheduler raised {error!r}",
    ),
    (
        happened.SyncFailed,
        logging.ERROR,
        "the periodic tasks stay as they are, since the new ones cannot be had: {error!r}",
    ),
    (
        happened.PeriodicTaskRefused,
        logging.ERROR,
        "a periodic task ({task_type}) is left out: {error}",
    ),
    (
        happened.RoundFailed,
        logging.WARNING,
        "{service}: {error!r}; next try in {rest:.1f} s",
    ),
    (
        happened.ServerWarning,
        logging.WARNING,
        "{message}",
    ),
)
