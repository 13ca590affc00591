"""A proxy whose replies arrive late, as over a very long line: none waits for the delay of another."""

from __future__ import annotations

import contextlib
import select
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from tests.fix_proxy import Proxy

if TYPE_CHECKING:
    from tests.fix_proxy import _Link

_PIECE: Final = 65_536


class SlowProxy(Proxy):
    """A proxy that keeps each reply for `latency` seconds. Orders to cut connections are not for this one."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.latency = 0.0
        """Bytes per second for data that arrives from now on."""

    def _pass_replies(self, link: _Link) -> None:
        late: deque[tuple[float, bytes]] = deque()
        with contextlib.suppress(OSError, ValueError):
            while True:
                rest = max(0.0, late[0][0] - time.monotonic()) if late else None
                if select.select([link.server], [], [], rest)[0]:
                    data = link.server.recv(_PIECE)
                    if not data:
                        break
                    late.append((time.monotonic() + self.latency, data))
                while late and late[0][0] <= time.monotonic():
                    link.client.sendall(late.popleft()[1])
        link.close()
