"""Checks of sign-in addresses: which are loopback addresses, and which URLs are safe for secrets."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address, or `localhost`."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def is_protected_url(url: object) -> bool:
    """Return whether a URL is safe for secrets: `https://`, or `http://` on this machine (loopback)."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_valid = bool(host) and parts.port != 0 and parts.username is None
    except ValueError:
        return False
    has_controls = any(ord(character) <= 0x20 or character == "\\" for character in url)
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    return is_valid and is_safe and not has_controls
