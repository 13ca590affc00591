"""Log lines for an outage of Redis: a warning at its begin, an info at its end."""

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
_CALL_OFTEN: Final = frozenset({"heartbeater", "queue_look", "scheduler heartbeat"})
"""Services that call Redis every few seconds: after a failure of any, the outage lasts until it works."""
_LATE_SECONDS: Final = 10.0
"""Seconds after the end of an outage in which a round that began before it may still fail.

The value is twice the timeout of an exchange with Redis.
"""
_WRITES_KEPT_OUTCOMES: Final = "syncer"


class OutageLog:
    """Detects the begin and the end of an outage of Redis. Used by the event loop only.

    Outside an outage it subscribes to no events, so it costs nothing.

    Args:
        events: events of the worker or scheduler.
        address: where Redis is, for errors that do not say.
        running: returns the number of running tasks.
        unwritten: returns the number of outcomes that Redis has not confirmed.
        noun: prefix of the lines; empty for a worker.
        node: the cluster node to watch; only this node's services count.
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
        """Services whose last round failed; the outage lasts until they work again."""
        self._fresh: set[tuple[str, str]] = set()
        """Queue and id of attempts that ended after Redis was back: their outcomes were not delayed."""
        self._written = 0
        self._delayed: int | None = None
        """Number of delayed outcomes still to be written; None until Redis is back."""
        self._late_until = 0.0
        self._late: set[str] = set()
        """Services that reported a failure since the last outage was over."""
        self._refused = False
        """Whether a refused login has been logged."""

    def take(self, service: str, error: BaseException) -> bool:
        """Record a service's failure; return whether it is logged as part of an outage or a denied right."""
        if isinstance(error, RedisPermissionError):
            self._denials.take(service, error, self._describe_running())
            return True
        if not isinstance(error, _AWAY):
            return False
        if self._is_late(service):
            return True
        refused = isinstance(error, RedisAuthenticationError)
        if self._began is None:
            self._begin(error)
        elif refused and not self._refused:
            # An error of another kind, which does not pass by itself.
            self._warn(error, "")
        self._refused = self._refused or refused
        self._back_at = self._delayed = None
        if service in _CALL_OFTEN or service == _WRITES_KEPT_OUTCOMES:
            self._failed.add(service)
        return True

    def _is_late(self, service: str) -> bool:
        """Return whether the failure may belong to a round that began in an outage that is over.

        Each service has at most one such round. So this is True only once for a service: its next failure
        counts as a new outage.
        """
        if self._began is not None or time.monotonic() >= self._late_until or service in self._late:
            return False
        self._late.add(service)
        return True

    def _begin(self, error: BaseException) -> None:
        self._began = time.monotonic()
        self._stop_listening = [self._events.subscribe(RoundFinished, self._on_round_finished)]
        if not self._node:
            # The event of an outcome does not name its node.
            self._stop_listening += [
                self._events.subscribe(TaskFinished, self._on_task_finished),
                self._events.subscribe(TaskSettled, self._on_task_settled),
            ]
        self._warn(error, self._describe_running())

    def _describe_running(self) -> str:
        running = self._running()
        return f"; {counted(running, 'task runs', 'tasks run')} on, outcomes are kept" if running else ""

    def _warn(self, error: BaseException, runs_on: str) -> None:
        address = self._node or getattr(error, "address", "") or self._address
        reason = describe_reason(error, address).removeprefix(f"{visible(address)}: ")
        _log.warning("%sRedis at %s is away: %s%s", self._noun, visible(address), reason, runs_on)

    def _on_task_finished(self, event: TaskFinished) -> None:
        if self._back_at is not None:
            self._fresh.add((event.queue, event.task_id))

    def _on_task_settled(self, event: TaskSettled) -> None:
        task = event.queue, event.task_id
        if task in self._fresh:
            self._fresh.discard(task)
            return
        if self._delayed is not None:
            self._delayed -= 1
        if event.written:
            self._written += 1
            self._back_at = self._back_at or time.monotonic()

    def _on_round_finished(self, event: RoundFinished) -> None:
        if event.node != self._node:
            return
        assert self._began is not None  # noqa: S101 - it listens during an outage only
        answered = event.asked_at is not None and event.asked_at >= self._began
        if answered or event.service not in _CALL_OFTEN:
            self._failed.discard(event.service)
        if answered and self._back_at is None:
            self._back_at = time.monotonic()
        if self._back_at is None:
            return
        if self._delayed is None:
            self._delayed = 0 if self._node else self._unwritten() - len(self._fresh)
        if self._delayed <= 0 and not self._failed:
            self._end(self._began, self._back_at)

    def _end(self, began: float, back_at: float) -> None:
        for stop in self._stop_listening:
            stop()
        outcomes = f"; {counted(self._written, 'outcome')} written" if self._written else ""
        subject = f"Redis at {visible(self._node)}" if self._node else "Redis"
        _log.info("%s%s is back after %s%s", self._noun, subject, duration(back_at - began), outcomes)
        self._began = self._back_at = self._delayed = None
        self._written = 0
        self._refused = False
        self._late_until = time.monotonic() + _LATE_SECONDS
        self._late.clear()
        self._fresh.clear()


class OutageLogs:
    """Outage logs of Redis as a whole and of each cluster node; takes the arguments of `OutageLog`."""

    def __init__(self, events: Events, address: str, *counters: Callable[[], int], noun: str = "") -> None:
        self._events = events
        self._address = address
        self._counters = counters
        self._noun = noun
        self._logs: dict[str, OutageLog] = {}

    def take(self, service: str, error: BaseException, node: str = "") -> bool:
        """Record a service's failure for a node; return whether it is logged as part of an outage."""
        if node not in self._logs:
            address = node or self._address
            self._logs[node] = OutageLog(self._events, address, *self._counters, noun=self._noun, node=node)
        return self._logs[node].take(service, error)


def describe_reason(error: BaseException, address: str) -> str:
    """Return why Redis cannot be reached, without its address, which is in the line already."""
    cause: str | None = getattr(error, "cause", None)
    if cause is not None:
        return visible(cause).rstrip(".")
    text = visible(error).rstrip(".")
    prefix = f"Redis at {visible(address)} "
    return f"it {text.removeprefix(prefix)}" if text.startswith(prefix) else text
