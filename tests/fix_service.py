"""Instances of the task service on the real Redis of a test, called without a network."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from pyasynq.gateway.api import TaskService
from pyasynq.gateway.configurations import parse_service_file
from pyasynq.operations import Operator, User
from pyasynq.web.auth.secret import SigningSecret

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from pyasynq.operations import IssuedApiKey

SECRET = "s" * 32
TYPES: dict[str, Any] = {
    "resize": {"max_run": 3, "max_retry": 5, "timeout": "10m", "retention": "1h"},
    "dumpfeature": {
        "retention": "1h",
        "managed": "api",
        "schema": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string"}}},
    },
    "deliver": {"ordered": True},
}


@dataclass
class Visitor:
    """Client program of an instance of the service."""

    service: TaskService
    client: httpx.AsyncClient
    operator: Operator
    """Operator of an administrator, with which tests read the result."""
    keys: dict[str, IssuedApiKey] = field(default_factory=dict)

    async def make_key(
        self, *scopes: str, queues: Sequence[str] = ("*",), name: str = "test", rate: str | None = None
    ) -> str:
        """Return the text of a new key."""
        issued = await self.operator.make_api_key(name, scopes, queues, rate=rate)
        self.keys[name] = issued
        return issued.text

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request, with a key if one is given."""
        sent = dict(headers or {})
        if key:
            sent["authorization"] = f"Bearer {key}"
        content = {"content": body} if isinstance(body, bytes) else {} if body is None else {"json": body}
        return await self.client.request(method, path, headers=sent, **content)

    async def take(self, queue: str, **options: Any) -> dict[str, Any]:
        """Lease one task, for longer than the test lasts."""
        body = {"queues": [queue], "wait": 50, "lease": 600, **options}
        answer = await self.ask("POST", "/v1/leases", body)
        assert 200 == answer.status_code, answer.text
        [task] = answer.json()["tasks"]
        return dict(task)

    async def settle(self, task: Mapping[str, Any], act: str, **body: Any) -> None:
        """Settle a leased task."""
        answer = await self.ask("POST", f"/v1/attempts/{task['token']}:{act}", body)
        assert 204 == answer.status_code, answer.text


@asynccontextmanager
async def serving(
    url: str,
    types: Any = None,
    *,
    settings: Mapping[str, Any] | None = None,
    hosts: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Visitor]:
    """Run an instance for the duration of a block; it requires no API keys by default."""
    tables = {
        "service": {"redis": url, **(settings or {})},
        "tasks": TYPES if types is None else types,
        "hosts": hosts or {},
    }
    file = parse_service_file(tables)
    service = TaskService(file, secret=SigningSecret(SECRET), **{"needs_keys": False, **options})
    admin = User.with_role("admin", "admin")
    try:
        async with (
            Operator(url, admin) as operator,
            httpx.AsyncClient(
                transport=httpx.ASGITransport(service), base_url="http://localhost", timeout=60
            ) as client,
        ):
            yield Visitor(service, client, operator)
    finally:
        await service.close()
