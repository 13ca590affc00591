"""Health: answers liveness and readiness probes over HTTP at a port, and by the age of a file."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pyasynq._background.plain_http import Answer, PlainHttp
from pyasynq._engine.supervisor.vitals import Vitals, answer, is_live
from pyasynq._listener import open_listener
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from pyasynq._background.plain_http import Request

METRICS_PATH: Final = "/metrics"
_PATIENCE: Final = 5.0
"""Seconds that the end waits for the thread."""
_LOOK_EVERY: Final = 1.0


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Settings of probes: the `port` at the address `host`, and the file `path`."""

    port: int | None = None
    host: str = "0.0.0.0"  # noqa: S104 - probes come from outside of the container
    path: str | None = None


class Health:
    """Answers probes from a thread, from the start of a `with` block to its end.

    A blocked event loop is thus reported, and does not make the probe itself time out.

    Args:
        settings: port and file.
        workers: function that returns the signs of life of all workers; called from the thread.
        metrics: function that takes the header `Accept` and returns content type and body for `/metrics`;
            called from the thread. Without it there is no such path.

    Raises:
        ConfigurationError: on entering, if the port cannot be opened or the file cannot be written.
    """

    def __init__(
        self,
        settings: HealthSettings,
        workers: Callable[[], Sequence[Vitals]],
        metrics: Callable[[str], tuple[str, bytes]] | None = None,
    ) -> None:
        self._settings = settings
        self._workers = workers
        self._metrics = metrics
        self._file = None if settings.path is None else Path(settings.path)
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start to answer probes."""
        settings = self._settings
        if settings.port is None and self._file is None:
            return self
        if settings.port is not None:
            self._socket = _open_port(settings.host, settings.port)
        if self._file is not None:
            try:
                self._file.touch()
            except OSError as error:
                if self._socket is not None:
                    self._socket.close()
                raise ConfigurationError(f"the health file {self._file} cannot be written: {error}") from None
        started = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="pyasynq-health", daemon=True
        )
        self._thread.start()
        started.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop answering, and remove the file."""
        if self._thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_PATIENCE)
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.unlink()

    @property
    def port(self) -> int | None:
        """The open port; the system chooses it for port 0."""
        return None if self._socket is None else int(self._socket.getsockname()[1])

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        server = None
        if self._socket is not None:
            server = await PlainHttp(self._respond).start(self._socket)
        started.set()
        while not self._ended.is_set():
            self._touch()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _LOOK_EVERY)
        if server is not None:
            server.close()

    def _touch(self) -> None:
        if self._file is not None and is_live(self._workers(), time.monotonic()):
            # On a full disk the file gets too old, and probes fail.
            with contextlib.suppress(OSError):
                self._file.touch()

    def _respond(self, request: Request) -> Answer:
        if request.path == METRICS_PATH and self._metrics is not None:
            content_type, body = self._metrics(request.headers.get("accept", ""))
            return Answer(HTTPStatus.OK, body, content_type)
        return answer(request.path, self._workers(), time.monotonic())


def _open_port(host: str, port: int) -> socket.socket:
    try:
        return open_listener(host, port)
    except ConfigurationError as error:
        raise ConfigurationError(f"health port: {error}") from None
