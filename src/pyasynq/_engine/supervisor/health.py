"""Answering probes: over HTTP at a port, and by the age of a file."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from pyasynq._engine.supervisor.vitals import Answer, Vitals, answer, is_live
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

_PATIENCE: Final = 5.0
_HEAD_SECONDS: Final = 1.0
"""How long a request may take to come."""
_MOST_SILENT: Final = 64
"""How many connections may wait for their request at once; the oldest is closed for the next one."""
_LONGEST_HEAD: Final = 8_192
_LOOK_EVERY: Final = 1.0


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Where probes are answered: at `port` of the address `host`, and by the age of the file `path`."""

    port: int | None = None
    host: str = "0.0.0.0"  # noqa: S104 - probes of containers come from outside of them
    path: str | None = None


class Health:
    """Answers probes from a thread of its own, from the beginning of a `with` block to its end.

    So a blocked event loop is reported as such, and does not make the probe itself time out.

    Args:
        settings: where.
        workers: returns the signs of life of all workers there are; called from that thread.

    Raises:
        ConfigurationError: on entering, when the port cannot be had or the file cannot be written.
    """

    def __init__(self, settings: HealthSettings, workers: Callable[[], Sequence[Vitals]]) -> None:
        self._settings = settings
        self._workers = workers
        self._file = None if settings.path is None else Path(settings.path)
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """Connections whose request has not come, the oldest first."""

    def __enter__(self) -> Self:
        """Begin to answer."""
        settings = self._settings
        if settings.port is None and self._file is None:
            return self
        if settings.port is not None:
            self._socket = _listen(settings.host, settings.port)
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
        """The port that is listened at; the system chooses it when 0 was asked for."""
        return None if self._socket is None else int(self._socket.getsockname()[1])

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        server = None
        if self._socket is not None:
            server = await asyncio.start_server(self._connected, sock=self._socket, limit=_LONGEST_HEAD)
        started.set()
        while not self._ended.is_set():
            self._touch()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), _LOOK_EVERY)
        if server is not None:
            server.close()

    def _touch(self) -> None:
        if self._file is not None and is_live(self._workers(), time.monotonic()):
            # A full disk shows by the age of the file.
            with contextlib.suppress(OSError):
                self._file.touch()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._silent) >= _MOST_SILENT:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        self._silent[writer] = None
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            self._silent.pop(writer, None)
            writer.write(self._respond(head))
            async with asyncio.timeout(_PATIENCE):
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return  # who asks so is not answered
        finally:
            self._silent.pop(writer, None)
            writer.close()

    def _respond(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            told = Answer(HTTPStatus.METHOD_NOT_ALLOWED, b'{"error": "GET and HEAD are answered"}\n')
        else:
            told = answer(path, self._workers(), time.monotonic())
        lines = (
            f"HTTP/1.1 {told.status} {HTTPStatus(told.status).phrase}",
            "Content-Type: application/json",
            f"Content-Length: {len(told.body)}",
            "Cache-Control: no-store",
            "Connection: close",
            "\r\n",
        )
        return "\r\n".join(lines).encode() + (b"" if method == "HEAD" else told.body)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(f"probes cannot be answered at {host} port {port}: {error}") from None
