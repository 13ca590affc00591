"""What a server writes to the logger `pyasynq`, as a subscriber of its events. Payloads never appear."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pyasynq import events as happened
from pyasynq._server.failure_text import log_line as failure_line
from pyasynq._server.failure_text import own_traceback
from pyasynq.events import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.config import ServerConfig
    from pyasynq.events import Events
    from pyasynq.limits import Queue

_log = logging.getLogger("pyasynq")


class LogSubscriber:
    """Turns events into log lines.

    A failure is one WARNING with its traceback, an archive an ERROR, a success DEBUG.
    """

    def __init__(self, config: ServerConfig, address: str) -> None:
        self._config = config
        self._address = address
        self._last_failures: dict[str, tuple[str, float]] = {}
        """What each service failed with, and when that was last a warning."""

    def attach(self, events: Events) -> None:
        """Begin to write."""
        events.subscribe(
            happened.TaskFinished, self._finished, routine=partial(_log.isEnabledFor, logging.DEBUG)
        )
        events.subscribe(happened.ServerStateChanged, self._state)
        events.subscribe(happened.RoundFailed, self._round_failed)
        subscribe_lines(events)

    def _state(self, event: happened.ServerStateChanged) -> None:
        if event.state == "active":
            _log.info(
                "pyasynq %s on %s: queues %s, concurrency %d",
                version_text(),
                self._address,
                ", ".join(_queue_text(name, self._config.queue(name)) for name in self._config.queues),
                self._config.concurrency,
            )
        else:
            _log.info("the server is %s", event.state)

    def _round_failed(self, event: happened.RoundFailed) -> None:
        # While Redis is away every service fails several times a second with the same words.
        said, when = self._last_failures.get(event.service, ("", 0.0))
        now, error = time.monotonic(), repr(event.error)
        if error == said and now - when < _SAY_AGAIN_SECONDS:
            _log.debug("%s: %s; next try in %.1f s", event.service, error, event.rest)
            return
        self._last_failures[event.service] = error, now
        _log.warning("%s: %s; it is tried again until it succeeds", event.service, error)

    @staticmethod
    def _finished(event: happened.TaskFinished) -> None:
        what_now = None if event.error is None else _AFTER_FAILURE.get(event.outcome)
        if what_now is None or event.error is None:
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug(
                    "task %s (%s, queue %s) %s after %.3f s",
                    event.task_id,
                    event.task_type,
                    event.queue,
                    event.outcome.value.replace("_", " "),
                    event.seconds,
                )
            return
        level, text = what_now
        _log.log(
            level,
            "task %s (%s, queue %s) failed after %.3f s: %s; attempt %d of %d, %s",
            event.task_id,
            event.task_type,
            event.queue,
            event.seconds,
            failure_line(event.error),
            event.retried + 1,
            event.max_retry + 1,
            text,
            exc_info=(type(event.error), event.error, own_traceback(event.error)),
        )


def _queue_text(name: str, queue: Queue) -> str:
    limits = str(queue.limits)
    return f"{name}={queue.priority} ({limits})" if limits else f"{name}={queue.priority}"


_SAY_AGAIN_SECONDS = 60.0
_AFTER_FAILURE = {
    Outcome.RETRIED: (logging.WARNING, "it will be retried"),
    Outcome.ARCHIVED: (logging.ERROR, "it is archived"),
}


_LINES: tuple[tuple[type[tuple[object, ...]], int, str], ...] = (
    (
        happened.TaskRecovered,
        logging.WARNING,
        (
            "task {task_id} of queue {queue} is pending again after crash {crashes} of its worker "
            "(server {server_id})"
        ),
    ),
    (
        happened.TaskPoisoned,
        logging.ERROR,
        (
            "task {task_id} of queue {queue} was archived as poison: its worker crashed {crashes} times "
            "(last server {server_id})"
        ),
    ),
    (
        happened.ShutdownWaiting,
        logging.INFO,
        "waiting up to {seconds:g} s for {tasks} running tasks to end; a second Ctrl-C aborts",
    ),
    (
        happened.TasksPutBack,
        logging.WARNING,
        "{tasks} tasks did not finish and were put back to the front of their queues",
    ),
    (
        happened.ShutdownHung,
        logging.ERROR,
        "{what} did not end in time and was given up; it waited at {where}",
    ),
    (
        happened.LeaveFailed,
        logging.ERROR,
        "{service}: its end failed: {error!r}; the shutdown goes on",
    ),
    (
        happened.LeaseLost,
        logging.WARNING,
        "the lease of task {task_id} of queue {queue} is lost; nothing is written for this attempt",
    ),
    (
        happened.SettleDelayed,
        logging.WARNING,
        "the outcomes of {tasks} tasks could not be written and will be tried again: {error}",
    ),
    (
        happened.SettleRefused,
        logging.ERROR,
        "Redis refuses what came of task {task_id} of queue {queue}; {remedy}: {error}",
    ),
    (
        happened.GhostsDropped,
        logging.WARNING,
        "{ids} ids without a task were dropped from queue {queue}",
    ),
    (
        happened.MessageQuarantined,
        logging.ERROR,
        "task {task_id} of queue {queue} was archived: its message cannot be decoded: {reason}",
    ),
    (
        happened.ArchiveTrimmed,
        logging.WARNING,
        "the archive of queue {queue} was full or old: its oldest {tasks} tasks were deleted",
    ),
    (
        happened.TasksAggregated,
        logging.DEBUG,
        "{tasks} tasks of group {group} of queue {queue} became task {task_id}",
    ),
    (
        happened.AggregationDeclined,
        logging.WARNING,
        "the aggregator made no task of {tasks} tasks of group {group} of queue {queue}; they are kept",
    ),
    (
        happened.AggregationFailed,
        logging.WARNING,
        "group {group} of queue {queue} could not be aggregated: {error!r}; next try in {rest:.1f} s",
    ),
    (
        happened.AggregationLost,
        logging.WARNING,
        "tasks of group {group} of queue {queue} were put back while they were being aggregated",
    ),
    (
        happened.AggregationOverdue,
        logging.WARNING,
        "the aggregator of group {group} of queue {queue} still runs {seconds:.1f} s after its time",
    ),
    (
        happened.SetsReclaimed,
        logging.WARNING,
        "{tasks} tasks of queue {queue} were put back into their groups: their aggregation was broken off",
    ),
    (
        happened.EventsDropped,
        logging.WARNING,
        "{events} events of tasks of queue {queue} were not published",
    ),
    (
        happened.LoopBlocked,
        logging.WARNING,
        "the event loop has not run for {seconds:.1f} s: {tasks}; it is at:\n{stack}",
    ),
    (
        happened.AttemptOverdue,
        logging.WARNING,
        "task {task_id} ({task_type}, queue {queue}) still runs {seconds:.1f} s after it should have ended",
    ),
    (
        happened.AttemptAbandoned,
        logging.ERROR,
        (
            "the handler of task {task_id} ({task_type}, queue {queue}) still runs; "
            "its task comes back some time after it or the program has ended"
        ),
    ),
    (
        happened.LimitsIgnored,
        logging.WARNING,
        (
            "a server that knows of no limits and no order serves queue {queue}, which has some: it breaks "
            "them (host {host}, process {pid}, server {server_id}); let only pyasynq serve this queue"
        ),
    ),
    (
        happened.ServerWarning,
        logging.WARNING,
        "{message}",
    ),
)


def subscribe_lines(events: Events) -> None:
    """Write a line for each event that needs no more than a text with its fields."""
    for event_class, level, text in _LINES:
        events.subscribe(event_class, log_line(level, text))


def log_line(level: int, text: str) -> Callable[[Any], None]:
    """Return a subscriber that writes an event with a text that names its fields."""

    def write(event: Any) -> None:
        if _log.isEnabledFor(level):
            _log.log(level, "%s", text.format_map(event._asdict()))

    return write


def version_text() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - only a start needs it

    try:
        return version("pyasynq")
    except PackageNotFoundError:
        return "(not installed)"
