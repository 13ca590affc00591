"""Authentication: passwords, OpenID Connect, proxies, bearer tokens, the host application, or loopback."""

from __future__ import annotations

from pyasynq._sign_in.openid_options import OpenIdConnect
from pyasynq.web.auth.credentials import CredentialsFile
from pyasynq.web.auth.identify import Authenticator, Everyone, HostFunction, LoopbackOnly, TrustedProxy

__all__ = [
    "Authenticator",
    "CredentialsFile",
    "Everyone",
    "HostFunction",
    "LoopbackOnly",
    "OpenIdConnect",
    "TrustedProxy",
]
