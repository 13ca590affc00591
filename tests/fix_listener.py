r"""Listeners that are not a Redis server, for timeouts and for errors about addresses.

with Listener(dribble(b"+OK\\r\\n")) as listener:
    client = Client(listener.url)
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    Behaviour = Callable[[socket.socket, threading.Event], None]


class Listener:
    """Listens on a port of the loopback, and treats each connection by a behaviour in a thread of its own.

    Args:
        behave: called with the connection and an event that is set when it should end; with None,
            connections are not accepted, and the kernel drops them once its queue is full.
    """

    def __init__(self, behave: Behaviour | None) -> None:
        self._behave = behave
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._crowd: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=16 if behave else 0)
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.url = f"redis://:s3cr3t@{self.address}/0"

    def __enter__(self) -> Self:
        if self._behave is None:
            self._fill_queue()
        else:
            self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in (self._listener, *self._crowd):
            one.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._treat, connection)

    def _treat(self, connection: socket.socket) -> None:
        assert self._behave is not None
        with connection, contextlib.suppress(OSError):
            self._behave(connection, self._over)

    def _fill_queue(self) -> None:
        # Connections that are not accepted fill the kernel's queue; then connection attempts are dropped.
        while True:
            one = socket.socket()
            one.settimeout(0.2)
            self._crowd.append(one)
            try:
                one.connect(("127.0.0.1", self.port))
            except TimeoutError:
                return


def be_silent(connection: socket.socket, over: threading.Event) -> None:
    """Read everything, and answer nothing."""
    over.wait()
    del connection


def reset(connection: socket.socket, over: threading.Event) -> None:
    """Reset the connection as soon as the client sends anything."""
    del over
    connection.recv(1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def hang_up(connection: socket.socket, over: threading.Event) -> None:
    """Close the connection at once."""
    del connection, over


def say(answer: bytes) -> Behaviour:
    """Return a behaviour: answer the first request with these bytes, and later ones not at all."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        connection.recv(65_536)
        connection.sendall(answer)
        over.wait()

    return behave


def dribble(answer: bytes, pause: float) -> Behaviour:
    """Return a behaviour: send the answer byte by byte, with pauses, without end."""

    def behave(connection: socket.socket, over: threading.Event) -> None:
        while True:
            for byte in answer:
                connection.sendall(bytes([byte]))
                if over.wait(pause):
                    return

    return behave
