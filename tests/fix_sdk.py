"""The two transports of the SDK on the real Redis of a test: Redis itself, and the task service over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.responses import JSONResponse

from pyasynq.gateway.api import TaskService
from pyasynq.gateway.configurations import parse_service_file
from pyasynq.operations import Operator, User
from pyasynq.sdk.redis_transport import RedisTransport, RedisWork
from pyasynq.web.auth.secret import SigningSecret
from tests.fix_leases import until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from pyasynq.sdk import RunningWorker

ADMIN = User.with_role("admin", "admin")
TRANSPORTS = ("redis", "service")


class LoopServer(uvicorn.Server):
    """Uvicorn server in the event loop of a test, which does not change signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: leave the signal handlers of the test."""
        yield


@dataclass
class Transport:
    """A transport: the arguments of `start_worker` and `SdkClient`, and the instance behind it."""

    arguments: dict[str, Any]
    service: TaskService | None = None

    async def refresh(self, worker: RunningWorker) -> None:
        """Let service and worker read the task types now; both do so by themselves within seconds."""
        if self.service is not None:
            await self.service._follower.refresh()
        transport, work = worker._transport, worker._work
        if isinstance(transport, RedisTransport) and isinstance(work, RedisWork):
            await transport.follower.refresh()
            await work._follow()
        else:
            await work._update_served()  # type: ignore[union-attr]


async def configure(redis_url: str, **types: dict[str, Any]) -> None:
    """Store configurations of task types."""
    async with Operator(redis_url, ADMIN) as operator:
        for name, content in types.items():
            await operator.set_type_configuration(name, {"name": name, **content})


@asynccontextmanager
async def over(transport: str, redis_url: str, **types: dict[str, Any]) -> AsyncIterator[Transport]:
    """Store task types, and yield a transport that uses them."""
    await configure(redis_url, **types)
    if transport == "redis":
        yield Transport({"redis": redis_url})
        return
    async with serving_http(redis_url) as (service, address):
        yield Transport({"service": address}, service)


class Meddler:
    """Middleware between a client and a service, which counts requests, and may lose or replace an answer.

    Attributes:
        asked: number of requests by the last part of their path, such as `extend`.
        losses: number of answers to lose, by the same; the service has done what they answer.
        answers: status and problem to answer with instead of the service.
    """

    def __init__(self, service: Any) -> None:
        self._service = service
        self.asked: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.answers: dict[str, tuple[int, dict[str, Any]]] = {}
        self.news = asyncio.Event()

    async def wait_for(self, name: str, number: int) -> None:
        """Wait until requests of this name have been answered this often."""
        while self.asked[name] < number:
            self.news.clear()
            await self.news.wait()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        name = scope.get("path", "").rpartition("/")[2].rpartition(":")[2]
        if scope["type"] == "http" and name in self.answers:
            status, problem = self.answers[name]
            await JSONResponse(problem, status)(scope, receive, send)
        elif scope["type"] == "http" and self.losses[name]:
            self.losses[name] -= 1
            await self._service(scope, receive, _swallow)
            await JSONResponse({}, 503)(scope, receive, send)
        else:
            await self._service(scope, receive, send)
        self.asked[name] += 1
        self.news.set()


async def _swallow(message: Any) -> None:
    """Discard an answer."""


@asynccontextmanager
async def serving_http(
    redis_url: str, *, needs_keys: bool = False, port: int = 0, meddlers: list[Meddler] | None = None
) -> AsyncIterator[tuple[TaskService, str]]:
    """Serve the task service on a port of this machine; yield it and its address.

    A meddler in front of it is added to the list.
    """
    port = port or free_port()
    service = TaskService(
        parse_service_file({"service": {"redis": redis_url}}),
        secret=SigningSecret("s" * 32),
        needs_keys=needs_keys,
    )
    app: Any = service
    if meddlers is not None:
        app = Meddler(service)
        meddlers.append(app)
    server = LoopServer(uvicorn.Config(app, port=port, log_config=None, lifespan="on"))
    running = asyncio.create_task(server.serve())
    await until(lambda: server.started or running.done())
    try:
        yield service, f"http://127.0.0.1:{port}"
    finally:
        service.end_waits()
        server.should_exit = True
        await running
