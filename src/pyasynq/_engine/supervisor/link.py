"""A worker's end of the socket that ties it to its supervisor."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from pyasynq._background.time_limits import shutdown_limit
from pyasynq._engine.server_record import host_name
from pyasynq._engine.supervisor.child_facts import ChildFacts
from pyasynq.events import (
    QueueChanged,
    QueuesAsked,
    ServerStarting,
    ServerStateChanged,
    SignOfLife,
    TaskStarted,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.config import ServerConfig
    from pyasynq.events import Events

RETIRE: Final = b"retire"
"""Take no more tasks, and end when those that run have ended."""
STOP: Final = b"stop"
"""Take no more tasks."""
WORKER_VARIABLE: Final = "PYASYNQ_WORKER_NUMBER"
"""Environment variable in which a supervisor tells a worker the number of its place, from 1."""
_BEAT: Final = b'{"beat": true}\n'
_PULSE: Final = b'{"pulse": true}\n'
_PULSE_SECONDS: Final = 1.0
_ASK_AGAIN: Final = 0.5
_EXIT_ORPHANED: Final = 1


class Steerable(Protocol):
    """What the supervisor's words do to a server; all of it is safe from any thread."""

    config: ServerConfig
    events: Events

    def request_shutdown(self, *, when_idle: bool = False) -> None:
        """Shut down, at once or when nothing runs any more."""

    def request_stop(self) -> None:
        """Take no more tasks."""


class SupervisorLink:
    """Tells the supervisor how the worker is, and obeys it; without a supervisor the worker shuts down.

    It is made before the user's modules are imported. A thread of its own reads, so the end of the
    supervisor is noticed whatever the event loop does: the kernel closes its end of the socket then.

    Args:
        descriptor: the socket, inherited from the supervisor.
    """

    def __init__(self, descriptor: int) -> None:
        # What handlers start must not keep it.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.Lock()
        self._server: Steerable | None = None
        self._orphaned = False
        self._started = 0
        self._asked: QueuesAsked | None = None
        """What the supervisor was told of the queues last."""
        self._sending = threading.Lock()
        threading.Thread(target=self._listen, name="pyasynq-supervisor-link", daemon=True).start()
        threading.Thread(target=self._pulse, name="pyasynq-supervisor-pulse", daemon=True).start()

    def attach(self, server: Steerable, url: str, crash_limits: Mapping[str, int]) -> None:
        """Report this server's life from now on.

        Args:
            server: it has not been started yet.
            url: where Redis is.
            crash_limits: of the task types that have one of their own.
        """
        self._url, self._crash_limits = url, dict(crash_limits)
        self._tell(patience=shutdown_limit(server.config))
        events = server.events
        events.subscribe(ServerStarting, self._starting)
        events.subscribe(ServerStateChanged, lambda event: self._tell(state=event.state))
        events.subscribe(SignOfLife, self._beat)
        events.subscribe(QueuesAsked, self._queues_asked)
        events.subscribe(QueueChanged, self._queue_changed)
        if server.config.max_tasks is not None:
            events.subscribe(TaskStarted, self._task_started)
        with self._lock:
            if self._orphaned:
                os._exit(_EXIT_ORPHANED)
            self._server = server

    def _starting(self, event: ServerStarting) -> None:
        assert self._server is not None  # noqa: S101 - attach has set it
        facts = ChildFacts.of(
            event.server_id, host_name(), self._url, self._server.config, self._crash_limits
        )
        self._tell(facts=facts.to_fields())

    def _task_started(self, _: TaskStarted) -> None:
        self._started += 1
        assert self._server is not None  # noqa: S101 - attach has set it
        if self._started == self._server.config.max_tasks:
            # The follower starts while the last tasks run.
            self._tell(leaving=True)

    def _queue_changed(self, event: QueueChanged) -> None:
        if event.change in ("added", "ended"):
            self._tell(queue=event.queue, has_tasks=event.change == "added")

    def _queues_asked(self, event: QueuesAsked) -> None:
        if event != self._asked:
            self._asked = event
            self._tell(queues=event.queues, unreachable=event.unreachable)

    def _beat(self, _: SignOfLife) -> None:
        # A supervisor that does not listen must not hold up the event loop: this one may get lost.
        self._send_or_drop(_BEAT)

    def _pulse(self) -> None:
        """Report once a second that threads get the interpreter's lock, even if Redis or the loop hangs."""
        while not self._orphaned:
            self._send_or_drop(_PULSE)
            time.sleep(_PULSE_SECONDS)

    def _send_or_drop(self, message: bytes) -> None:
        if self._sending.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    self._socket.send(message, socket.MSG_DONTWAIT)
            finally:
                self._sending.release()

    def _tell(self, **message: object) -> None:
        try:
            with self._sending:
                self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            # The supervisor has gone; the thread that reads knows it too.
            return

    def _listen(self) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    self._obey(line.strip())
        except OSError:
            pass  # a broken socket is the end of the supervisor as well
        with self._lock:
            self._orphaned = True
            server = self._server
        if server is None:
            # Modules are being imported: no task has been taken.
            os._exit(_EXIT_ORPHANED)
        # Between being made and being run a server cannot be told; and the process may end meanwhile.
        while True:
            server.request_shutdown()
            time.sleep(_ASK_AGAIN)

    def _obey(self, word: bytes) -> None:
        if self._server is None:
            return  # only children that have reported are spoken to
        if word == RETIRE:
            self._server.request_shutdown(when_idle=True)
        elif word == STOP:
            self._server.request_stop()
