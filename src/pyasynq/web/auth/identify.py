"""Authenticators: each returns the user of a request, or None if it cannot tell."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, Protocol

from pyasynq.errors import ConfigurationError
from pyasynq.operations import User

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.requests import Request

    from pyasynq.web.auth.credentials import CredentialsFile

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_FORWARDING_HEADERS: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_BEARER: Final = "bearer "
_RANKS: Final = ("viewer", "operator", "admin")


class Authenticator(Protocol):
    """Authenticator of requests. `dashboard(auth=...)` takes one, or a list that is tried in order."""

    async def identify(self, request: Request) -> User | None:
        """Return the user, or None if the request does not identify one."""


class LoopbackOnly:
    """Everyone on this machine is the administrator `local`; all others are refused.

    A request counts as local if it comes from a loopback address, was not forwarded by a proxy, and names
    this machine in `Host`; the last keeps out web pages whose own name was made to point here.
    """

    async def identify(self, request: Request) -> User | None:
        """Return the user `local` for a request from this machine."""
        client = request.client.host if request.client else ""
        is_local = is_loopback(client) and get_requested_host(request) in _LOOPBACK_NAMES
        if not is_local or any(name in request.headers for name in _FORWARDING_HEADERS):
            return None
        return User.with_role("local", "admin", login="loopback", address=client)


class Everyone:
    """Authenticator that gives every visitor the same role, for networks protected by other means.

    Args:
        role: `viewer`, `operator` or `admin`.
        queues: patterns of the queues that are shown.
    """

    def __init__(self, role: str = "viewer", queues: str | Iterable[str] = "*") -> None:
        User.with_role("everyone", role)  # a wrong role raises at once
        self._role = role
        self._queues = (queues,) if isinstance(queues, str) else tuple(queues)

    async def identify(self, request: Request) -> User | None:
        """Return the user `everyone`."""
        return User.with_role(
            "everyone", self._role, queues=self._queues, login="none", address=client_address(request)
        )


class TrustedProxy:
    """A proxy that signs people in and names them in a header.

    Args:
        networks: addresses of the proxy, such as `["10.0.0.0/8"]`; a header from elsewhere is ignored.
        user_header: header that holds the person's name.
        groups_header: header that holds the person's groups, separated by commas.
        roles: role for each group. A person of several groups gets the highest.
        default_role: role of a person without any of these groups; None refuses such people.
        queues: patterns of the queues for each group; groups that are not named see all.

    Raises:
        ConfigurationError: for an invalid network or role.
    """

    def __init__(
        self,
        networks: Iterable[str],
        *,
        user_header: str = "X-Forwarded-User",
        groups_header: str = "X-Forwarded-Groups",
        roles: Mapping[str, str] | None = None,
        default_role: str | None = None,
        queues: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        try:
            self._networks = [ipaddress.ip_network(network) for network in networks]
        except ValueError as error:
            raise ConfigurationError(f"networks: {error}") from error
        self._user_header = user_header
        self._groups_header = groups_header
        self._roles = dict(roles or {})
        self._default_role = default_role
        self._queues = {group: tuple(patterns) for group, patterns in (queues or {}).items()}
        for role in (*self._roles.values(), *([default_role] if default_role else [])):
            User.with_role("", role)

    async def identify(self, request: Request) -> User | None:
        """Return the person whom the proxy names."""
        name = request.headers.get(self._user_header, "")
        if not name or not self._is_trusted(request.client.host if request.client else ""):
            return None
        groups = [
            part.strip() for part in request.headers.get(self._groups_header, "").split(",") if part.strip()
        ]
        ranked = [(_RANKS.index(self._roles[group]), group) for group in groups if group in self._roles]
        if not ranked and self._default_role is None:
            return None
        role = _RANKS[max(ranked)[0]] if ranked else str(self._default_role)
        return User.with_role(
            name,
            role,
            queues=self._collect_patterns(group for _, group in ranked),
            login="proxy",
            address=forwarded_for(request),
        )

    def _is_trusted(self, address: str) -> bool:
        try:
            client = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(client in network for network in self._networks)

    def _collect_patterns(self, groups: Iterable[str]) -> tuple[str, ...]:
        found = [self._queues.get(group, ("*",)) for group in groups]
        return tuple(dict.fromkeys(pattern for patterns in found for pattern in patterns)) or ("*",)


class BearerTokens:
    """Tokens of programs, from a credentials file."""

    def __init__(self, credentials: CredentialsFile) -> None:
        self._credentials = credentials

    async def identify(self, request: Request) -> User | None:
        """Return the user of the request's bearer token."""
        token = bearer_token(request)
        found = self._credentials.check_token(token) if token else None
        if found is None:
            return None
        return User.with_role(
            found.name, found.role, queues=found.queues, login="token", address=client_address(request)
        )


class HostFunction:
    """A function of the host application: `async (request) -> User | None`."""

    def __init__(self, function: Callable[[Request], Awaitable[User | None]]) -> None:
        self._function = function

    async def identify(self, request: Request) -> User | None:
        """Return what the function returns.

        Raises:
            TypeError: if that is neither a user nor None.
        """
        user = await self._function(request)
        if user is not None and not isinstance(user, User):
            raise TypeError(
                f"the auth function returned {type(user).__name__}, not pyasynq.operations.User or None"
            )
        return user


def bearer_token(request: Request) -> str:
    """Return the token of the `Authorization` header, or an empty text."""
    header = request.headers.get("authorization", "")
    return header[len(_BEARER) :].strip() if header[: len(_BEARER)].lower() == _BEARER else ""


def client_address(request: Request) -> str:
    """Return the address that the connection comes from."""
    return request.client.host if request.client else ""


def forwarded_for(request: Request) -> str:
    """Return the last forwarded address, added by the trusted proxy; earlier ones may be forged."""
    return request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip() or client_address(request)


def get_requested_host(request: Request) -> str:
    """Return the host that the client requested, without the port."""
    host = request.headers.get("host", "")
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def is_loopback(address: str) -> bool:
    """Return whether an address belongs to this machine; a path of a Unix socket does."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
