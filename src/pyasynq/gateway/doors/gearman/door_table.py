"""State of the Gearman server (door) of one instance, which the dashboard shows."""

from __future__ import annotations

import secrets
import socket
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyasynq.operations import ServiceDoor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from .session import GearmanSession

_AGAIN_SECONDS: Final = 30.0
"""Seconds after which an unchanged state is reported again."""
_ID_BYTES: Final = 8


class DoorTable:
    """Builds the report about a Gearman server when it has changed. Belongs to one event loop.

    Args:
        sessions: open connections of the server.
        clock: returns Unix time.
    """

    def __init__(
        self, sessions: Collection[GearmanSession], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._id = secrets.token_hex(_ID_BYTES)
        self._host = socket.gethostname()
        self._address = ""
        self._opened = datetime.fromtimestamp(0, UTC)
        self._is_open = False
        self._reported: ServiceDoor | None = None
        self._reported_at = 0.0

    def note_opened(self, address: str) -> None:
        """Record that the server listens at an address from now on."""
        self._address, self._is_open = address, True
        self._opened = datetime.fromtimestamp(self._clock(), UTC)

    def note_closed(self) -> None:
        """Record that the server does not listen any more."""
        self._is_open = False

    def take_changed(self) -> list[ServiceDoor]:
        """Return the server's report if it has changed since the last call, or is due to be written again."""
        if not self._address:
            return []
        now, door = self._clock(), self.describe()
        if door == self._reported and self._reported_at > now - _AGAIN_SECONDS:
            return []
        self._reported, self._reported_at = door, now
        return [door]

    def put_back(self, reports: Sequence[ServiceDoor]) -> None:
        """Let the next `take_changed` return the report again, because it could not be stored."""
        if reports:
            self._reported = None

    def describe(self) -> ServiceDoor:
        """Return the report about the server's present state."""
        functions = [set(session.worker.functions) for session in self._sessions]
        workers = sum(bool(names) for names in functions)
        return ServiceDoor(
            self._id,
            "gearman",
            self._address,
            self._host,
            "open" if self._is_open else "closed",
            self._opened,
            workers,
            len(functions) - workers,
            sum(session.worker.running for session in self._sessions),
            Counter(name for names in functions for name in names),
        )
