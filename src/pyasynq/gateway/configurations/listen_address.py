"""Addresses to listen on: `127.0.0.1:8080` or `[::1]:8080`."""

from __future__ import annotations

from typing import Final

from pyasynq._checks import parse_whole_number
from pyasynq.errors import InvalidOptionError

_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_HIGHEST_PORT: Final = 65_535


def is_loopback_host(host: str) -> bool:
    """Return whether a host is a loopback address, which only this machine reaches."""
    return host.lower() in _LOOPBACK


def parse_listen(path: str, value: object) -> tuple[str, int]:
    """Split `127.0.0.1:8080` or `[::1]:8080` into host and port.

    Raises:
        InvalidOptionError: for other text.
    """
    host, _, digits = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    port = parse_whole_number(digits)
    is_bracketed = host.startswith("[") and host.endswith("]")
    if port is None or port > _HIGHEST_PORT or not host.strip("[]") or (":" in host and not is_bracketed):
        raise InvalidOptionError(path, type(value), "must be an address and a port: 127.0.0.1:8080")
    return host.strip("[]"), port
