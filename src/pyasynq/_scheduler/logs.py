"""Log lines of a scheduler, written by a subscriber of its events."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyasynq import events as happened
from pyasynq._background.outage_log import OutageLogs
from pyasynq._engine.logs import SHUTDOWN_HUNG_LINE, event_writer, version_text
from pyasynq._human_text import counted
from pyasynq._visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Sized

    from pyasynq.events import Events

_log = logging.getLogger("pyasynq")


def attach_log(events: Events, address: str, entries: Sized) -> None:
    """Start to log the events of a scheduler with these entries."""

    def state(event: happened.SchedulerStateChanged) -> None:
        if event.state == "active":
            tasks = counted(len(entries), "periodic task is", "periodic tasks are")
            _log.info("pyasynq %s on %s: %s scheduled", version_text(), visible(address), tasks)
        else:
            _log.info("scheduler %s", "ended" if event.state == "closed" else "enqueues no more tasks")

    outages = OutageLogs(events, address, noun="scheduler")
    failure = "{service} failed; retrying in {rest:time}: {error!r}"
    write_failure = event_writer(logging.WARNING, failure)

    def round_failed(event: happened.RoundFailed) -> None:
        if not outages.take(event.service, event.error, event.node):
            write_failure(event)

    events.subscribe(happened.SchedulerStateChanged, state)
    events.subscribe(happened.RoundFailed, round_failed)
    for event_class, level, text in _LINES:
        events.subscribe(event_class, event_writer(level, text))


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
        happened.TickPaused,
        logging.INFO,
        "{spec}: paused; the task of {tick:%Y-%m-%d %H:%M:%S} UTC ({task_type}) is not enqueued",
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
        "the periodic tasks stay unchanged, because the provider failed: {error!r}",
    ),
    (
        happened.PeriodicTaskRefused,
        logging.ERROR,
        "a periodic task ({task_type}) is left out: {error}",
    ),
    SHUTDOWN_HUNG_LINE,
    (
        happened.RedisWarning,
        logging.WARNING,
        "{message}",
    ),
)
