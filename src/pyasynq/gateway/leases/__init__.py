"""Leases over HTTP: workers in any language take tasks, extend their leases and settle them.

leases = Leases("redis://localhost:6379/0", Keyring.derive(SigningSecret()))
app = Starlette(routes=lease_routes(leases, authenticate))
...
await leases.close()

The lease token and Redis contain everything that is needed to settle an attempt. So a load balancer may send
each request of a worker to another instance.
"""

from __future__ import annotations

from pyasynq.gateway.leases.access import Authenticate, WorkKey
from pyasynq.gateway.leases.leases import Leases
from pyasynq.gateway.leases.routes import lease_routes
from pyasynq.gateway.leases.tokens import InvalidTokenError, Keyring, LeaseToken

__all__ = [
    "Authenticate",
    "InvalidTokenError",
    "Keyring",
    "LeaseToken",
    "Leases",
    "WorkKey",
    "lease_routes",
]
