"""Instances of the lease service on the real Redis of a test, called without a network."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
from starlette.applications import Starlette

from pyasynq.gateway.leases import Keyring, Leases, lease_routes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.requests import Request

SECRET = b"s" * 32


async def until(condition: Callable[[], object]) -> None:
    """Poll a condition until it is true; the time limit of the test ends the wait."""
    while not condition():  # noqa: ASYNC110 - what is looked at is in Redis
        await asyncio.sleep(0.01)


@dataclass(frozen=True)
class Key:
    """An API key."""

    id: str = "one"
    scopes: frozenset[str] = frozenset({"work"})
    queues: tuple[str, ...] = ("*",)


KEYS = {
    "one": Key(),
    "two": Key("two"),
    "emails": Key("emails", queues=("emails*",)),
    "none": Key("none", frozenset()),
}


@dataclass
class Instance:
    """One instance of the service, and a client of it."""

    leases: Leases
    app: Starlette
    client: httpx.AsyncClient
    keys: dict[str, Key] = field(default_factory=dict)

    async def post(self, path: str, body: Mapping[str, Any], key: str = "one") -> httpx.Response:
        """Send a request with a key."""
        return await self.client.post(path, json=body, headers={"authorization": f"Bearer {key}"})

    async def lease(self, *queues: str, key: str = "one", **options: Any) -> httpx.Response:
        """Ask for tasks; for those of the default queue unless others are named."""
        return await self.post("/v1/leases", {"queues": queues or ["default"], "wait": 20, **options}, key)

    async def take(self, *queues: str, **options: Any) -> dict[str, Any]:
        """Return one leased task."""
        answer = await self.lease(*queues, **options)
        assert 200 == answer.status_code, answer.text
        [task] = answer.json()["tasks"]
        return dict(task)

    async def act(self, token: str, act: str, key: str = "one", **body: Any) -> httpx.Response:
        """Act on the attempt of a token."""
        return await self.post(f"/v1/attempts/{token}:{act}", body, key)


@asynccontextmanager
async def leasing(url: str, **options: Any) -> AsyncIterator[Instance]:
    """Run an instance for the duration of a block."""
    keys = dict(KEYS)

    async def authenticate(request: Request) -> Key | None:
        return keys.get(request.headers.get("authorization", "").removeprefix("Bearer "))

    leases = Leases(url, options.pop("keyring", None) or Keyring([SECRET]), **options)
    app = Starlette(routes=lease_routes(leases, authenticate))
    try:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://service", timeout=60
        ) as client:
            yield Instance(leases, app, client, keys)
    finally:
        await leases.close()
