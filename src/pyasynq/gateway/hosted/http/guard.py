"""Guard against requests to this machine and its networks (SSRF), at each connection.

Both the resolver and the socket factory of aiohttp check addresses. The resolver is not asked about an
address that is written in a URL. The socket factory gets the address of each new connection, but no name.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import TYPE_CHECKING, Any, Final

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult

from .addresses import is_allowed, is_this_machine, parse_address, plain_address

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection

    from pyasynq.gateway.configurations import HostRule

    from .addresses import NetworkAddress

_MOST_CONNECTIONS: Final = 1_000
_KEPT_SECONDS: Final = 15.0
"""Seconds for which an idle connection is kept; most servers close theirs after about a minute."""


class RefusedAddressError(OSError):
    """Error: the host's address or the URL's port may not be called."""

    def __init__(self) -> None:
        super().__init__(errno.EACCES, "the address may not be called")


class Guard:
    """Decides which addresses and ports may be called under one host rule.

    Args:
        rule: rule of the host, with its allowed networks and ports.
        list_forbidden: returns the addresses and ports of Redis, which are never called, whatever the rule
            says.
        own_ports: ports of the service itself on this machine, which are never called.
    """

    def __init__(
        self,
        rule: HostRule,
        list_forbidden: Callable[[], Collection[tuple[NetworkAddress, int]]] = tuple,
        own_ports: Collection[int] = (),
    ) -> None:
        self._rule = rule
        self._list_forbidden = list_forbidden
        self._own_ports = own_ports

    def check(self, text: str, port: int) -> None:
        """Check an address and a port.

        Raises:
            RefusedAddressError: they may not be called.
        """
        address = parse_address(text)
        if address is None or port not in self._rule.ports or not self._admits(address, port):
            raise RefusedAddressError

    def _admits(self, address: NetworkAddress, port: int) -> bool:
        plain = plain_address(address)
        if (plain, port) in self._list_forbidden() or (port in self._own_ports and is_this_machine(plain)):
            return False
        return is_allowed(address, self._rule.addresses)

    def open_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Return a socket for an address of `getaddrinfo`: the socket factory of a connector.

        Raises:
            RefusedAddressError: it may not be called.
        """
        family, kind, protocol, _, endpoint = address
        self.check(endpoint[0], endpoint[1])
        return socket.socket(family, kind, protocol)


class GuardedResolver(AbstractResolver):
    """Resolves host names. It refuses a name if any of its addresses may not be called.

    Args:
        guard: decides which addresses may be called.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a name.

        Raises:
            RefusedAddressError: one of them may not be called.
            OSError: the name cannot be resolved.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        for *_, endpoint in found:
            self._guard.check(str(endpoint[0]), port)
        return [
            ResolveResult(
                hostname=host,
                host=str(endpoint[0]),
                port=port,
                family=one_family,
                proto=protocol,
                flags=socket.AI_NUMERICHOST,
            )
            for one_family, _, protocol, _, endpoint in found
        ]

    async def close(self) -> None:
        """Do nothing, since the resolver holds no resources."""


def guarded_connector(guard: Guard, tls: ssl.SSLContext | bool = True) -> TCPConnector:  # noqa: FBT001, FBT002 - aiohttp's
    """Return a connector that checks each new connection.

    A connection in its pool is not checked again, so each host rule needs a connector of its own.
    """
    return TCPConnector(
        resolver=GuardedResolver(guard),
        socket_factory=guard.open_socket,
        ssl=tls,
        limit=_MOST_CONNECTIONS,
        limit_per_host=0,
        keepalive_timeout=_KEPT_SECONDS,
        # A name may get another address at any time, so each connection resolves it again.
        use_dns_cache=False,
    )
