"""A proxy that cuts its connections after an exact number of bytes, of requests or of replies."""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING

from tests.fix_proxy import Proxy

if TYPE_CHECKING:
    import socket

    from tests.fix_proxy import _Link

_PIECE = 65_536


class Direction(enum.Enum):
    """Which bytes count."""

    REQUESTS = "requests"
    REPLIES = "replies"


class ByteProxy(Proxy):
    """Proxy that counts bytes, and cuts all connections after an exact number.

    Attributes:
        passed: how many bytes have gone in each direction since the last call of `count`.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.passed = dict.fromkeys(Direction, 0)
        self._limits: dict[Direction, int | None] = dict.fromkeys(Direction)

    def count(self) -> None:
        """Restart the count at 0, and cut nothing."""
        with self._changed:
            self.passed = dict.fromkeys(Direction, 0)
            self._limits = dict.fromkeys(Direction)

    def cut_after(self, direction: Direction, number: int) -> None:
        """Restart the count, and cut once after this many bytes in a direction; 0 is before the next byte."""
        self.count()
        self._limits[direction] = number

    def _pass_requests(self, link: _Link) -> None:
        self._pass(link, link.client, link.server, Direction.REQUESTS)

    def _pass_replies(self, link: _Link) -> None:
        self._pass(link, link.server, link.client, Direction.REPLIES)

    def _pass(self, link: _Link, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_PIECE):
                with self._changed:
                    limit = self._limits[direction]
                    left = None if limit is None else limit - self.passed[direction]
                    # The last byte too is passed on before the cut.
                    is_cut = left is not None and left <= len(data)
                    if is_cut:
                        data, self._limits[direction] = data[:left], None
                        self.cuts += 1
                    self.passed[direction] += len(data)
                sink.sendall(data)
                if is_cut:
                    break
        link.close()
