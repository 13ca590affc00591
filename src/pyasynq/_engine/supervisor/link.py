"""Link of a worker to its supervisor: its end of the socket."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from pyasynq._background.time_limits import shutdown_limit
from pyasynq._engine.server_record import host_name
from pyasynq._engine.supervisor.child_facts import ChildFacts
from pyasynq._engine.supervisor.death_notes import DIED, decode_death
from pyasynq.events import (
    QueueChanged,
    QueuesAsked,
    ServerAsked,
    ServerEnded,
    ServerStarting,
    ServerStateChanged,
    SignOfLife,
    TaskStarted,
)
from pyasynq.info import ServerAction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyasynq._engine.supervisor.death_notes import DeathEvent
    from pyasynq.config import ServerConfig
    from pyasynq.events import Events

RETIRE: Final = b"retire"
"""Command: stop taking tasks, and exit when the running tasks have ended."""
STOP: Final = b"stop"
"""Command: stop taking tasks."""
MEASURE: Final = b"measure"
"""Command: send the metrics that were counted since the last time."""
WORKER_VARIABLE: Final = "PYASYNQ_WORKER_NUMBER"
"""Environment variable with the worker's position in the fleet, from 1."""
_BEAT: Final = b'{"beat": true}\n'
_PULSE: Final = b'{"pulse": true}\n'
_PULSE_SECONDS: Final = 1.0
_ASK_AGAIN: Final = 0.5
_EXIT_ORPHANED: Final = 1
_ROWS_AT_ONCE: Final = 200
"""Maximum number of rows of metrics in one message, so that it fits into the buffer of the socket."""

ExemplarRow: TypeAlias = "tuple[float, float, str, str]"
"""Exemplar of a histogram, for JSON: value, Unix time, trace id and span id."""
MetricRow: TypeAlias = "tuple[str, list[str], float | list[float] | dict[str, ExemplarRow]]"
"""One change of a metric, for JSON: name, label values, and a value.

The value of a counter or gauge is a number. The value of a histogram is a list: its bucket counts, then the
sum of its observations. A new exemplar is sent as a dict with the key `exemplar`.
"""


class Steerable(Protocol):
    """Server that a supervisor controls; safe from any thread."""

    config: ServerConfig
    events: Events

    def request_shutdown(self, *, when_idle: bool = False) -> None:
        """Shut down, at once or when nothing runs any more."""

    def request_stop(self) -> None:
        """Stop taking tasks."""

    def request_hooks(self, event: DeathEvent) -> None:
        """Call the hooks for a task of a dead worker."""


