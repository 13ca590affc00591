"""Authentication: passwords, trusted proxies, bearer tokens, the host application, this machine alone."""

from __future__ import annotations

from pyasynq.web.auth.credentials import CredentialsFile
from pyasynq.web.auth.identify import Authenticator, Everyone, HostFunction, LoopbackOnly, TrustedProxy

__all__ = ["Authenticator", "CredentialsFile", "Everyone", "HostFunction", "LoopbackOnly", "TrustedProxy"]
