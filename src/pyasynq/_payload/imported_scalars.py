"""Scalars of standard modules that only some programs import: IP addresses and networks, and time zones.

An annotation can contain such a type only if the program has imported the type's module.
"""

from __future__ import annotations

import ipaddress
import zoneinfo
from typing import TYPE_CHECKING, Final

from pyasynq._payload.converter import Converter, Mismatch
from pyasynq._payload.scalars import text_scalar

if TYPE_CHECKING:
    from collections.abc import Mapping

MODULES: Final = frozenset({"ipaddress", "zoneinfo"})


def _zone_name(zone: zoneinfo.ZoneInfo) -> str:
    if zone.key is None:
        raise Mismatch("expected a ZoneInfo with a key; one made from a file has no name to write")
    return zone.key


def _find_zone(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        # Directories of the zone data are read like files.
        raise ValueError from None


IMPORTED_SCALARS: Final[Mapping[type, Converter]] = {
    # An interface is an address for isinstance(), but its network would be lost.
    ipaddress.IPv4Address: text_scalar(
        ipaddress.IPv4Address, str, ipaddress.IPv4Address, never=ipaddress.IPv4Interface, format="ipv4"
    ),
    ipaddress.IPv6Address: text_scalar(
        ipaddress.IPv6Address, str, ipaddress.IPv6Address, never=ipaddress.IPv6Interface, format="ipv6"
    ),
    ipaddress.IPv4Interface: text_scalar(ipaddress.IPv4Interface, str, ipaddress.IPv4Interface),
    ipaddress.IPv6Interface: text_scalar(ipaddress.IPv6Interface, str, ipaddress.IPv6Interface),
    ipaddress.IPv4Network: text_scalar(ipaddress.IPv4Network, str, ipaddress.IPv4Network),
    ipaddress.IPv6Network: text_scalar(ipaddress.IPv6Network, str, ipaddress.IPv6Network),
    zoneinfo.ZoneInfo: text_scalar(zoneinfo.ZoneInfo, _zone_name, _find_zone),
}
