from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel

from pyasynq import App
from pyasynq._redis.addresses import SentinelGroup
from pyasynq._redis.clients import read_source_url
from pyasynq._redis.tls import TLSOptions
from pyasynq._redis.url import RedisTarget, parse_redis_url
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from pyasynq._redis.clients import RedisSource

SECRET = "s3/cr:3t@"
SINGLE: list[Any] = [redis.Redis, redis.asyncio.Redis]
SENTINELS: list[Any] = [redis.sentinel.Sentinel, redis.asyncio.sentinel.Sentinel]
CA = "/ca dir/ca.pem"


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize(
    ("settings", "target"),
    [
        ({}, RedisTarget()),
        (
            {"host": "::1", "port": 1, "db": 3, "username": "b@b", "password": SECRET, "socket_timeout": 2},
            RedisTarget(host="::1", port=1, database=3, username="b@b", password=SECRET),
        ),
        ({"password": SECRET, "decode_responses": True}, RedisTarget(password=SECRET)),
        ({"username": "bob"}, RedisTarget(username="bob")),
        (
            {"unix_socket_path": "/run/r s?.sock", "db": 2, "password": SECRET},
            RedisTarget(scheme="unix", path="/run/r s?.sock", database=2, password=SECRET),
        ),
        (
            {
                "ssl": True,
                "ssl_ca_certs": CA,
                "ssl_certfile": "/c",
                "ssl_keyfile": "/k",
                "ssl_password": "p&",
            },
            RedisTarget(
                scheme="rediss",
                tls=TLSOptions(ca_certs=CA, certfile="/c", keyfile="/k", password="p&"),
            ),
        ),
        (
            {"ssl": True, "ssl_cert_reqs": ssl.CERT_NONE, "ssl_check_hostname": False},
            RedisTarget(scheme="rediss", tls=TLSOptions(cert_reqs="none", check_hostname=False)),
        ),
    ],
)
def test_a_client_of_redis_py_is_read(kind: Any, settings: dict[str, Any], target: RedisTarget) -> None:
    """Whom it speaks to and as whom; how it waits and decodes does not matter."""
    assert target == parse_redis_url(kind(**settings))


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize(
    "url", ["redis://bob:p%40w@h:1/2", "unix://:pw@/run/r.sock?db=3", "rediss://h/4?ssl_cert_reqs=none"]
)
def test_a_client_that_was_made_of_a_url_is_read(kind: Any, url: str) -> None:
    """Pyasynq reads the same parameters from the URL as redis-py."""
    assert parse_redis_url(url) == parse_redis_url(kind.from_url(url))


@pytest.mark.parametrize("kind", SENTINELS)
def test_a_client_of_a_primary_under_sentinel_is_read(kind: Any) -> None:
    """The Sentinels, their login, the name and Redis' own login."""
    sentinels = kind([("h1", 1), ("h2", 2)], sentinel_kwargs={"password": "s&p"}, password=SECRET)
    assert RedisTarget(
        scheme="redis-sentinel",
        password=SECRET,
        database=3,
        sentinels=SentinelGroup(addresses=(("h1", 1), ("h2", 2)), primary="my tasks", password="s&p"),
    ) == parse_redis_url(sentinels.master_for("my tasks", db=3))


@pytest.mark.parametrize("kind", SENTINELS)
def test_a_client_of_a_primary_under_sentinel_with_tls_is_read(kind: Any) -> None:
    """It must be the same to both."""
    options = {"ssl": True, "ssl_ca_certs": CA}
    sentinels = kind([("h1", 1)], sentinel_kwargs=options, **options)
    target = parse_redis_url(sentinels.master_for("m"))
    assert ("rediss-sentinel", TLSOptions(ca_certs=CA)) == (target.scheme, target.tls)
    with pytest.raises(ConfigurationError, match="Sentinels whose TLS settings differ from those of Redis"):
        read_source_url(kind([("h1", 1)], sentinel_kwargs={}, **options).master_for("m"))
    with pytest.raises(ConfigurationError, match="Sentinels whose TLS settings differ from those of Redis"):
        read_source_url(kind([("h1", 1)], sentinel_kwargs=options).master_for("m"))
    with pytest.raises(ConfigurationError, match=r"pass what `Sentinel.master_for` returns"):
        read_source_url(sentinels.slave_for("m"))


@pytest.mark.parametrize("settings", [{}, {"ssl": True, "ssl_cert_reqs": "none"}])
def test_a_client_of_a_cluster_is_read(settings: dict[str, Any]) -> None:
    """Its first nodes are enough: they know the others."""
    nodes = [redis.asyncio.cluster.ClusterNode("h1", 1), redis.asyncio.cluster.ClusterNode("10.0.0.2", 2)]
    client = redis.asyncio.RedisCluster(startup_nodes=nodes, password=SECRET, **settings)
    tls = TLSOptions(cert_reqs="none") if settings else None
    assert RedisTarget(
        scheme="rediss-cluster" if settings else "redis-cluster",
        host="h1",
        port=1,
        password=SECRET,
        seeds=(("h1", 1), ("10.0.0.2", 2)),
        tls=tls,
    ) == parse_redis_url(client)


class _OwnConnection(redis.Connection):
    pass


class _Credentials(redis.CredentialProvider):
    pass


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"credential_provider": _Credentials()}, "has credential_provider, which"),
        ({"redis_connect_func": print}, "has redis_connect_func, which"),
        ({"ssl": True, "ssl_ca_data": "PEM"}, "has ssl_ca_data, which"),
        ({"ssl": True, "ssl_ciphers": "ALL"}, "has ssl_ciphers, which"),
        ({"password": b"bytes"}, "has a password that is not text"),
        (
            {"connection_pool": redis.ConnectionPool(connection_class=_OwnConnection)},
            "has a connection class of its own, _OwnConnection",
        ),
    ],
)
def test_a_client_that_cannot_be_read_says_why(settings: dict[str, Any], says: str) -> None:
    """Nothing is left out in silence: with other settings it would be another connection."""
    with pytest.raises(ConfigurationError) as error:
        read_source_url(redis.Redis(**settings))
    assert f"this redis-py client {says}" in str(error.value)
    assert str(error.value).endswith("give the URL of Redis instead")


@pytest.mark.parametrize("source", [None, 7, b"redis://h", object()])
def test_what_is_neither_text_nor_a_client_is_refused(source: Any) -> None:
    """The error names its type."""
    with pytest.raises(ConfigurationError, match=f"or a redis-py client, not {type(source).__name__}"):
        parse_redis_url(source)


def test_an_app_keeps_what_a_client_says() -> None:
    """At its start and later."""
    app = App(redis.Redis(host="h", db=2))
    assert "redis://h:6379/2" == app.url
    source: RedisSource = redis.asyncio.Redis(host="i")
    app.url = source
    assert "i:6379" == app.address
