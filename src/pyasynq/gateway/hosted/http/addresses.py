"""Check of the addresses of requests: public addresses, and networks that the file allows for a host.

The refused networks are those of IANA's special-purpose registries (RFC 6890 and its updates), and all of
IPv6 outside of the global unicast block. An IPv4 address within an IPv6 address is checked as IPv4.
"""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq.gateway.configurations.host_rule import Network

NetworkAddress: TypeAlias = IPv4Address | IPv6Address

_REFUSED_4: Final = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by the customers of a provider
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, with the metadata services of clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, with broadcast
    )
)
_GLOBAL_6: Final = IPv6Network("2000::/3")
_REFUSED_6: Final = tuple(
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments, with Teredo, ORCHID and benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_IPV4_MASK: Final = 0xFFFF_FFFF


def plain_address(address: NetworkAddress) -> NetworkAddress:
    """Return the IPv4 address within an IPv4-mapped or NAT64 address; return any other address unchanged."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & _IPV4_MASK)
    return address


def is_public(address: NetworkAddress) -> bool:
    """Return whether an address belongs to the public internet."""
    plain = plain_address(address)
    if isinstance(plain, IPv4Address):
        return not any(plain in block for block in _REFUSED_4)
    return plain in _GLOBAL_6 and not any(plain in block for block in _REFUSED_6)


def is_allowed(address: NetworkAddress, allowed: Iterable[Network]) -> bool:
    """Return whether an address may be called: the file lists it, or it is public and not of this machine."""
    plain = plain_address(address)
    if any(plain in network for network in allowed):
        return True
    return is_public(address) and not is_this_machine(plain)


def is_this_machine(address: NetworkAddress) -> bool:
    """Return whether an address belongs to this machine, by binding a socket to it."""
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def parse_address(text: str) -> NetworkAddress | None:
    """Parse an address without its scope (`fe80::1%eth0`); return None for a host name."""
    try:
        return ip_address(text.partition("%")[0])
    except ValueError:
        return None
