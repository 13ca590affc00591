"""Free ports for servers that need a given port; no two test processes get the same one."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import random
import socket
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST: Final = "127.0.0.1"
_FIRST: Final = 10_000
_PAST_LAST: Final = 20_000
"""Below the ports that systems give to connections; with the bus of a cluster's node, 10,000 above it."""
_BLOCK: Final = 100


def free_port() -> int:
    """Return a port without a listener."""
    return free_ports(1)[0]


def free_ports(count: int, *, offset: int = 0) -> list[int]:
    """Return this many ports without listeners, also at those that are higher by the offset."""
    chosen: list[int] = []
    for port in _own_ports():
        if len(chosen) == count:
            break
        if all(map(_is_free, {port, port + offset})):
            chosen.append(port)
    return chosen


@cache
def _own_ports() -> Iterator[int]:
    """Return the ports of a block, over and over; its first one is held until this process ends."""
    blocks = range(_FIRST, _PAST_LAST, _BLOCK)
    for start in random.sample(blocks, len(blocks)):
        with contextlib.suppress(OSError):
            atexit.register(socket.create_server((HOST, start)).close)
            return itertools.cycle(range(start + 1, start + _BLOCK))
    raise RuntimeError(f"another process listens at each of the ports {list(blocks)}")


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_server((HOST, port)):
        return True
    return False
