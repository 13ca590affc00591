"""The real asynqmon, asked over HTTP: runs the program in `asynqmon/` and reads its JSON."""

from __future__ import annotations

import http.client
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote

if TYPE_CHECKING:
    from types import TracebackType

SOURCE = Path(__file__).parent / "asynqmon"
_PATIENCE = 30.0


class Reply(NamedTuple):
    """What asynqmon answered; None where there was no body."""

    status: int
    body: Any


class Asynqmon:
    """A running asynqmon; use it as a context manager."""

    def __init__(self, program: Path, redis_url: str) -> None:
        # Asynq's word for a socket.
        url = redis_url.replace("unix://", "redis-socket://", 1)
        self._process = subprocess.Popen(
            [program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._address = self._process.stdout.readline().strip()
        assert self._address, "asynqmon did not start"

    def get(self, path: str) -> Any:
        """Return what is at a path under `/api/`, whose parts need no quoting."""
        reply = self.ask("GET", path)
        assert 200 == reply.status, reply
        return reply.body

    def ask(self, method: str, path: str) -> Reply:
        """Make a request."""
        status, body = self.ask_raw(method, path)
        return Reply(status, json.loads(body) if body.startswith(("{", "[")) else body or None)

    def ask_raw(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Make a request; return status and text of the answer."""
        place, _, query = path.partition("?")
        address = quote(f"/api/{place}", safe="/:") + (f"?{query}" if query else "")
        connection = http.client.HTTPConnection(self._address, timeout=_PATIENCE)
        try:
            connection.request(method, address, body)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
