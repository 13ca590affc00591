from __future__ import annotations

import pytest

from pyasynq._broker.redis_url import RedisTarget, parse_redis_url
from pyasynq._broker.tls import TLSOptions
from pyasynq.errors import ConfigurationError

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
        ("unix:///run/r.sock", RedisTarget(scheme="unix", path="/run/r.sock")),
        (
            "unix://:pw@/run/r.sock?db=2",
            RedisTarget(scheme="unix", path="/run/r.sock", password="pw", database=2),
        ),
        ("redis-socket:///run/r%20s.sock", RedisTarget(scheme="redis-socket", path="/run/r s.sock")),
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
        ("redis-cluster://h", "redis://"),
        ("redis-sentinel://h/0?master=m", "redis://"),
        ("redis://h:port", "malformed host or port"),
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
        ("embedded://./data", "embedded://./data"),
    ],
)
def test_addresses_and_reprs_keep_the_password_to_themselves(url: str, address: str) -> None:
    """Both are made for logs."""
    target = parse_redis_url(url)
    assert address == target.address
    assert SECRET not in repr(target)
