from __future__ import annotations

from pathlib import Path

import pytest

from pyasynq._redis.addresses import SentinelGroup
from pyasynq._redis.guard import check, only
from pyasynq._redis.tls import TLSOptions
from pyasynq._redis.url import RedisTarget, parse_redis_url
from pyasynq.errors import ConfigurationError, ForeignRedisError

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("redis://", RedisTarget()),
        ("redis://localhost", RedisTarget()),
        ("redis://localhost:6380/3", RedisTarget(port=6380, database=3)),
        ("REDIS://h/", RedisTarget(host="h")),
        ("redis://h?db=4", RedisTarget(host="h", database=4)),
        ("redis://:pw@h:1", RedisTarget(host="h", port=1, password="pw")),
        ("redis://bob:p%40w%2F@h", RedisTarget(host="h", username="bob", password="p@w/")),
        ("redis://[::1]:7000/1", RedisTarget(host="::1", port=7000, database=1)),
        ("rediss://h", RedisTarget(scheme="rediss", host="h", tls=TLSOptions())),
        (
            "rediss://h?ssl_certfile=/c%20d&ssl_keyfile=/k&ssl_password=p%26w&ssl_server_hostname=x",
            RedisTarget(
                scheme="rediss",
                host="h",
                tls=TLSOptions(certfile="/c d", keyfile="/k", password="p&w", server_hostname="x"),
            ),
        ),
        (
            "rediss://h?ssl_cert_reqs=CERT_NONE",
            RedisTarget(scheme="rediss", host="h", tls=TLSOptions(cert_reqs="none")),
        ),
        (
            "rediss://h?ssl_cert_reqs=none&ssl_ca_certs=/ca.pem&ssl_check_hostname=false",
            RedisTarget(
                scheme="rediss",
                host="h",
                tls=TLSOptions(cert_reqs="none", ca_certs="/ca.pem", check_hostname=False),
            ),
        ),
        (
            "redis-sentinel://h1,h2:7000,[::1]/3?master=m",
            RedisTarget(
                scheme="redis-sentinel",
                database=3,
                sentinels=SentinelGroup(addresses=(("h1", 26379), ("h2", 7000), ("::1", 26379)), primary="m"),
            ),
        ),
        (
            "rediss-sentinel://bob:p%40w@h?master=m%20m&db=1&sentinel_username=a&sentinel_password=s%2F",
            RedisTarget(
                scheme="rediss-sentinel",
                username="bob",
                password="p@w",
                database=1,
                tls=TLSOptions(),
                sentinels=SentinelGroup(
                    addresses=(("h", 26379),), primary="m m", username="a", password="s/"
                ),
            ),
        ),
        ("unix:///run/r.sock", RedisTarget(scheme="unix", path="/run/r.sock")),
        (
            "unix://:pw@/run/r.sock?db=2",
            RedisTarget(scheme="unix", path="/run/r.sock", password="pw", database=2),
        ),
        ("redis-socket:///run/r%20s.sock", RedisTarget(scheme="redis-socket", path="/run/r s.sock")),
        (
            "redis-cluster://h1,h2:7001/0?db=0",
            RedisTarget(scheme="redis-cluster", host="h1", seeds=(("h1", 6379), ("h2", 7001))),
        ),
        (
            "rediss-cluster://bob:p%40w@[::1]:7000,h2?ssl_cert_reqs=none",
            RedisTarget(
                scheme="rediss-cluster",
                host="::1",
                port=7000,
                username="bob",
                password="p@w",
                tls=TLSOptions(cert_reqs="none"),
                seeds=(("::1", 7000), ("h2", 6379)),
            ),
        ),
        ("embedded://", RedisTarget(scheme="embedded", embedded="embedded://")),
        ("embedded://./data", RedisTarget(scheme="embedded", embedded="embedded://./data")),
    ],
)
def test_urls_that_work(url: str, target: RedisTarget) -> None:
    """What each part of a URL becomes, percent-encoding undone."""
    assert target == parse_redis_url(url)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("localhost:6379", "begins with its scheme"),
        ("", "begins with its scheme"),
        ("rediss//h", "begins with its scheme"),
        ("reddis://h", "did you mean 'redis'"),
        ("http://h", "the schemes are redis"),
        (f"redis://h/{'9' * 5_000}", "is not a database"),
        ("redis://h/²", "is not a database"),
        (f"redis://h:{'9' * 5_000}", "malformed host or port"),
        ("redis-cluster://", "malformed host or port"),
        ("redis-cluster://h1,h2:x", "malformed host or port"),
        ("redis-cluster://h1,h2/1", "only database 0"),
        ("redis-cluster://h1,h2?db=2", "only database 0"),
        ("redis-cluster://h1?ssl_cert_reqs=none", "has no parameter 'ssl_cert_reqs'"),
        ("redis-sentinel://h/0", "add ?master=name"),
        ("redis-sentinel://h/0?master=", "add ?master=name"),
        ("redis-sentinel:///0?master=m", "malformed host or port"),
        ("redis-sentinel://h:port?master=m", "malformed host or port"),
        ("redis-sentinel://h/1?master=m&db=2", "twice"),
        ("redis-sentinel://h/first?master=m", "a Redis database is a number"),
        ("redis-sentinel://h?mastre=m", "did you mean 'master'"),
        ("redis-sentinel://h?master=m&ssl_cert_reqs=none", "ssl_cert_reqs"),
        ("redis-sentinel://h?master=m&sentinel_password=a@b", "%40"),
        ("redis://h?master=m", "has no parameter 'master'"),
        ("redis://h:port", "malformed host or port"),
        ("redis://\x80", "malformed host or port"),
        ("redis://a..b:6379", "malformed host or port"),
        (f"redis://{'h' * 64}", "malformed host or port"),
        ("redis-cluster://h1,a..b", "malformed host or port"),
        ("redis-sentinel://a..b/0?master=m", "malformed host or port"),
        ("redis://h:99999", "malformed host or port"),
        ("redis://h/first", "a Redis database is a number"),
        ("redis://h/-1", "a Redis database is a number"),
        ("redis://h/1?db=2", "twice"),
        ("redis://h?dbb=2", "did you mean 'db'"),
        ("redis://h?ssl_cert_reqs=none", "ssl_cert_reqs"),
        ("rediss://h?ssl_cert_reqs=maybe", "none or optional or required"),
        ("rediss://h?ssl_check_hostname=1", "true or false"),
        ("rediss://h?ssl_keyfile=/k", "ssl_certfile="),
        ("rediss://h?ssl_cert_file=/k", "did you mean 'ssl_certfile'"),
        ("unix://run/r.sock", "absolute path"),
        ("unix://", "absolute path"),
        ("embedded://a%zz", "%25"),
    ],
)
def test_urls_that_cannot_work_say_why(url: str, hint: str) -> None:
    """The error names the part and the remedy."""
    with pytest.raises(ConfigurationError) as error:
        parse_redis_url(url)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}/x@h",
        f"redis://u:{SECRET}@h:x",
        f"nope://:{SECRET}@h/",
        f"redis://u:12@h/{SECRET}@h",
        f"unix://u:/{SECRET}@/run/r.sock",
        f"unix://u:{SECRET}@h:x/run/r.sock",
        f"redis://:12/{SECRET}@h",
        f"redis://:12?{SECRET}@h/0",
        f"redis://:12#{SECRET}@h/0",
        f"rediss://h/{SECRET}@h?db=1",
        f"unix://:12/{SECRET}@/run/r.sock",
        f"unix:///run/r.sock#{SECRET}",
        f"redis-sentinel://:{SECRET}@h",
        f"redis-sentinel://:12/{SECRET}@h?master=m",
        f"redis-sentinel://:12?{SECRET}@h?master=m",
        f"redis-sentinel://:12#{SECRET}@h?master=m",
        f"redis-sentinel://h:{SECRET}?master=m",
        f"redis-cluster://:12/{SECRET}@h1,h2",
        f"redis-cluster://u:{SECRET}@h1,h2:x",
        f"redis-cluster://u:{SECRET}/x@h1,h2",
    ],
)
def test_no_error_shows_the_password(url: str) -> None:
    """An unquoted / ? or # makes a password a part of another part; the message must not quote that."""
    with pytest.raises(ConfigurationError) as error:
        parse_redis_url(url)
    assert SECRET not in str(error.value)
    assert error.value.__cause__ is None or SECRET not in str(error.value.__cause__)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (f"redis://bob:{SECRET}@h:1/2", "h:1"),
        (f"redis://:{SECRET}@[::1]", "[::1]:6379"),
        (f"unix://:{SECRET}@/run/r.sock", "/run/r.sock"),
        (f"rediss://h?ssl_certfile=/c&ssl_password={SECRET}", "h:6379"),
        ("embedded://", "embedded://"),
        ("embedded://./data", f"embedded://{Path.cwd()}/data"),
        ("embedded://./caf%C3%A9?port=1", f"embedded://{Path.cwd()}/caf%C3%A9?port=1"),
        (
            f"redis-sentinel://:{SECRET}@h,[::1]:7?master=m&sentinel_password={SECRET}",
            "m (Sentinels h:26379, [::1]:7)",
        ),
        (f"redis-cluster://:{SECRET}@h1,[::1]:7000", "h1:6379,[::1]:7000"),
    ],
)
def test_addresses_and_reprs_keep_the_password_to_themselves(url: str, address: str) -> None:
    """Both are made for logs."""
    target = parse_redis_url(url)
    assert address == target.address
    assert SECRET not in repr(target)


def test_a_node_of_a_cluster_is_a_server_that_the_cluster_has_led_to() -> None:
    """As whom to speak to it, and how, is the same; a test that may use the cluster may use its nodes."""
    cluster = parse_redis_url(f"rediss-cluster://bob:{SECRET}@h1,h2")
    node = cluster.node(("10.0.0.7", 7002))
    assert not node.is_cluster
    assert ("10.0.0.7:7002", cluster.address) == (node.address, node.found_as)
    assert (cluster.username, cluster.password, cluster.tls) == (node.username, node.password, node.tls)
    with only({cluster.address}):
        check(node)
    with only({"h3:6379"}), pytest.raises(ForeignRedisError):
        check(node)
