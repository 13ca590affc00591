"""Options of sign-in at an OpenID provider."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyasynq.errors import InvalidOptionError

from .addresses import is_protected_url
from .group_roles import GroupRoles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_REQUIRED_SCOPE: Final = "openid"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdConnect:
    """Sign-in at an OpenID provider: authorization code flow with PKCE. It needs the extra `oidc`.

    Raises:
        InvalidOptionError: for an invalid value.
    """

    issuer: str
    """URL of the provider, as its discovery document and its tokens name it."""
    client_id: str
    url: str
    """URL at which browsers reach the dashboard, such as `https://ops.example/tasks`.

    The provider sends people back to `/login/oidc/callback` below it.
    """
    client_secret: str | None = field(default=None, repr=False)
    """Secret of the client; `file:/path` reads it from a file. None takes `PYASYNQ_OIDC_SECRET`.

    A client without a secret is a public client.
    """
    roles: Mapping[str, str] = field(default_factory=dict)
    """Role for each group. A person of several groups gets the highest role."""
    default_role: str | None = None
    """Role of a person without any of these groups; None refuses such people."""
    queues: Mapping[str, str | Iterable[str]] = field(default_factory=dict)
    """Queue patterns for each group with a role; a group without patterns sees all queues."""
    scopes: Sequence[str] = ("openid", "profile", "email")
    user_claim: str = ""
    """Claim that names the person.

    Unless given, it is `preferred_username`, or else a verified `email`, or else `sub`.
    """
    groups_claim: str = "groups"
    """Claim that holds the person's groups: a list of strings, or one string."""
    name: str = ""
    """Name of the provider on the login page; by default the host of the issuer."""

    def __post_init__(self) -> None:
        """Check the values."""
        for option, value in (("issuer", self.issuer), ("url", self.url)):
            if not is_protected_url(value) or urlsplit(value).query or urlsplit(value).fragment:
                remedy = "an https:// address without a query; http:// is for this machine alone"
                raise InvalidOptionError(option, value, remedy)
        if not self.client_id:
            raise InvalidOptionError("client_id", self.client_id, "the provider gives it to each client")
        if not self.roles and self.default_role is None:
            remedy = 'name the groups that may sign in, such as {"ops": "operator"}, or give a default_role'
            raise InvalidOptionError("roles", dict(self.roles), remedy)
        if isinstance(self.scopes, str) or _REQUIRED_SCOPE not in self.scopes:
            raise InvalidOptionError("scopes", self.scopes, "a list with openid in it")
        GroupRoles(self.roles, self.default_role, self.queues)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the provider and client, so that sessions end when these change."""
        return "oidc-" + hashlib.sha256(f"{self.issuer}\n{self.client_id}".encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """Name of the provider that people see."""
        return self.name or str(urlsplit(self.issuer).hostname)

    def callback_url(self, target: str) -> str:
        """Return the redirect URI for one Redis; `target` is its name, which is empty for the only Redis."""
        return "/".join(filter(None, (self.url.rstrip("/"), target, "login/oidc/callback")))
