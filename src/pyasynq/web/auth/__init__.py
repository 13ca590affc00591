"""Authentication: passwords, OpenID Connect, proxies, bearer tokens, the host application, or loopback."""

from __future__ import annotations

from pyasynq.web.auth.credentials import CredentialsFile
from pyasynq.web.auth.identify import Authenticator, Everyone, HostFunction, LoopbackOnly, TrustedProxy
from pyasynq.web.auth.openid import OpenIdConnect

__all__ = [
    "Authenticator",
    "CredentialsFile",
    "Everyone",
    "HostFunction",
    "LoopbackOnly",
    "OpenIdConnect",
    "TrustedProxy",
]
