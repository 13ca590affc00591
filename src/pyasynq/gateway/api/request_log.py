"""Access log and metrics of requests, by route pattern, because paths may contain lease tokens."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._visible_text import visible
from pyasynq.gateway.leases.acts import ATTEMPT_ACTS
from pyasynq.web.api.paths import raw_path

from .table import SERVICE_ROUTES

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from pyasynq.gateway.service_metrics import ServiceMetrics

_log = logging.getLogger("pyasynq.access")

NOTE: Final = "pyasynq.request"
_OTHER: Final = "other"
_DASHBOARD: Final = "dashboard"
_ROOT: Final = re.compile(r"/v1(/.*)?")
_SEGMENT: Final = re.compile(r"\{\w+\}")
_LEASE_PATHS: Final = (
    "/v1/leases",
    "/v1/attempts:batch",
    *(f"/v1/attempts/{{token}}:{act}" for act in ATTEMPT_ACTS),
)
_OTHER_PATHS: Final = ("/live", "/ready", "/metrics", "/openapi.json")
_QUIET: Final = frozenset({"/live", "/ready", "/metrics", _DASHBOARD})
"""Frequent routes that carry little information, whose requests are logged at the debug level."""
_HUNG_UP: Final = 499
"""Status of a request whose client disconnected before the answer, as nginx logs it."""
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@dataclass(slots=True)
class RequestNote:
    """Facts about a request that become known while it is answered.

    Attributes:
        key_id: id of its API key; empty before it is known.
    """

    key_id: str = ""


class RequestLog:
    """Logs and counts the requests of an application.

    Args:
        app: application that answers the requests.
        metrics: counts the requests; None to log them only.
    """

    def __init__(self, app: ASGIApp, metrics: ServiceMetrics | None) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer a request; then log and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        note = RequestNote()
        status, size = _HUNG_UP, 0

        async def send_noted(message: Message) -> None:
            nonlocal status, size
            await send(message)
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))

        try:
            await self._app({**scope, NOTE: note}, receive, send_noted)
        finally:
            self._note(scope, status, size, time.perf_counter() - began, note)

    def _note(self, scope: Scope, status: int, size: int, seconds: float, note: RequestNote) -> None:
        route = find_pattern(raw_path(scope))
        method = scope["method"] if scope["method"] in _METHODS else _OTHER
        if self._metrics is not None:
            self._metrics.note_request(route, method, status, seconds)
        level = logging.DEBUG if route in _QUIET else logging.INFO
        if not _log.isEnabledFor(level):
            return
        milliseconds = round(seconds * 1000, 1)
        fields = {"method": method, "route": route, "status": status, "milliseconds": milliseconds}
        client = scope["client"][0] if scope.get("client") else ""
        fields |= {"bytes": size, "key": note.key_id, "client": client}
        _log.log(
            level,
            "%s %s %d in %.1f ms, %d bytes, key %s, from %s",
            *(method, route, status, milliseconds, size, visible(note.key_id) or "none", visible(client)),
            extra=fields,
        )


def find_pattern(path: str) -> str:
    """Return the route pattern of a path, such as `/v1/attempts/{token}:extend`.

    An unknown path below `/v1` is `other`; any other path is `dashboard`.
    """
    if path in _PATHS:
        return path
    if (found := _ANY_PATH.fullmatch(path)) and found.lastindex is not None:
        return _PATHS[found.lastindex - 1]
    return _OTHER if _ROOT.fullmatch(path) else _DASHBOARD


def _compile(path: str) -> str:
    """Return the regular expression of a path pattern, as one group."""
    return f"({'[^/]+'.join(map(re.escape, _SEGMENT.split(path)))})"


# A name in a path may contain a colon. So paths that end in an act, such as `:extend`, come first.
_PATHS: Final = tuple(
    sorted(
        dict.fromkeys((*(route.path for route in SERVICE_ROUTES), *_LEASE_PATHS, *_OTHER_PATHS)),
        key=lambda one: ":" not in one,
    )
)
_ANY_PATH: Final = re.compile("|".join(map(_compile, _PATHS)))
