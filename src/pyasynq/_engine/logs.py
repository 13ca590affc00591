"""Log lines of a server, written by subscribers of its events. Payloads never appear."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyasynq import events as happened
from pyasynq._background.outage_log import OutageLogs
from pyasynq._engine.outcome_log import attach_outcome_log, totals_text
from pyasynq._human_text import MessageFormatter, counted, duration, shorten_end
from pyasynq._visible_text import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq.config import ServerConfig
    from pyasynq.events import Events
    from pyasynq.limits import Queue

_log = logging.getLogger("pyasynq")

_SAY_AGAIN_SECONDS: Final = 60.0
_SHOWN_TYPES: Final = 5
_FORMATTER: Final = MessageFormatter()


class Reported(Protocol):
    """The part of a server that the log reads."""

    ending: bool

    def running_types(self) -> Sequence[str]:
        """Return the type of each running task."""

    def unwritten(self) -> int:
        """Return the number of outcomes that Redis has not confirmed."""


class LogSubscriber:
    """Turns events into log lines. Used by the event loop.

    Args:
        config: config of the server.
        address: where Redis is, without the password.
        server: read while lines are written; None if nothing runs tasks here.
        noun: what log lines call it: `worker` or `consumer`.
    """

    def __init__(
        self, config: ServerConfig, address: str, server: Reported | None = None, *, noun: str = "worker"
    ) -> None:
        self._config = config
        self._address = address
        self._server = server
        self._noun = noun
        self._was_active = False
        self._last_failures: dict[str, tuple[str, float]] = {}
        """The last failure of each service, and when it was last logged as a warning."""

    def attach(self, events: Events) -> None:
        """Start to log the events of a server."""
        self._outages = OutageLogs(events, self._address, lambda: len(self._running_types()), self._unwritten)
        attach_outcome_log(events)
        events.subscribe(happened.ServerStateChanged, self._on_state)
        events.subscribe(happened.ServerEnded, self._on_ended)
        events.subscribe(happened.ShutdownWaiting, self._on_waiting)
        events.subscribe(happened.RoundFailed, self._round_failed)
        events.subscribe(happened.SettleDelayed, self._settle_delayed)
        events.subscribe(happened.TypesNotPublished, _on_types_not_published)
        subscribe_lines(events)

    def _running_types(self) -> Sequence[str]:
        return () if self._server is None else self._server.running_types()

    def _unwritten(self) -> int:
        return 0 if self._server is None else self._server.unwritten()

    # The life of the server.

    def _on_state(self, event: happened.ServerStateChanged) -> None:
        if event.state == "active":
            self._was_active = True
            _log.info(
                "pyasynq %s on %s: queues %s, concurrency %d",
                version_text(),
                visible(self._address),
                ", ".join(_queue_text(name, self._config.queue(name)) for name in self._config.queues),
                self._config.concurrency,
            )
        elif self._server is None:
            _log.info("%s ended", self._noun)
        elif event.state == "stopped" and self._server.ending:
            if not self._was_active:
                _log.info("%s stopping: it had not started yet", self._noun)
        elif event.state == "stopped":
            running = _types_text(self._running_types())
            _log.info("%s takes no more tasks%s", self._noun, f"; running on: {running}" if running else "")
        elif event.state == "closed" and self._was_active and not self._running_types():
            # With running tasks, `ShutdownWaiting` says more.
            _log.info("%s stopping", self._noun)

    def _on_waiting(self, event: happened.ShutdownWaiting) -> None:
        types = _types_text(self._running_types())
        _log.info(
            "%s stopping: waiting up to %s for %s%s",
            self._noun,
            duration(event.seconds),
            counted(event.tasks, "task"),
            f" ({types})" if types else "",
        )

    def _on_ended(self, event: happened.ServerEnded) -> None:
        lived = duration(event.seconds)
        totals = totals_text(event.outcomes)
        unwritten = ""
        if event.unwritten:
            unwritten = f"; {counted(event.unwritten, 'outcome was', 'outcomes were')} not written"
        said = f": {totals} in {lived}" if totals else f" after {lived}: no task was run"
        _log.info("%s ended%s%s", self._noun, said, unwritten)

    # Failures.

    def _round_failed(self, event: happened.RoundFailed) -> None:
        if self._outages.take(event.service, event.error, event.node):
            _log.debug("%s: %s; retrying in %s", event.service, visible(event.error), duration(event.rest))
            return
        where = f" for queue {visible(event.queue)}" if event.queue else ""
        subject = f"{event.service} failed{where}"
        self._warn_once_a_minute(subject, f"{subject}; retrying", event.error)

    def _settle_delayed(self, event: happened.SettleDelayed) -> None:
        if self._outages.take("", event.error):
            return
        text = f"{counted(event.tasks, 'outcome')} could not be written; retrying"
        self._warn_once_a_minute("outcomes", text, event.error)

    def _warn_once_a_minute(self, subject: str, text: str, error: Exception) -> None:
        """Warn, unless this subject failed with the same text less than a minute ago."""
        said, when = self._last_failures.get(subject, ("", 0.0))
        now, shown = time.monotonic(), visible(shorten_end(repr(error)))
        if shown == said and now - when < _SAY_AGAIN_SECONDS:
            _log.debug("%s: %s", text, shown)
            return
        self._last_failures[subject] = shown, now
        _log.warning("%s: %s", text, shown)


def _queue_text(name: str, queue: Queue) -> str:
    limits = str(queue.limits)
    shown = f"{visible(name)}={queue.priority}"
    return f"{shown} ({limits})" if limits else shown


def _on_types_not_published(event: happened.TypesNotPublished) -> None:
    _log.warning(
        "tools do not know %s: its description is too large, or over 2,000 types are known: %s",
        counted(len(event.types), "task type"),
        _types_text(event.types),
    )


def _types_text(types: Sequence[str]) -> str:
    """Return a text such as `report:fetch, email:deliver (3)`: each type once, with its count."""
    most_common = Counter(types).most_common()
    shown = [visible(name) + (f" ({count:,})" if count > 1 else "") for name, count in most_common]
    more = len(shown) - _SHOWN_TYPES
    return ", ".join(shown[:_SHOWN_TYPES]) + (f" and {counted(more, 'more type')}" if more > 0 else "")


SHUTDOWN_HUNG_LINE: Final = (
    happened.ShutdownHung,
    logging.ERROR,
    "{what} did not end in time and was given up; it was waiting at {where:lines}",
)
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
        happened.LeaseLapsed,
        logging.WARNING,
        (
            "task {task_id} of queue {queue} is pending again: its lease ended without a sign of its worker, "
            "{lapses:time|times} in a row (server {server_id})"
        ),
    ),
    (
        happened.TaskPoisoned,
        logging.ERROR,
        (
            "task {task_id} of queue {queue} was archived as poison: its worker crashed {crashes:time|times} "
            "(last server {server_id})"
        ),
    ),
    (
        happened.TasksPutBack,
        logging.WARNING,
        "{tasks:task that did not finish is|tasks that did not finish are} back at the front of the queue",
    ),
    SHUTDOWN_HUNG_LINE,
    (
        happened.LeaveFailed,
        logging.ERROR,
        "{service}: stopping it failed: {error!r}; the shutdown continues",
    ),
    (
        happened.LeaseLost,
        logging.WARNING,
        "the lease of task {task_id} of queue {queue} is lost; nothing is written for this attempt",
    ),
    (
        happened.SettleRefused,
        logging.ERROR,
        "Redis refuses the outcome of task {task_id} of queue {queue}; {remedy}: {error}",
    ),
    (
        happened.GhostsDropped,
        logging.WARNING,
        "{ids:id without a task was|ids without a task were} dropped from queue {queue}",
    ),
    (
        happened.MessageQuarantined,
        logging.ERROR,
        "task {task_id} of queue {queue} was archived: its message cannot be decoded: {reason}",
    ),
    (
        happened.ArchiveTrimmed,
        logging.WARNING,
        "the archive of queue {queue} was full or old: {tasks:task was|tasks were} deleted, the oldest",
    ),
    (
        happened.TasksAggregated,
        logging.DEBUG,
        "{tasks:task|tasks} of group {group} of queue {queue} became task {task_id}",
    ),
    (
        happened.AggregationDeclined,
        logging.WARNING,
        "the aggregator made no task of {tasks:task|tasks} of group {group} of queue {queue}; they are kept",
    ),
    (
        happened.AggregationFailed,
        logging.WARNING,
        "group {group} of queue {queue} could not be aggregated: {error!r}; retrying in {rest:time}",
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
        "{tasks:task|tasks} of queue {queue} put back into the group: the aggregation was interrupted",
    ),
    (
        happened.EventsDropped,
        logging.WARNING,
        "{events:event|events} of tasks of queue {queue} not published",
    ),
    (
        happened.LoopBlocked,
        logging.WARNING,
        "the event loop has not run for {seconds:time}: {tasks}; it is at:\n{stack:lines}",
    ),
    (
        happened.AttemptOverdue,
        logging.WARNING,
        "task {task_id} ({task_type}, queue {queue}) still runs {seconds:time} after it should have ended",
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
            "a worker that knows neither limits nor order serves queue {queue}, which has some: it breaks "
            "them (host {host}, process {pid}, server {server_id}); let only pyasynq serve this queue"
        ),
    ),
    (
        happened.ServerAsked,
        logging.INFO,
        "an operator asks server {server_id}: {action}",
    ),
    (
        happened.QueueChanged,
        logging.INFO,
        "served queues: {queue} {change}",
    ),
    (
        happened.RedisWarning,
        logging.WARNING,
        "{message}",
    ),
)


def subscribe_lines(events: Events) -> None:
    """Subscribe a writer of log lines for each event whose line is only a template with its fields."""
    for event_class, level, text in _LINES:
        events.subscribe(event_class, event_writer(level, text))


def event_writer(level: int, text: str) -> Callable[[Any], None]:
    """Return a subscriber that logs an event; `text` is a template with its fields as placeholders."""

    def write(event: Any) -> None:
        if _log.isEnabledFor(level):
            _log.log(level, "%s", _FORMATTER.vformat(text, (), event._asdict()))

    return write


def version_text() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - only a start needs it

    try:
        return version("pyasynq")
    except PackageNotFoundError:
        return "(not installed)"
