"""Connection URLs, parsed and checked into a `RedisTarget`; passwords are never shown."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pyasynq._checks import parse_whole_number
from pyasynq._embedded.address import parse_embedded_url, show_embedded_url
from pyasynq._embedded.errors import EmbeddedServerError
from pyasynq._redis.addresses import (
    Address,
    Authority,
    SentinelGroup,
    format_address,
    parse_authority,
    split_authority,
)
from pyasynq._redis.clients import RedisSource, read_source_url
from pyasynq._redis.tls import CERT_REQS, TLSOptions
from pyasynq.errors import ConfigurationError, nearest

_DEFAULT_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_NETWORK_SCHEMES: Final = ("redis", "rediss")
_SOCKET_SCHEMES: Final = ("unix", "redis-socket")
_CLUSTER_SCHEMES: Final = ("redis-cluster", "rediss-cluster")
_SENTINEL_SCHEMES: Final = ("redis-sentinel", "rediss-sentinel")
_SCHEMES: Final = (*_NETWORK_SCHEMES, *_SOCKET_SCHEMES, *_CLUSTER_SCHEMES, *_SENTINEL_SCHEMES, "embedded")
_SENTINEL_PARAMETERS: Final = ("master", "sentinel_username", "sentinel_password")
_TLS_PARAMETERS: Final = tuple(f"ssl_{option.name}" for option in fields(TLSOptions))


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisTarget:
    """One Redis server or cluster, and the login to use there.

    Attributes:
        scheme: the URL's scheme.
        host, port: host and port of a server on the network; unused if `path` is set.
        path: path of the server's unix socket; None if it has none.
        embedded: the URL of an embedded server, which has no address until we start it.
        username, password: None where the server asks for none.
        database: number of the logical database.
        tls: options of TLS; None without TLS.
        seeds: addresses of some nodes of a cluster, from which the others are learned; empty for a single
            server.
        sentinels: the Sentinels that know the primary's address; None for a fixed address.
        must_be_primary: whether to refuse a server that says it is a replica.
        reads_replica: whether connections lead to replicas.
        sends_readonly: whether connections send READONLY, so that a replica in a cluster answers reads.
        found_as: address of the Sentinels, cluster or primary that led to this server; None without any.
    """

    scheme: str = "redis"
    host: str = "localhost"
    port: int = _DEFAULT_PORT
    path: str | None = None
    embedded: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: TLSOptions | None = None
    seeds: tuple[Address, ...] = ()
    sentinels: SentinelGroup | None = None
    must_be_primary: bool = False
    reads_replica: bool = False
    sends_readonly: bool = False
    found_as: str | None = None

    @property
    def is_cluster(self) -> bool:
        """Whether this is a cluster, whose nodes share the keys among them."""
        return bool(self.seeds)

    @property
    def address(self) -> str:
        """Host and port, socket path or data folder, safe to show (no password)."""
        if self.embedded is not None:
            return show_embedded_url(self.embedded)
        if self.path is not None:
            return self.path
        if self.sentinels is not None:
            return self.sentinels.address
        return ",".join(map(format_address, self.seeds or [(self.host, self.port)]))

    @property
    def address_and_database(self) -> str:
        """Address and number of the database, safe to show; without number where there is only one."""
        if self.seeds or self.embedded is not None:
            return self.address
        return f"{self.address}, database {self.database}"

    def node(self, address: Address) -> RedisTarget:
        """Return the target of one node of this cluster."""
        return replace(
            self,
            host=address[0],
            port=address[1],
            seeds=(),
            reads_replica=False,
            sends_readonly=self.reads_replica,
            found_as=self.address,
        )


def parse_redis_url(source: RedisSource) -> RedisTarget:
    """Parse a connection URL, or the settings of a redis-py client.

    `redis://[[user]:password@]host[:port][/database]`, `rediss://` for TLS (its parameters are those of
    `TLSOptions`, with `ssl_` before their names),
    `unix://[[user]:password@]/path[?db=number]` or the same as `redis-socket://`,
    `redis-cluster://[[user]:password@]host[:port][,host[:port]]...` or the same as `rediss-cluster://`,
    `redis-sentinel://[[user]:password@]host[:port][,host[:port]]...[/database]?master=name` or the same as
    `rediss-sentinel://`, and `embedded://[folder]`.
    Special characters of a user name or password are percent-encoded.

    Raises:
        ConfigurationError: for a URL that cannot work. The message never shows the password.
    """
    url = read_source_url(source)
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigurationError("a Redis URL begins with its scheme, as in redis://localhost:6379/0")
    scheme = scheme.lower()
    if scheme not in _SCHEMES:
        hint = nearest(scheme, _SCHEMES) or f"; the schemes are {', '.join(_SCHEMES)}"
        raise ConfigurationError(f"unsupported URI scheme: {scheme!r}{hint}")
    if scheme == "embedded":
        try:
            parse_embedded_url(url)
        except EmbeddedServerError as error:
            raise ConfigurationError(str(error)) from error
        return RedisTarget(scheme=scheme, embedded=url)
    if scheme in _CLUSTER_SCHEMES:
        return _cluster_target(scheme, url)
    if scheme in _SENTINEL_SCHEMES:
        return _sentinel_target(scheme, url)
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - a bad port raises only when it is read
        _check_host(parts.hostname or "")
    except ValueError:
        # The cause would show a password that is not percent-encoded, as a part of host or port.
        raise _malformed_error(scheme) from None
    _check_no_stray_password(scheme, parts)
    parameters = _parameters(scheme, parts)
    if scheme in _SOCKET_SCHEMES:
        return _socket_target(scheme, parts, parameters)
    return _network_target(scheme, parts, parameters)


def _malformed_error(scheme: str) -> ConfigurationError:
    return ConfigurationError(
        f"this {scheme}:// URL has a malformed host or port: a port is a number from 1 to 65535; "
        "in a user name or password, percent-encode special characters",
    )


def _check_no_stray_password(scheme: str, parts: SplitResult) -> None:
    # An unquoted / ? or # moves the rest of a password after the host, where errors and addresses show it.
    if parts.fragment or "@" in parts.path + parts.query:
        raise ConfigurationError(
            f"this {scheme}:// URL has an @ or # behind its address; "
            "in a user name or password write / ? # @ as %2F %3F %23 %40",
        )


def _network_target(scheme: str, parts: SplitResult, parameters: dict[str, str]) -> RedisTarget:
    return RedisTarget(
        scheme=scheme,
        host=parts.hostname or "localhost",
        port=parts.port or _DEFAULT_PORT,
        username=_unquote(parts.username),
        password=_unquote(parts.password),
        database=_path_or_parameter(parts, parameters),
        tls=_tls_options(parameters) if scheme == "rediss" else None,
    )


def _socket_target(scheme: str, parts: SplitResult, parameters: dict[str, str]) -> RedisTarget:
    if parts.hostname or parts.port or not parts.path.strip("/"):
        raise ConfigurationError(
            f"{scheme}:// needs the absolute path of a socket, as in {scheme}:///run/redis.sock"
        )
    return RedisTarget(
        scheme=scheme,
        path=unquote(parts.path),
        username=_unquote(parts.username),
        password=_unquote(parts.password),
        database=_database(parameters.get("db", "")),
    )


def _cluster_target(scheme: str, url: str) -> RedisTarget:
    (username, password, addresses), parts, parameters = _several_hosts(scheme, url, _DEFAULT_PORT)
    if _database(parts.path.strip("/")) or _database(parameters.get("db", "")):
        raise ConfigurationError(f"{scheme}:// has only database 0, as all clusters do: leave the number out")
    return RedisTarget(
        scheme=scheme,
        host=addresses[0][0],
        port=addresses[0][1],
        username=username,
        password=password,
        tls=_tls_options(parameters) if scheme == "rediss-cluster" else None,
        seeds=addresses,
    )


def _sentinel_target(scheme: str, url: str) -> RedisTarget:
    (username, password, addresses), parts, parameters = _several_hosts(scheme, url, _SENTINEL_PORT)
    if not parameters.get("master"):
        raise ConfigurationError(
            f"{scheme}:// needs the name under which the Sentinels watch the primary: add ?master=name"
        )
    return RedisTarget(
        scheme=scheme,
        username=username,
        password=password,
        database=_path_or_parameter(parts, parameters),
        tls=_tls_options(parameters) if scheme == "rediss-sentinel" else None,
        sentinels=SentinelGroup(
            addresses=addresses,
            primary=parameters["master"],
            username=parameters.get("sentinel_username") or None,
            password=parameters.get("sentinel_password") or None,
        ),
    )


def _several_hosts(scheme: str, url: str, port: int) -> tuple[Authority, SplitResult, dict[str, str]]:
    authority, rest = split_authority(url)
    parts = urlsplit(f"//{rest}")
    _check_no_stray_password(scheme, parts)
    parameters = _parameters(scheme, parts)
    try:
        found = parse_authority(authority, port)
        for host, _ in found[2]:
            _check_host(host)
    except ValueError:
        raise _malformed_error(scheme) from None
    return found, parts, parameters


def _check_host(host: str) -> None:
    """Raise `ValueError` for a host name that cannot be encoded for DNS; a lookup would raise it later."""
    # With a unix socket there is no host: spare that program the codec, which takes 2 ms and 0.4 MB.
    if host:
        host.encode("idna")


def _path_or_parameter(parts: SplitResult, parameters: dict[str, str]) -> int:
    database = parts.path.strip("/")
    if database and "db" in parameters:
        raise ConfigurationError("the URL names the database twice, as path and as db=; give one of them")
    return _database(database or parameters.get("db", ""))


def _parameters(scheme: str, parts: SplitResult) -> dict[str, str]:
    known = {"db", *(_TLS_PARAMETERS if scheme.startswith("rediss") else ())}
    known.update(_SENTINEL_PARAMETERS if scheme in _SENTINEL_SCHEMES else ())
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in parameters:
        if name not in known:
            hint = nearest(name, known) or f"; the parameters are {', '.join(sorted(known))}"
            raise ConfigurationError(f"{scheme}:// has no parameter {name!r}{hint}")
    return parameters


def _tls_options(parameters: dict[str, str]) -> TLSOptions:
    options: dict[str, Any] = {
        name.removeprefix("ssl_"): value for name, value in parameters.items() if name in _TLS_PARAMETERS
    }
    if "cert_reqs" in options:
        # Celery and others write it as Python does: CERT_REQUIRED.
        options["cert_reqs"] = options["cert_reqs"].lower().removeprefix("cert_")
    _check_choice("ssl_cert_reqs", options.get("cert_reqs"), CERT_REQS)
    if "check_hostname" in options:
        _check_choice("ssl_check_hostname", options["check_hostname"].lower(), ("true", "false"))
        options["check_hostname"] = options["check_hostname"].lower() == "true"
    if "keyfile" in options and "certfile" not in options:
        raise ConfigurationError("ssl_keyfile= is the key of a certificate: name that as ssl_certfile=")
    return TLSOptions(**options)


def _check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise ConfigurationError(f"{name}={value!r}: must be {' or '.join(choices)}")


def _database(text: str) -> int:
    if not text:
        return 0
    number = parse_whole_number(text)
    if number is None:
        raise ConfigurationError(
            f"{text!r} is not a database: a Redis database is a number, as in redis://localhost:6379/0"
        )
    return number


def _unquote(text: str | None) -> str | None:
    return unquote(text) if text else None
