"""Asynq's own Prometheus collector, scraped over HTTP: runs the program in `collector/`."""

from __future__ import annotations

import http.client
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

SOURCE = Path(__file__).parent / "collector"


class Collector:
    """A running exporter; use it as a context manager."""

    def __init__(self, program: Path, redis_url: str) -> None:
        # Asynq's word for a socket.
        url = redis_url.replace("unix://", "redis-socket://", 1)
        self._process = subprocess.Popen(
            [program, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._address = self._process.stdout.readline().strip()
        assert self._address, "the collector did not start"

    def scrape(self) -> str:
        """Return an exposition in Prometheus' text format."""
        connection = http.client.HTTPConnection(self._address, timeout=30)
        try:
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            body = response.read().decode()
        finally:
            connection.close()
        assert 200 == response.status, body
        return body

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
