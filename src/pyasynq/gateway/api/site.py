"""The application of one address: the API for programs, and the dashboard for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.websockets import WebSocketClose

from pyasynq.gateway.waits import WaitEndedError, Waits
from pyasynq.web.api.problem import ProblemError
from pyasynq.web.auth.origin import SAFE_METHODS
from pyasynq.web.locations import route_path

from .call import answer_json
from .request_log import RequestLog

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send

    from pyasynq.web import Dashboard

    from .service import TaskService

PROBES: Final = frozenset({"/live", "/ready"})
_OF_API: Final = PROBES | {"/v1", "/metrics", "/openapi.json"}


class ServiceSite:
    """API and dashboard as one ASGI application.

    The API answers `/v1` and the probes, the dashboard answers all other paths.

    Args:
        api: None to serve people alone.
        dashboard: None to serve programs alone.
        serves_api: whether the API serves programs. If not, it only answers probes and runs tasks of hosted
            types.
    """

    def __init__(
        self, api: TaskService | None, dashboard: Dashboard | None, *, serves_api: bool = True
    ) -> None:
        self.api = api
        self._serves_api = serves_api
        self._answer = RequestLog(self._dispatch, None if api is None else api.metrics)
        self.has_metrics = True
        """Whether this application serves `/metrics`.

        If the service has several processes, only their supervisor serves the sum of their metrics.
        """
        self.dashboard = dashboard
        self._streams = Waits()
        """Event streams of live pages, which `end_waits` ends: each lasts until its reader leaves."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, log it and count it."""
        await self._answer(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = route_path(scope) if scope["type"] == "http" else ""
        if self.dashboard is not None and path == "/live" and _wants_events(scope):
            await self._stream(self.dashboard, scope, receive, send)
        elif self.api is not None and path == "/metrics" and scope["method"] in SAFE_METHODS:
            response = await self._scrape(self.api, scope)
            await response(scope, receive, send)
        elif self.api is not None and self._is_for_api(path):
            await self.api(scope, receive, send)
        elif scope["type"] != "http":
            await WebSocketClose()(scope, receive, send)
        elif path in PROBES:
            await self._probe(path)(scope, receive, send)
        elif self.dashboard is not None:
            await self.dashboard(scope, receive, send)
        else:
            await _nothing_here().response()(scope, receive, send)

    def _is_for_api(self, path: str) -> bool:
        """Return whether the API answers a path: a path of its own, or any path without a dashboard.

        If programs are not served, the API answers only the probes.
        """
        if not self._serves_api:
            return path in PROBES
        return self.dashboard is None or path.startswith("/v1/") or path in _OF_API

    def end_waits(self) -> None:
        """Answer the waiting requests, with the notice that this instance shuts down."""
        self._streams.end()
        if self.api is not None:
            self.api.end_waits()

    async def close(self) -> None:
        """Close the connections."""
        if self.api is not None:
            await self.api.close()
        if self.dashboard is not None:
            await self.dashboard.aclose()

    async def _scrape(self, api: TaskService, scope: Scope) -> Response:
        if self.has_metrics:
            return await api.answer_metrics(Request(scope))
        detail = "Several processes serve this address; each knows its own numbers alone."
        remedy = "Set service.health to an address: there /metrics has the sum of all."
        return ProblemError(404, "metrics_elsewhere", detail, remedy).response()

    def _probe(self, path: str) -> Response:
        """Answer a probe of an instance without the API."""
        if path == "/ready" and self._streams.is_ending:
            return _closing().response()
        return answer_json({"status": path[1:]})

    async def _stream(self, dashboard: Dashboard, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the events of a live page until the client disconnects or the instance shuts down."""
        has_started = False

        async def send_noted(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._streams.run(dashboard(scope, receive, send_noted))
        except WaitEndedError:
            if has_started:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await _closing().response()(scope, receive, send)


def _wants_events(scope: Scope) -> bool:
    """Return whether a request to `/live` is for the event stream of live pages, and not for the probe."""
    return any(name == b"accept" and b"text/event-stream" in value for name, value in scope["headers"])


def _nothing_here() -> ProblemError:
    detail = "This instance runs hosted tasks alone."
    return ProblemError(404, "no_such_path", detail, "Ask an instance that serves programs.")


def _closing() -> ProblemError:
    headers = {"Retry-After": "1"}
    return ProblemError(503, "shutting_down", "This instance is closing.", headers=headers)
