"""Authenticators: each returns the user of a request, or None if the request does not identify one."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from pyasynq._sign_in.addresses import is_loopback
from pyasynq._sign_in.group_roles import GroupRoles
from pyasynq.errors import ConfigurationError
from pyasynq.operations import User

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from starlette.requests import Request

    from pyasynq.web.auth.credentials import CredentialsFile

ProxyNetwork: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_FORWARDING_HEADERS: Final = frozenset(
    {
        *(b"forwarded", b"x-real-ip"),
        *(b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-forwarded-prefix"),
    }
)
"""Headers that proxies add, in lower case as in ASGI."""
_BEARER: Final = "bearer "
FORWARDED_CLIENT: Final = "pyasynq.forwarded_client"
"""Key of the ASGI scope: address of the client, as reported by a trusted proxy."""


class Authenticator(Protocol):
    """Authenticator of requests. `dashboard(auth=...)` takes one, or a list that is tried in order."""

    async def identify(self, request: Request) -> User | None:
        """Return the user, or None if the request does not identify one."""


class LoopbackOnly:
    """Authenticator that treats every request from this machine as the administrator `local`.

    A request counts as local if it comes from a loopback address, was not forwarded by a proxy, and names
    this machine in `Host`; checking `Host` prevents DNS rebinding.
    """

    async def identify(self, request: Request) -> User | None:
        """Return the user `local` for a request from this machine."""
        client = _connection_address(request)
        is_local = is_loopback(client) and get_requested_host(request) in _LOOPBACK_NAMES
        if not is_local or came_through_proxy(request):
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
    """Authenticator for a reverse proxy that signs people in and names them in a header.

    Args:
        networks: addresses of the proxy, such as `["10.0.0.0/8"]`; a header from elsewhere is ignored.
        user_header: header that holds the person's name.
        groups_header: header that holds the person's groups, separated by commas.
        roles: role for each group. A person of several groups gets the highest role.
        default_role: role of a person without any of these groups; None refuses such people.
        queues: queue patterns for each group with a role; a group without patterns sees all queues.

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
        self._networks = parse_proxy_networks(networks)
        self._user_header = user_header
        self._groups_header = groups_header
        self._groups = GroupRoles(roles, default_role, queues)

    async def identify(self, request: Request) -> User | None:
        """Return the person whom the proxy names."""
        name = request.headers.get(self._user_header, "")
        if not name or not is_in_networks(_connection_address(request), self._networks):
            return None
        groups = [
            part.strip() for part in request.headers.get(self._groups_header, "").split(",") if part.strip()
        ]
        found = self._groups.find(groups)
        if found is None:
            return None
        role, patterns = found
        return User.with_role(name, role, queues=patterns, login="proxy", address=forwarded_for(request))


class BearerTokens:
    """Authenticator for bearer tokens of programs, from a credentials file."""

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
    """Authenticator that calls a function of the host application: `async (request) -> User | None`."""

    def __init__(self, function: Callable[[Request], Awaitable[User | None]]) -> None:
        self._function = function

    async def identify(self, request: Request) -> User | None:
        """Return the user that the host application's function returns.

        Raises:
            TypeError: if the function returns neither a `User` nor None.
        """
        user = await self._function(request)
        if user is not None and not isinstance(user, User):
            raise TypeError(
                f"the auth function returned {type(user).__name__}, not pyasynq.operations.User or None"
            )
        return user


def bearer_token(request: Request) -> str:
    """Return the bearer token of the `Authorization` header, or an empty string."""
    header = request.headers.get("authorization", "")
    return header[len(_BEARER) :].strip() if header[: len(_BEARER)].lower() == _BEARER else ""


def client_address(request: Request) -> str:
    """Return the client's address: as reported by a trusted proxy, else that of the connection's peer."""
    return str(request.scope.get(FORWARDED_CLIENT) or _connection_address(request))


def _connection_address(request: Request) -> str:
    return request.client.host if request.client else ""


def forwarded_for(request: Request) -> str:
    """Return the last forwarded address, which the trusted proxy added; earlier addresses may be forged."""
    last = request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip()
    return str(request.scope.get(FORWARDED_CLIENT) or last or _connection_address(request))


def parse_proxy_networks(networks: Iterable[str]) -> list[ProxyNetwork]:
    """Return the networks of proxies.

    Raises:
        ConfigurationError: for a string that is not a network.
    """
    try:
        return [ipaddress.ip_network(network) for network in networks]
    except ValueError as error:
        raise ConfigurationError(f"networks: {error}") from error


def is_in_networks(address: str, networks: Iterable[ProxyNetwork], *, strict: bool = False) -> bool:
    """Return whether an address is in one of some networks; an IPv4-mapped IPv6 address counts as IPv4.

    Raises:
        ValueError: with `strict`, for a string that is not an address.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        if strict:
            raise
        return False
    found = getattr(found, "ipv4_mapped", None) or found
    return any(found in network for network in networks)


def came_through_proxy(request: Request) -> bool:
    """Return whether a request has headers that proxies add, so that its client may be any machine."""
    return not _FORWARDING_HEADERS.isdisjoint([name for name, _ in request.scope["headers"]])


def get_requested_host(request: Request) -> str:
    """Return the host that the client requested, without the port."""
    host = request.headers.get("host", "")
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