class SupervisorLink:
    """Reports the worker's state to the supervisor, and obeys its commands.

    If the supervisor dies, the worker shuts down.

    It is made before the user's modules are imported. A thread reads, so it notices the end of the supervisor
    even if the event loop is blocked: the kernel closes the other end of the socket.

    Args:
        descriptor: the socket, inherited from the supervisor.
    """

    def __init__(self, descriptor: int) -> None:
        # Processes that handlers start must not inherit it.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.Lock()
        self._server: Steerable | None = None
        self._orphaned = False
        self._started = 0
        self._asked: QueuesAsked | None = None
        """The last report on queues to the supervisor."""
        self._sending = threading.Lock()
        self._take_metrics: Callable[[], Sequence[MetricRow]] | None = None
        threading.Thread(target=self._listen, name="pyasynq-supervisor-link", daemon=True).start()
        threading.Thread(target=self._pulse, name="pyasynq-supervisor-pulse", daemon=True).start()

    def attach(
        self,
        server: Steerable,
        url: str,
        crash_limits: Mapping[str, int],
        take_metrics: Callable[[], Sequence[MetricRow]] | None = None,
    ) -> None:
        """Report this server's state from now on.

        Args:
            server: it has not been started yet.
            url: URL of Redis.
            crash_limits: crash limits of the task types with their own limit.
            take_metrics: returns what changed since its last call, from any thread; the supervisor asks for
                it each second if it answers `/metrics`.
        """
        self._take_metrics = take_metrics
        self._url, self._crash_limits = url, dict(crash_limits)
        self._send_message(patience=shutdown_limit(server.config))
        events = server.events
        events.subscribe(ServerStarting, self._on_starting)
        events.subscribe(ServerStateChanged, lambda event: self._send_message(state=event.state))
        events.subscribe(SignOfLife, self._beat)
        events.subscribe(QueuesAsked, self._on_queues_asked)
        events.subscribe(QueueChanged, self._on_queue_changed)
        events.subscribe(ServerAsked, self._on_operator_request)
        if take_metrics is not None:
            events.subscribe(ServerEnded, lambda _: self._send_metrics())
        if server.config.max_tasks is not None:
            events.subscribe(TaskStarted, self._on_task_started)
        with self._lock:
            if self._orphaned:
                os._exit(_EXIT_ORPHANED)
            self._server = server

    def _on_starting(self, event: ServerStarting) -> None:
        assert self._server is not None  # noqa: S101 - attach has set it
        facts = ChildFacts.of(
            event.server_id, host_name(), self._url, self._server.config, self._crash_limits
        )
        self._send_message(facts=facts.to_fields())

    def _on_task_started(self, _: TaskStarted) -> None:
        self._started += 1
        assert self._server is not None  # noqa: S101 - attach has set it
        if self._started == self._server.config.max_tasks:
            # The follower starts while the last tasks run.
            self._send_message(leaving=True)

    def _on_queue_changed(self, event: QueueChanged) -> None:
        if event.change in ("added", "ended"):
            self._send_message(queue=event.queue, has_tasks=event.change == "added")

    def _on_operator_request(self, event: ServerAsked) -> None:
        if event.action == ServerAction.STOP and event.obeyed:
            self._send_message(stop=True)

    def _on_queues_asked(self, event: QueuesAsked) -> None:
        if event != self._asked:
            self._asked = event
            self._send_message(queues=event.queues, unreachable=event.unreachable)

    def _beat(self, _: SignOfLife) -> None:
        # A supervisor that does not read must not delay the event loop, so this message may be dropped.
        self._send_or_drop(_BEAT)

    def _pulse(self) -> None:
        """Send a pulse each second: it shows that threads get the GIL, even if Redis or the loop hangs."""
        while not self._orphaned:
            self._send_or_drop(_PULSE)
            time.sleep(_PULSE_SECONDS)

    def _send_metrics(self) -> None:
        """Send the metrics that were counted since the last call.

        Sending may block. So it is done when the supervisor has asked, and therefore reads, and at the end.
        """
        if self._take_metrics is None:
            return
        rows = self._take_metrics()
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            self._send_message(metrics=rows[first : first + _ROWS_AT_ONCE])

    def _send_or_drop(self, message: bytes) -> None:
        if self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    self._socket.send(message, socket.MSG_DONTWAIT)
            finally:
                self._sending.release()

    def _send_message(self, **message: object) -> None:
        try:
            with self._sending:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            # The supervisor has ended; the thread that reads notices it too.
            return

    def _listen(self) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    self._obey(line.strip())
        except OSError:
            pass  # a broken socket also means the end of the supervisor
        with self._lock:
            self._orphaned = True
            server = self._server
        if server is None:
            # Modules are being imported: no task has been taken.
            os._exit(_EXIT_ORPHANED)
        # Repeated, because a server ignores the request between its construction and its start.
        while True:
            server.request_shutdown()
            time.sleep(_ASK_AGAIN)

    def _obey(self, word: bytes) -> None:
        if self._server is None:
            return  # commands are sent only to children that have reported
        if word == RETIRE:
            self._server.request_shutdown(when_idle=True)
        elif word == STOP:
            self._server.request_stop()
        elif word == MEASURE:
            self._send_metrics()
        elif word.startswith(DIED):
            self._server.request_hooks(decode_death(word))
