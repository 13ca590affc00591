"""Authentication: passwords, trusted proxies, bearer tokens, the host application, or loopback only."""

from __future__ import annotations

from pyasynq.web.auth.credentials import CredentialsFile
from pyasynq.web.auth.identify import Authenticator, Everyone, HostFunction, LoopbackOnly, TrustedProxy

__all__ = ["Authenticator", "CredentialsFile", "Everyone", "HostFunction", "LoopbackOnly", "TrustedProxy"]
