"""A TCP proxy in front of a server, which cuts, holds and refuses connections at chosen points.

    with Proxy(redis_url) as proxy:
        client = Client(proxy.url)
        proxy.cut(Cut.BEFORE_REPLY, containing=b"EVALSHA")   # Redis runs it, the answer is lost

Each connection has two threads, one for each direction. The proxy counts its actions, so that tests can wait
for them.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pytest

from pyasynq._redis.url import parse_redis_url
from tests.cluster_client import server_url_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

_PIECE = 65_536
_PATIENCE = 10.0


class Cut(enum.Enum):
    """Where a connection is cut."""

    BEFORE_REQUEST = "before request"
    """Redis does not see the request."""
    BEFORE_REPLY = "before reply"
    """Redis has answered; the client gets nothing of it."""
    IN_REPLY = "in reply"
    """The client gets the first half of what Redis sent."""
    AFTER_REPLY = "after reply"
    """The client gets what Redis sent, then the end of the stream."""


@dataclass
class _Order:
    cut: Cut
    containing: bytes
    times: int


class _Link:
    """A client's connection, and the proxy's connection to the server for this client."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.at_reply: Cut | None = None

    def close(self) -> None:
        for end in (self.client, self.server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Proxy that forwards bytes between clients on a loopback port and the server of a URL."""

    def __init__(self, url: str) -> None:
        self._target = parse_redis_url(server_url_of(url))
        self._changed = threading.Condition()
        self._orders: list[_Order] = []
        self._hidden: dict[bytes, bytes] = {}
        self._links: list[_Link] = []
        self._threads: list[threading.Thread] = []
        self._open = threading.Event()
        self._open.set()
        self._pause: float | None = None
        self._over = threading.Event()
        self._refusing = False
        self._refusals_left = 0
        self._after_refusals: Callable[[], None] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        """Number of connections that were made through the proxy."""
        self.cuts = 0
        """Number of connections that were cut on request."""

    @property
    def url(self) -> str:
        """The URL of the server by way of the proxy."""
        target = self._target
        login = f"{target.username or ''}:{target.password}@" if target.password else ""
        return f"redis://{login}127.0.0.1:{self.port}/{target.database}"

    def cut(self, cut: Cut, *, containing: bytes = b"", times: int = 1) -> None:
        """Cut the next connections over which a request with these bytes is sent."""
        with self._changed:
            self._orders.append(_Order(cut, containing, times))

    def cut_all(self) -> None:
        """Cut every connection that there is."""
        with self._changed:
            for link in self._links:
                link.close()

    def hold(self) -> None:
        """Hold back all bytes from now on, in both directions, as a broken network does."""
        self._open.clear()

    def release(self) -> None:
        """Forward the bytes that were held back."""
        self._open.set()

    def dribble(self, pause: float) -> None:
        """Forward replies from now on byte by byte, with pauses, until the proxy ends."""
        self._pause = pause

    def hide(self, *commands: str) -> None:
        """Hide these commands from the server, by changing the last letter of their names."""
        for command in commands:
            head = f"${len(command)}\r\n{command}".encode()
            self._hidden[head] = head[:-1] + b"_"

    def refuse(self, refusing: bool = True) -> None:
        """Close new connections at once, or accept them again."""
        self._refusing = refusing

    def on_refusal(self, times: int, action: Callable[[], None]) -> None:
        """Call a function when this many connections have been refused from now on."""
        self._refusals_left, self._after_refusals = times, action

    def wait(self, condition: Callable[[Proxy], bool]) -> None:
        """Wait until the counts fulfil a condition; fail after ten seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self), _PATIENCE):
                pytest.fail(f"the proxy saw {self.connections} connections and made {self.cuts} cuts")

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._refusing = True
        self._over.set()
        self._open.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self.cut_all()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _start(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                self._refusals_left -= 1
                if self._refusals_left == 0 and self._after_refusals is not None:
                    self._after_refusals()
                continue
            try:
                link = _Link(client, self._connect())
            except OSError:
                client.close()
                continue
            with self._changed:
                self._links.append(link)
                self.connections += 1
                self._changed.notify_all()
            self._start(self._serve, link)

    def _connect(self) -> socket.socket:
        if self._target.path is None:
            return socket.create_connection((self._target.host, self._target.port))
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            server.connect(self._target.path)
        except OSError:
            server.close()
            raise
        return server

    def _serve(self, link: _Link) -> None:
        replies = threading.Thread(target=self._pass_replies, args=(link,), daemon=True)
        replies.start()
        self._pass_requests(link)
        replies.join()
        with self._changed:
            self._links.remove(link)
        link.client.close()
        link.server.close()

    def _pass_requests(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.client.recv(_PIECE):
                self._open.wait()
                cut = self._order_for(data)
                for command, unknown in self._hidden.items():
                    data = data.replace(command, unknown)
                if cut is Cut.BEFORE_REQUEST:
                    self._count_cut()
                    break
                link.at_reply = cut or link.at_reply
                link.server.sendall(data)
        link.close()

    def _pass_replies(self, link: _Link) -> None:
        with contextlib.suppress(OSError):
            while data := link.server.recv(_PIECE):
                self._open.wait()
                if link.at_reply is None:
                    self._pass_reply(link, data)
                    continue
                if link.at_reply is Cut.IN_REPLY:
                    link.client.sendall(data[: len(data) // 2])
                elif link.at_reply is Cut.AFTER_REPLY:
                    link.client.sendall(data)
                self._count_cut()
                break
        link.close()

    def _pass_reply(self, link: _Link, data: bytes) -> None:
        if self._pause is None:
            link.client.sendall(data)
            return
        for byte in data:
            link.client.sendall(bytes([byte]))
            if self._over.wait(self._pause):
                return

    def _order_for(self, data: bytes) -> Cut | None:
        with self._changed:
            for order in self._orders:
                if order.containing in data:
                    order.times -= 1
                    if not order.times:
                        self._orders.remove(order)
                    return order.cut
        return None

    def _count_cut(self) -> None:
        with self._changed:
            self.cuts += 1
            self._changed.notify_all()


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    """A proxy in front of the empty server under test."""
    with Proxy(redis_url) as proxy:
        yield proxy
