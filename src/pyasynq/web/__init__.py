"""The dashboard for browsers (extra `web`): `dashboard(redis, ...)` returns an ASGI application.

It reads and changes Redis only through `pyasynq.operations`. docs/dashboard.md shows how to use it.
"""

from __future__ import annotations

from pyasynq._extras import explain_missing

try:
    from pyasynq.web.auth import (
        Authenticator,
        CredentialsFile,
        Everyone,
        HostFunction,
        LoopbackOnly,
        OpenIdConnect,
        TrustedProxy,
    )
    from pyasynq.web.dashboard import Dashboard, dashboard
except ModuleNotFoundError as error:
    raise explain_missing(error) from None

__all__ = [
    "Authenticator",
    "CredentialsFile",
    "Dashboard",
    "Everyone",
    "HostFunction",
    "LoopbackOnly",
    "OpenIdConnect",
    "TrustedProxy",
    "dashboard",
]
