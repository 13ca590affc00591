"""redis-py clients as a source of connection settings; their own connections are never used.

The host, login and TLS settings of a client become a URL, so that there is one form for settings.
Its timeouts, retries and decoding are ignored.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias
from urllib.parse import quote, urlencode

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.connection as async_connections
import redis.asyncio.sentinel as async_sentinel
import redis.connection as blocking_connections
import redis.sentinel as blocking_sentinel

from pyasynq._redis.addresses import format_address
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

RedisClient: TypeAlias = "redis.Redis | redis.asyncio.Redis | redis.RedisCluster | redis.asyncio.RedisCluster"
RedisSource: TypeAlias = "str | RedisClient"
"""Redis URL, or a redis-py client whose connection settings are read."""

_SINGLE: Final = (redis.Redis, redis.asyncio.Redis)
_CLUSTERS: Final = (redis.RedisCluster, redis.asyncio.RedisCluster)
_TCP: Final = (blocking_connections.Connection, async_connections.Connection)
_UNIX: Final = (
    blocking_connections.UnixDomainSocketConnection,
    async_connections.UnixDomainSocketConnection,
)
_TLS: Final = (blocking_connections.SSLConnection, async_connections.SSLConnection)
_SENTINEL_POOLS: Final = (blocking_sentinel.SentinelConnectionPool, async_sentinel.SentinelConnectionPool)
_SENTINEL_TCP: Final = (
    blocking_sentinel.SentinelManagedConnection,
    async_sentinel.SentinelManagedConnection,
)
_SENTINEL_TLS: Final = (
    blocking_sentinel.SentinelManagedSSLConnection,
    async_sentinel.SentinelManagedSSLConnection,
)
_TLS_TEXTS: Final = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_password")
_UNREADABLE: Final = (
    "credential_provider",
    "ssl_ca_data",
    "ssl_ciphers",
    "ssl_exclude_verify_flags",
    "ssl_include_verify_flags",
    "ssl_min_version",
    "ssl_ocsp_context",
    "ssl_ocsp_expected_cert",
    "ssl_validate_ocsp",
    "ssl_validate_ocsp_stapled",
)


def read_source_url(source: RedisSource) -> str:
    """Return a URL unchanged; convert the settings of a redis-py client to a URL.

    Raises:
        ConfigurationError: for another type, and for a client with settings that a URL cannot express. The
            message names the setting and never shows a password.
    """
    if isinstance(source, str):
        return source
    if isinstance(source, _CLUSTERS):
        return _cluster_url(source)
    if not isinstance(source, _SINGLE):
        raise ConfigurationError(f"a Redis URL is text, or a redis-py client, not {type(source).__name__}")
    pool: Any = source.connection_pool
    if isinstance(pool, _SENTINEL_POOLS):
        return _sentinel_url(pool)
    settings = pool.connection_kwargs
    kind = pool.connection_class
    _check_readable(settings, "redis_connect_func")
    if kind in _UNIX:
        socket = _text(settings, "path") or ""
        return f"unix://{_login(settings)}{quote(socket)}?{urlencode({'db': _database(settings)})}"
    if kind not in _TCP and kind not in _TLS:
        _refuse(f"a connection class of its own, {kind.__name__}")
    scheme, parameters = ("rediss", _tls(settings)) if kind in _TLS else ("redis", {})
    address = (_text(settings, "host") or "localhost", int(settings.get("port") or 6379))
    return _url(scheme, settings, format_address(address), _database(settings), parameters)


def _sentinel_url(pool: Any) -> str:
    if not pool.is_master:
        raise ConfigurationError(
            "this redis-py client connects to replicas, which cannot take tasks: pass what "
            "`Sentinel.master_for` returns"
        )
    settings = pool.connection_kwargs
    _check_readable(settings, "redis_connect_func")
    kind = pool.connection_class
    if kind not in _SENTINEL_TCP and kind not in _SENTINEL_TLS:
        _refuse(f"a connection class of its own, {kind.__name__}")
    has_tls = kind in _SENTINEL_TLS
    hosts, logins, tls = [], set(), []
    for sentinel in pool.sentinel_manager.sentinels:
        own = sentinel.connection_pool.connection_kwargs
        _check_readable(own)
        hosts.append(format_address((_text(own, "host") or "localhost", int(own["port"]))))
        logins.add((_text(own, "username"), _text(own, "password")))
        tls.append(_tls(own) if sentinel.connection_pool.connection_class in _TLS else None)
    if len(logins) != 1:
        _refuse("Sentinels with different logins")
    if any(one != (_tls(settings) if has_tls else None) for one in tls):
        _refuse("Sentinels whose TLS settings differ from those of Redis")
    username, password = logins.pop()
    parameters = {
        "master": pool.service_name,
        "sentinel_username": username,
        "sentinel_password": password,
        **(_tls(settings) if has_tls else {}),
    }
    scheme = "rediss-sentinel" if has_tls else "redis-sentinel"
    return _url(scheme, settings, ",".join(hosts), _database(settings), parameters)


def _cluster_url(client: Any) -> str:
    nodes = client.nodes_manager
    settings = getattr(client, "connection_kwargs", None) or nodes.connection_kwargs
    _check_readable(settings)
    has_tls = bool(settings.get("ssl")) or settings.get("connection_class") in _TLS
    hosts = ",".join(format_address((node.host, int(node.port))) for node in nodes.startup_nodes.values())
    scheme, parameters = ("rediss-cluster", _tls(settings)) if has_tls else ("redis-cluster", {})
    return _url(scheme, settings, hosts, 0, parameters)


def _url(
    scheme: str,
    settings: Mapping[str, Any],
    hosts: str,
    database: int,
    parameters: Mapping[str, str | None],
) -> str:
    query = urlencode({name: value for name, value in parameters.items() if value is not None})
    return f"{scheme}://{_login(settings)}{hosts}/{database}{'?' if query else ''}{query}"


def _login(settings: Mapping[str, Any]) -> str:
    username, password = _text(settings, "username") or "", _text(settings, "password") or ""
    if not (username or password):
        return ""
    return f"{quote(username, safe='')}{':' if password else ''}{quote(password, safe='')}@"


def _database(settings: Mapping[str, Any]) -> int:
    return int(settings.get("db") or 0)


def _tls(settings: Mapping[str, Any]) -> dict[str, str | None]:
    needed = settings.get("ssl_cert_reqs", "required")
    if isinstance(needed, ssl.VerifyMode):
        needed = needed.name.removeprefix("CERT_").lower()
    checks = settings.get("ssl_check_hostname", True)
    return {
        **{name: _text(settings, name) for name in _TLS_TEXTS},
        "ssl_cert_reqs": "none" if needed is None else str(needed),
        "ssl_check_hostname": None if checks else "false",
    }


def _text(settings: Mapping[str, Any], name: str) -> str | None:
    value = settings.get(name)
    if value is not None and not isinstance(value, str):
        _refuse(f"a {name} that is not text")
    return value


def _check_readable(settings: Mapping[str, Any], *more: str) -> None:
    for name in (*_UNREADABLE, *more):
        if settings.get(name):
            _refuse(f"{name}, which pyasynq has no setting for")


def _refuse(what: str) -> NoReturn:
    raise ConfigurationError(f"this redis-py client has {what}: give the URL of Redis instead")
