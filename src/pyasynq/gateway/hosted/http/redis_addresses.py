"""Addresses and ports of the servers in a Redis URL: no request of a task may go there."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from .addresses import parse_address, plain_address

if TYPE_CHECKING:
    from .addresses import NetworkAddress

_DEFAULT_PORTS: Final = {"redis-sentinel": 26_379, "rediss-sentinel": 26_379}
_REDIS_PORT: Final = 6_379


async def find_redis_addresses(url: str) -> set[tuple[NetworkAddress, int]]:
    """Resolve the servers in a Redis URL to addresses and ports; skip names that cannot be resolved."""
    found: set[tuple[NetworkAddress, int]] = set()
    for host, port in list_redis_hosts(url):
        try:
            answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            continue  # a name that cannot be resolved has no address to protect
        for *_, endpoint in answers:
            address = parse_address(str(endpoint[0]))
            if address is not None:
                found.add((plain_address(address), port))
    return found


def list_redis_hosts(url: str) -> list[tuple[str, int]]:
    """Return host and port of each server that a URL names; none for a Unix socket."""
    parts = urlsplit(url)
    if not parts.scheme.startswith("redis") or parts.scheme == "redis-socket":
        return []
    default = _DEFAULT_PORTS.get(parts.scheme, _REDIS_PORT)
    hosts = []
    for server in parts.netloc.rpartition("@")[2].split(","):
        name, colon, digits = server.rpartition(":")
        has_port = bool(colon) and digits.isdecimal()
        host = (name if has_port else server).strip("[]")
        hosts.append((unquote(host) or "localhost", int(digits) if has_port else default))
    return hosts
