"""Where a chaos run happens: the seam between scenarios and the servers that they break."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import psutil
import redis

from tests.fix_worker import RedisProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.chaos.faketime import MovedClock
    from tests.invariants import RedisClient


class Bed(Protocol):
    """One or more servers of Redis that live as long as a `with` block."""

    @property
    def url(self) -> str:
        """URL and settings for clients and workers."""

    def client(self) -> RedisClient:
        """Return a client that sees all keys, past everything that a scenario puts before Redis."""

    @property
    def processes(self) -> Sequence[psutil.Process]:
        """All servers."""

    def kill_primary(self) -> None:
        """Kill the server that takes writes, of several one of them; with SIGKILL."""


class OneRedis:
    """A single server.

    Args:
        folder: for its data.
        fsync: how it writes its append-only file: `always`, `everysec`, or `off` for none.
        clock: what it takes for its own.
    """

    def __init__(self, folder: Path, *, fsync: str = "off", clock: MovedClock | None = None) -> None:
        persistence = ("--appendonly", "no") if fsync == "off" else ("--appendfsync", fsync)
        environment = None if clock is None else clock.environment
        self._server = RedisProcess(folder, *persistence, environment=environment)
        self.clock = clock
        self.url = self._server.url

    def client(self) -> RedisClient:
        """Return a client of the server."""
        return redis.Redis.from_url(self.url)

    @property
    def processes(self) -> Sequence[psutil.Process]:
        """The server."""
        return [psutil.Process(self._server.pid)]

    def kill_primary(self) -> None:
        """Kill it; `restart` starts it again on its data."""
        self._server.kill()

    def restart(self) -> None:
        """Start it again, and wait until it answers."""
        self._server.start()

    def stop(self) -> None:
        """End it for good."""
        self._server.kill()


@contextmanager
def one_redis(folder: Path, *, fsync: str = "off", clock: MovedClock | None = None) -> Iterator[OneRedis]:
    """Have a single server for the time of a block."""
    bed = OneRedis(folder, fsync=fsync, clock=clock)
    try:
        yield bed
    finally:
        bed.stop()


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process with SIGSTOP, and let it go on after the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
