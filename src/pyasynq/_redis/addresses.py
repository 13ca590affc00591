"""Parser of the authority of a URL, the part between `//` and the path, which may name several hosts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias
from urllib.parse import unquote

Address: TypeAlias = tuple[str, int]
"""A host and a port."""


class Authority(NamedTuple):
    """User name, password and hosts of a URL.

    Attributes:
        username, password: None if the URL has none.
        addresses: at least one, without repetitions, in the URL's order.
    """

    username: str | None
    password: str | None
    addresses: tuple[Address, ...]


def split_authority(url: str) -> tuple[str, str]:
    """Return the authority of a URL (the part between `//` and the path), and everything after it.

    `urllib` expects a single host there, and refuses several IPv6 addresses in brackets.
    """
    _, _, rest = url.partition("://")
    end = min((position for mark in "/?#" if (position := rest.find(mark)) >= 0), default=len(rest))
    return rest[:end], rest[end:]


def parse_authority(text: str, default_port: int) -> Authority:
    """Parse `[[user]:password@]host[:port][,host[:port]]...`.

    Raises:
        ValueError: for a malformed host or port. The message leaves the text out, as it may hold a password.
    """
    login, _, hosts = text.rpartition("@")
    username, _, password = login.partition(":")
    addresses = parse_addresses(hosts, default_port)
    return Authority(unquote(username) or None, unquote(password) or None, addresses)


def parse_addresses(text: str, default_port: int) -> tuple[Address, ...]:
    """Parse `host[:port][,host[:port]]...`; an IPv6 address is in brackets.

    Raises:
        ValueError: for a malformed host or port. The message leaves the text out.
    """
    return tuple(dict.fromkeys(_address(part, default_port) for part in text.split(",")))


def format_address(address: Address) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _address(text: str, default_port: int) -> Address:
    text = text.strip()
    if text.startswith("["):
        host, closed, port = text[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            raise ValueError("a bracket that is not closed")
        port = port.removeprefix(":")
    else:
        host, _, port = text.partition(":")
    if not host or any(character in host for character in "[]% \t"):
        raise ValueError("a host without a name")
    # The message of `int` would show the text. It is part of the password if that is not percent-encoded.
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ValueError("a port that is not between 1 and 65535")
    return host.lower(), int(port) if port else default_port


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelGroup:
    """Sentinels that are asked for the address of a primary, and the login for them.

    Attributes:
        addresses: addresses of the Sentinels.
        primary: name under which the Sentinels monitor the primary.
        username, password: the Sentinels' own login; None if they require none.
    """

    addresses: tuple[Address, ...]
    primary: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Names of the primary and its Sentinels, safe to show (no password)."""
        return f"{self.primary} (Sentinels {', '.join(map(format_address, self.addresses))})"
