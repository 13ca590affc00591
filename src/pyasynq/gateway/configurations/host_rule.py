"""Rule of a host that tasks of the kind `http` call: addresses, ports, limits, secrets and headers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyasynq._checks import parse_whole_number
from pyasynq.errors import InvalidOptionError
from pyasynq.operations import RequestRate, parse_request_rate

from .field_names import join_path, read_table
from .secret_reference import SecretReference, parse_secret_reference

if TYPE_CHECKING:
    from collections.abc import Mapping

Network: TypeAlias = IPv4Network | IPv6Network

DEFAULT_PORTS: Final = frozenset({80, 443})
_HIGHEST_PORT: Final = 65_535
_MOST_ENTRIES: Final = 100
_MOST_CONCURRENCY: Final = 10_000
_FIELDS: Final = (
    "addresses",
    "ports",
    "concurrency",
    "rate",
    "signing_secrets",
    "secret_headers",
    "ca_file",
)
_HOST: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?|\[[0-9a-f:.]+\]")
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_OWN_HEADERS: Final = (
    "connection",
    "content-length",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
)
_OWN_PREFIXES: Final = ("webhook-", "x-pyasynq-", "proxy-")


@dataclass(frozen=True, slots=True)
class HostRule:
    """Rule of a host; the default values are the rule of hosts that the file does not list.

    Attributes:
        name: name of the host, in lower case; with a port if the rule is for that port alone.
        addresses: private or loopback networks in which its addresses may be.
        ports: ports that may be called.
        concurrency: number of requests that run at once, over all instances; None means unlimited.
        rate: rate limit of requests, over all instances; None means unlimited.
        signing_secrets: secrets that sign its requests (Standard Webhooks); several during a rotation.
        secret_headers: headers that are sent to this host only, by name.
        ca_file: file of trusted CA certificates; empty for the certificates of the system.
    """

    name: str = ""
    addresses: tuple[Network, ...] = ()
    ports: frozenset[int] = DEFAULT_PORTS
    concurrency: int | None = None
    rate: RequestRate | None = None
    signing_secrets: tuple[SecretReference, ...] = ()
    secret_headers: tuple[tuple[str, SecretReference], ...] = ()
    ca_file: str = ""


def parse_host_rules(path: str, value: object) -> dict[str, HostRule]:
    """Parse the table `[hosts]` of the service's file; return the rules by host name.

    Raises:
        InvalidOptionError: for an invalid field; the message names the field and the remedy.
    """
    if not isinstance(value, dict):
        raise InvalidOptionError(
            path, type(value), 'must be a table for each host, as in [hosts."a.example"]'
        )
    rules = (_parse_host_rule(join_path(path, f'"{name}"'), name, table) for name, table in value.items())
    return {rule.name: rule for rule in rules}


def find_host_rule(rules: Mapping[str, HostRule], host: str, port: int) -> HostRule:
    """Return the most specific rule: for this host and port, for the host, or else the default rule."""
    name = _normalize_host(host)
    return rules.get(f"{name}:{port}") or rules.get(name) or HostRule(name)


def parse_networks(path: str, value: object) -> tuple[Network, ...]:
    """Parse a list of IP networks (CIDR).

    Raises:
        InvalidOptionError: for anything else; the message names the field.
    """
    return _parse_list(path, value, _parse_network)


def check_header_name(path: str, name: object) -> str:
    """Check the name of an additional request header, and return it.

    Raises:
        InvalidOptionError: for an invalid name, or a header that the service sets itself.
    """
    if not isinstance(name, str) or not _HEADER.fullmatch(name):
        raise InvalidOptionError(path, type(name), "must be the name of a header, such as X-Team")
    low = name.lower()
    if low in _OWN_HEADERS or low.startswith(_OWN_PREFIXES):
        raise InvalidOptionError(path, name, "is set by the service: leave it out")
    return name


def _parse_host_rule(path: str, given: str, value: object) -> HostRule:
    name, port = _parse_name(path, given)
    fields = read_table(path, value, _FIELDS, later=("oauth2", "client_certificate"))
    ports = frozenset({port}) if port is not None else DEFAULT_PORTS
    if "ports" in fields:
        if port is not None:
            raise InvalidOptionError(join_path(path, "ports"), list, "the host's name has a port already")
        ports = frozenset(_parse_list(join_path(path, "ports"), fields["ports"], _parse_port))
    return HostRule(
        name=name if port is None else f"{name}:{port}",
        addresses=parse_networks(join_path(path, "addresses"), fields.get("addresses", [])),
        ports=ports,
        concurrency=_parse_concurrency(join_path(path, "concurrency"), fields.get("concurrency")),
        rate=_parse_rate(join_path(path, "rate"), fields.get("rate")),
        signing_secrets=_parse_list(
            join_path(path, "signing_secrets"), fields.get("signing_secrets", []), parse_secret_reference
        ),
        secret_headers=_parse_secret_headers(
            join_path(path, "secret_headers"), fields.get("secret_headers", {})
        ),
        ca_file=_parse_file(join_path(path, "ca_file"), fields.get("ca_file", "")),
    )


def _parse_name(path: str, given: str) -> tuple[str, int | None]:
    name, port = given.lower(), None
    if not name.endswith("]") and ":" in name:
        name, _, digits = name.rpartition(":")
        port = _parse_port(path, parse_whole_number(digits))
    name = _normalize_host(name)
    if not _HOST.fullmatch(name):
        remedy = 'must be the name of a host, such as [hosts."a.example"] or [hosts."a.example:8443"]'
        raise InvalidOptionError(path, str, remedy)
    return name, port


def _normalize_host(host: str) -> str:
    """Normalize a host name: lower case, no dot at the end, IPv6 in brackets as `[::1]`."""
    name = host.lower().rstrip(".")
    try:
        return f"[{IPv6Address(name.strip('[]')).compressed}]"
    except ValueError:
        return name


def _parse_list(path: str, value: object, parse: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise InvalidOptionError(path, type(value), "must be a list")
    if len(value) > _MOST_ENTRIES:
        raise InvalidOptionError(path, len(value), f"must have {_MOST_ENTRIES} entries at most")
    return tuple(parse(f"{path}[{place}]", one) for place, one in enumerate(value))


def _parse_network(path: str, value: object) -> Network:
    if isinstance(value, str):
        try:
            return ip_network(value)
        except ValueError:
            pass
    raise InvalidOptionError(path, type(value), "must be a network or an address, such as 10.1.0.0/16")


def _parse_port(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _HIGHEST_PORT:
        raise InvalidOptionError(path, value, f"must be a port from 1 to {_HIGHEST_PORT:,}")
    return value


def _parse_concurrency(path: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_CONCURRENCY:
        raise InvalidOptionError(path, value, f"must be a number from 1 to {_MOST_CONCURRENCY:,}")
    return value


def _parse_rate(path: str, value: object) -> RequestRate | None:
    return None if value is None else parse_request_rate(path, value)


def _parse_secret_headers(path: str, value: object) -> tuple[tuple[str, SecretReference], ...]:
    if not isinstance(value, dict):
        raise InvalidOptionError(path, type(value), 'must be a table: { Authorization = "env:BILLING" }')
    return tuple(
        (check_header_name(join_path(path, name), name), parse_secret_reference(join_path(path, name), one))
        for name, one in value.items()
    )


def _parse_file(path: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidOptionError(path, type(value), "must be the name of a file")
    return value
