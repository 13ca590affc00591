"""The record of a server for dashboards and command lines."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyasynq._engine.logs import version_text
from pyasynq._engine.run.attempt import Phase
from pyasynq._wire.engine_text import encode_engine
from pyasynq._wire.messages import ServerInfo, WorkerInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyasynq._engine.run.attempt import Attempt
    from pyasynq._engine.settings import EngineSettings
    from pyasynq._engine.take.queue_board import QueueBoard
    from pyasynq.config import ServerConfig
    from pyasynq.info import ServerAnswer
    from pyasynq.task_types import ServedTypes

_ENGINE = "pyasynq"


def host_name() -> str:
    """Return this host's name, or Asynq's placeholder if it has none."""
    try:
        return socket.gethostname() or "unknown-host"
    except OSError:
        return "unknown-host"


class ServerRecordBuilder:
    """Builds the records of one server. Safe from any thread; `status` is written by the event loop."""

    def __init__(
        self,
        server_id: str,
        config: ServerConfig,
        board: QueueBoard,
        settings: EngineSettings,
        started: datetime,
        types: ServedTypes,
    ) -> None:
        self.host = host_name()
        self.pid = os.getpid()
        self.server_id = server_id
        self.status = "new"
        self.answer: ServerAnswer | None = None
        """The last request of an operator that was answered; written by the loop, read by the heartbeat."""
        self.blocked_seconds: Callable[[], float] = float
        """Function that returns how many seconds the loop has been blocked; set before the first record."""
        self.team = ""
        """Name of the team that runs the server; set before the first record."""
        self.version = ""
        """Version of the application; set before the first record."""
        self._config = config
        self._board = board
        self._settings = settings
        self._started = started
        self._types = types
        self._engine_version = version_text()

    def write(self, attempts: Iterable[Attempt]) -> tuple[ServerInfo, list[WorkerInfo]]:
        """Return the server's record and those of its running attempts, at most 1 MB of them."""
        # One read: the loop replaces the settings when queues are added or removed.
        queues = self._board.settings
        running = [attempt for attempt in attempts if attempt.phase is Phase.RUNNING]
        info = ServerInfo(
            host=self.host,
            pid=self.pid,
            server_id=self.server_id,
            concurrency=self._config.concurrency,
            queues={name: queue.priority for name, queue in queues.items()},
            strict_priority=self._config.strict_priority,
            status=self.status,
            start_time=self._started,
            active_worker_count=len(running),
            engine=encode_engine(
                _ENGINE,
                {name: queue.limits for name, queue in queues.items()},
                self._types,
                self.answer,
                self.blocked_seconds(),
                {"team": self.team, "version": self.version, "engine_version": self._engine_version},
            ),
        )
        workers = []
        size = len(info.encode())
        for attempt in running:
            worker = self._worker(attempt)
            size += len(worker.encode()) + len(attempt.id)
            if size > self._settings.server_record_bytes:
                break
            workers.append(worker)
        return info, workers

    def _worker(self, attempt: Attempt) -> WorkerInfo:
        message = attempt.message
        deadline = attempt.deadline_at
        return WorkerInfo(
            host=self.host,
            pid=self.pid,
            server_id=self.server_id,
            task_id=attempt.id,
            task_type=message.type,
            task_payload=message.payload[: self._settings.worker_payload_bytes],
            queue=attempt.queue,
            start_time=datetime.fromtimestamp(attempt.started_at, UTC),
            deadline=None if deadline is None else datetime.fromtimestamp(deadline, UTC),
        )
