"""Program of one instance of the lease service: Redis and the port are its arguments."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette

from pyasynq.gateway.leases import Keyring, Leases, lease_routes
from tests.fix_leases import SECRET, Key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request


def make_app(url: str) -> Starlette:
    """Return the application of an instance, which lets everyone in."""
    leases = Leases(url, Keyring([SECRET]))

    async def authenticate(_: Request) -> Key:
        return Key()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await leases.close()

    return Starlette(routes=lease_routes(leases, authenticate), lifespan=lifespan)


if __name__ == "__main__":
    uvicorn.run(make_app(sys.argv[1]), port=int(sys.argv[2]), log_level="warning")
