"""The metrics of all queues, for a Prometheus server with a token of the dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

from pyasynq.operations import ProgramPermission

if TYPE_CHECKING:
    from pyasynq.web.page import PageRequest


async def metrics_response(ask: PageRequest) -> Response:
    """Answer a scrape, in the format that the header `Accept` asks for.

    The metrics cover all queues, so only users who may see all queues get them.
    """
    permission = ProgramPermission.METRICS_READ
    if "*" not in ask.user.patterns(permission):
        text = f"Metrics need the permission {permission} for all queues.\n"
        return Response(text, 403, media_type="text/plain")
    kind, body = await ask.target.metrics().render(ask.request.headers.get("accept", ""))
    return Response(body, headers={"content-type": kind, "cache-control": "no-store"})
