"""One outage of Redis as two log lines: a warning when it begins, an info when it is over."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from pyasynq._background.denial_log import DenialLog
from pyasynq._human_text import counted, duration
from pyasynq._visible_text import visible
from pyasynq.errors import (
    RedisAuthenticationError,
    RedisPermissionError,
    RedisUnavailableError,
    ReplyLostError,
)
from pyasynq.events import RoundFinished, TaskFinished, TaskSettled

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq.events import Events

_log = logging.getLogger("pyasynq")

_AWAY: Final = (RedisUnavailableError, ReplyLostError, RedisAuthenticationError)
_PROOFS: Final = frozenset({"heartbeater", "queue_look", "scheduler heartbeat"})
"""Services of which each round asks Redis something; a round of the others may have had nothing to ask."""
_LATE_SECONDS: Final = 10.0
"""How long after an outage a round of its time may still fail: twice the time-out of an exchange."""
_WRITES_KEPT_OUTCOMES: Final = "syncer"


class OutageLog:
    """Notices that Redis is away, and that it is back. It belongs to the event loop.

    Outside of an outage it listens to nothing, so that it costs nothing.

    Args:
        events: of the worker or scheduler.
        address: where Redis is, for errors that do not say.
        running: returns how many tasks run now.
        unwritten: returns how many outcomes Redis has not confirmed.
        noun: begins the lines, where it is not the worker that speaks.
        node: the node of a cluster that it watches; it listens to the services of this node alone.
    """

    def __init__(
        self,
        events: Events,
        address: str,
        running: Callable[[], int] = lambda: 0,
        unwritten: Callable[[], int] = lambda: 0,
        *,
        noun: str = "",
        node: str = "",
    ) -> None:
        self._events = events
        self._address = address
        self._running = running
        self._unwritten = unwritten
        self._node = node
        self._noun = f"{noun}: " if noun else ""
        self._denials = DenialLog(events, address, self._noun)
        self._stop_listening: list[Callable[[], None]] = []
        self._began: float | None = None
        self._back_at: float | None = None
        self._failed: set[str] = set()
        """Services whose last round failed, of those whose success says something."""
        self._rounds: set[str] = set()
        """Services that finished a round since the outage began; the first one may have begun before."""
        self._fresh: set[tuple[str, str]] = set()
        """Attempts that ended after Redis was back, by queue and id: these outcomes were not kept."""
        self._written = 0
        self._kept: int | None = None
        """Number of outcomes of the outage that are still to be written; None until Redis is back."""
        self._late_until = 0.0
        self._late: set[str] = set()
        """Services that reported a failure since the last outage was over."""
        self._refused = False
        """Whether it was told that Redis refuses the login."""

    def take(self, service: str, error: BaseException) -> bool:
        """Take in that a service failed; return whether it is told as a part of an outage."""
        if isinstance(error, RedisPermissionError):
            self._denials.take(service, error, self._runs_on())
            return True
        if not isinstance(error, _AWAY):
            return False
        if self._is_late(service):
            return True
        refused = isinstance(error, RedisAuthenticationError)
        if self._began is None:
            self._begin(error)
        elif refused and not self._refused:
            # Another reason, which does not pass by itself.
            self._warn(error, "")
        self._refused = self._refused or refused
        self._back_at = self._kept = None
        if service in _PROOFS or service == _WRITES_KEPT_OUTCOMES:
            self._failed.add(service)
        return True

    def _is_late(self, service: str) -> bool:
        """Return whether this may be a round of an outage that is over by now; each service has one."""
        if self._began is not None or time.monotonic() >= self._late_until or service in self._late:
            return False
        self._late.add(service)
        return True

    def _begin(self, error: BaseException) -> None:
        self._began = time.monotonic()
        self._stop_listening = [self._events.subscribe(RoundFinished, self._finished)]
        if not self._node:
            # An outcome does not say on which node it was written.
            self._stop_listening += [
                self._events.subscribe(TaskFinished, self._attempt_ended),
                self._events.subscribe(TaskSettled, self._settled),
            ]
        self._warn(error, self._runs_on())

    def _runs_on(self) -> str:
        running = self._running()
        return f"; {counted(running, 'task runs', 'tasks run')} on, outcomes are kept" if running else ""

    def _warn(self, error: BaseException, runs_on: str) -> None:
        address = self._node or getattr(error, "address", "") or self._address
        reason = reason_of(error, address).removeprefix(f"{visible(address)}: ")
        _log.warning("%sRedis at %s is away: %s%s", self._noun, visible(address), reason, runs_on)

    def _attempt_ended(self, event: TaskFinished) -> None:
        if self._back_at is not None:
            self._fresh.add((event.queue, event.task_id))

    def _settled(self, event: TaskSettled) -> None:
        task = event.queue, event.task_id
        if task in self._fresh:
            self._fresh.discard(task)
            return
        if self._kept is not None:
            self._kept -= 1
        if event.written:
            self._written += 1
            self._back_at = self._back_at or time.monotonic()

    def _finished(self, event: RoundFinished) -> None:
        if event.node != self._node:
            return
        service = event.service
        if service in self._failed:
            self._failed.discard(service)
            proved = service in _PROOFS
        else:
            proved = service in _PROOFS and service in self._rounds
        self._rounds.add(service)
        if proved and self._back_at is None:
            self._back_at = time.monotonic()
        if self._back_at is None:
            return
        if self._kept is None:
            self._kept = 0 if self._node else self._unwritten() - len(self._fresh)
        if self._kept <= 0 and not self._failed:
            self._end(self._back_at)

    def _end(self, back_at: float) -> None:
        assert self._began is not None  # noqa: S101 - it listens during an outage only
        for stop in self._stop_listening:
            stop()
        outcomes = f"; {counted(self._written, 'outcome')} written" if self._written else ""
        subject = f"Redis at {visible(self._node)}" if self._node else "Redis"
        _log.info("%s%s is back after %s%s", self._noun, subject, duration(back_at - self._began), outcomes)
        self._began = self._back_at = self._kept = None
        self._written = 0
        self._refused = False
        self._late_until = time.monotonic() + _LATE_SECONDS
        self._late.clear()
        self._rounds.clear()
        self._fresh.clear()


class OutageLogs:
    """Outages of Redis: of all of it, or of one node of a cluster. The arguments are those of `OutageLog`."""

    def __init__(self, events: Events, address: str, *counters: Callable[[], int], noun: str = "") -> None:
        self._events = events
        self._address = address
        self._counters = counters
        self._noun = noun
        self._logs: dict[str, OutageLog] = {}

    def take(self, service: str, error: BaseException, node: str = "") -> bool:
        """Take in that a service failed for a node; return whether it is told as a part of an outage."""
        if node not in self._logs:
            address = node or self._address
            self._logs[node] = OutageLog(self._events, address, *self._counters, noun=self._noun, node=node)
        return self._logs[node].take(service, error)


def reason_of(error: BaseException, address: str) -> str:
    """Return why Redis is away, without its address, which the line has already."""
    cause: str | None = getattr(error, "cause", None)
    if cause is not None:
        return visible(cause).rstrip(".")
    text = visible(error).rstrip(".")
    prefix = f"Redis at {visible(address)} "
    return f"it {text.removeprefix(prefix)}" if text.startswith(prefix) else text
