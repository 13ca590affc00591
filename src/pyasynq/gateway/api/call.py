"""Request to the task service: its API key, path parameters and body, and the objects that handlers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from pyasynq._visible_text import visible
from pyasynq.errors import nearest
from pyasynq.gateway.leases.access import may_use
from pyasynq.web.api.json_body import decode_body, read_content
from pyasynq.web.api.problem import ProblemError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

    from pyasynq.gateway.auth import ServiceKey
    from pyasynq.gateway.configurations import ConfigurationFollower, TaskConfiguration
    from pyasynq.gateway.counted_client import CountedClient
    from pyasynq.gateway.waits import Waits
    from pyasynq.operations import Operator

    from .back_pressure import BackPressure
    from .description import RouteDescription
    from .task_events import StreamCount

    Handler = Callable[["ServiceCall"], Awaitable[Response]]

_JSON: Final = "application/json"
_LARGEST_BODY: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """Objects of one service instance that all request handlers share."""

    client: CountedClient
    operator: Operator
    """The operator of the service itself; `ServiceCall.operator` acts for the request's API key."""
    follower: ConfigurationFollower
    waits: Waits
    back_pressure: BackPressure
    streams: StreamCount
    batches: asyncio.Semaphore
    """Semaphore that bounds the number of concurrent batches, so that they do not block the event loop."""
    max_body: int


@dataclass(frozen=True, slots=True)
class ServiceRoute:
    """Route of the HTTP API: method, path, required scopes, handler and description."""

    method: str
    path: str
    scopes: tuple[str, ...]
    """Scopes of the route; a key needs one of them."""
    handle: Handler
    description: RouteDescription


@dataclass(frozen=True, slots=True)
class ServiceCall:
    """Request that was authenticated, with its path parameters and the shared objects of the instance."""

    request: Request
    key: ServiceKey
    names: Mapping[str, str]
    """Path parameters by name, such as `queue` and `task`, decoded."""
    values: Mapping[str, Any]
    """Values of the route's query parameters."""
    parts: ServiceParts

    @property
    def operator(self) -> Operator:
        """Operator that checks the permissions of the API key, and names the key in the audit."""
        return self.parts.operator.for_user(self.key.user)

    async def content(self, largest: int = _LARGEST_BODY) -> bytes:
        """Return the bytes of the body. Raises `ProblemError` if it is larger than `largest` bytes."""
        return await read_content(self.request, largest)

    async def body(self, kind: Any) -> Any:
        """Decode the body as a struct of this kind. Raises `ProblemError` if it does not fit."""
        return decode_body(self.request, await self.content(), kind)

    def address(self, *names: str) -> str:
        """Return the URL path of a resource below `/v1`; each name becomes one percent-encoded segment."""
        root = self.request.scope.get("root_path", "")
        segments = (quote(name.encode("utf-8", "surrogateescape"), safe="") for name in names)
        return f"{root}/v1/{'/'.join(segments)}"

    def check_queue(self) -> tuple[str, str]:
        """Return queue and task id from the path. Raises `ProblemError` if the key may not use the queue."""
        queue = self.names["queue"]
        if not may_use(self.key, queue):
            raise ProblemError(404, "queue_not_found", f"There is no queue {visible(queue)} for this key.")
        return queue, self.names["task"]

    def find_type(self, name: str) -> TaskConfiguration | None:
        """Return the configuration of a task type; None if it does not exist or the key may not use it."""
        found = self.parts.follower.types.get(name)
        return found[0] if found is not None and may_use(self.key, name) else None

    def nearest_type(self, name: str) -> str:
        """Return advice for an unknown type name: the most similar name, or where all names are listed."""
        known = [one for one in self.parts.follower.types if may_use(self.key, one)]
        near = nearest(name, known).removeprefix("; ")
        return near[:1].upper() + near[1:] if near else "GET /v1/task-types lists the types of this key."


def answer_json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response in JSON."""
    content = value if isinstance(value, bytes) else msgspec.json.encode(value)
    sent = {"Cache-Control": "no-store", **(headers or {})}
    return Response(content + b"\n", status, headers=sent, media_type=_JSON)
