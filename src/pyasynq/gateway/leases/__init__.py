"""Leases over HTTP: workers in any language take tasks, extend their leases and settle them.

leases = Leases("redis://localhost:6379/0", Keyring.derive(SigningSecret()))
app = Starlette(routes=lease_routes(leases, authenticate))
...
await leases.close()

All that an instance needs to settle an attempt is in its token and in Redis. So requests of one worker may
reach several instances in turn.
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
